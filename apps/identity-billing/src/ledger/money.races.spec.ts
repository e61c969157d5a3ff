import { randomUUID } from 'node:crypto';
import type { Reservation, ReserveRequest } from '@nebo/contracts';
import { Database } from '@nebo/persistence';
import { type Billing, nano, startBilling } from '../../test/billing.js';
import { Chance } from '../../test/random.js';
import { Recalls } from '../slices/recalls.js';
import { MoneyService } from './money.service.js';

describe('races for money', () => {
  let billing: Billing;
  let replicas: { database: Database; money: MoneyService }[];
  const chance = new Chance(7);
  beforeAll(async () => {
    billing = await startBilling();
    // Two replicas with a connection for each of 32 spenders: all of them truly at once.
    replicas = [1, 2].map(() => {
      const database = new Database({
        url: billing.nebo.runtime.databaseUrl('identity_billing'),
        schema: 'identity_billing',
        max: 24,
      });
      return { database, money: new MoneyService(database, billing.provider(Recalls)) };
    });
  });
  afterAll(async () => {
    for (const { database } of replicas ?? []) await database.close();
    await billing?.close();
  });

  const any = () => chance.pick(replicas).money;
  const request = (
    account: string,
    amount: bigint | string,
    more: Partial<ReserveRequest> = {},
  ): ReserveRequest => ({
    operation_id: randomUUID(),
    account_id: account,
    kind: 'control',
    amount: amount.toString(),
    description: 'race',
    ...more,
  });
  const codeOf = (promise: Promise<unknown>): Promise<string> =>
    promise.then(
      () => 'ok',
      (error: { code?: string }) => error.code ?? String(error),
    );
  const row = async (account: string) =>
    (
      await billing.sql<Record<string, string>>(
        'select posted, held, credits, credits_held from balance where account_id = $1',
        [account],
      )
    )[0]!;
  const adds = async () =>
    expect((await billing.internal('POST', 'money/reconcile')).body).toMatchObject({ ok: true });

  it('48 parallel reserves of random amounts never exceed the balance, and their sum is exact', async () => {
    for (let round = 0; round < 5; round += 1) {
      const { account_id } = await billing.account('1000');
      const wanted = Array.from({ length: 48 }, () => request(account_id, nano(chance.int(1, 90))));
      const answers = await Promise.all(wanted.map((one) => codeOf(any().reserve('test', one))));
      const taken = wanted
        .filter((_, index) => answers[index] === 'ok')
        .reduce((sum, one) => sum + BigInt(one.amount), 0n);
      const { posted, held } = await row(account_id);
      expect(posted).toBe(nano(1000));
      expect(BigInt(held!)).toBe(taken);
      expect(taken <= BigInt(nano(1000))).toBe(true);
      // Whatever was refused did not fit when it was refused: the smallest refused one does not fit now.
      const refused = wanted
        .filter((_, index) => answers[index] === 'held_in_flight')
        .map((one) => BigInt(one.amount));
      expect(refused.length + answers.filter((code) => code === 'ok').length).toBe(48);
      for (const amount of refused) expect(taken + amount > BigInt(nano(1000))).toBe(true);
    }
    await adds();
  });

  it('credits and money together are never spent twice', async () => {
    const { account_id } = await billing.account('100', '100');
    const answers = await Promise.all(
      Array.from({ length: 40 }, () => codeOf(any().reserve('test', request(account_id, nano(30))))),
    );
    expect(answers.filter((code) => code === 'ok')).toHaveLength(6);
    expect(await row(account_id)).toMatchObject({ held: nano(80), credits_held: nano(100) });
    await adds();
  });

  it("a key's monthly limit is never exceeded by parallel requests", async () => {
    const { account_id } = await billing.account('1000');
    const { id: key_id } = (
      await billing.admin('inference-key-create', { account: account_id, monthly_limit: '50' })
    ).body;
    const inference = { kind: 'inference' as const, key_id };
    const answers = await Promise.all(
      Array.from({ length: 40 }, () =>
        codeOf(any().reserve('test', request(account_id, nano(7), inference))),
      ),
    );
    expect(answers.filter((code) => code === 'ok')).toHaveLength(7);
    expect((await billing.sql('select used from key_month where key_id = $1', [key_id]))[0]).toEqual({
      used: nano(49),
    });
    expect(await row(account_id)).toMatchObject({ held: nano(49) });
    await adds();
  });

  it('32 doubles of one reserve take the money once and all get the same answer, also when it is the last money', async () => {
    const { account_id } = await billing.account('10');
    const one = request(account_id, nano(10));
    const answers = await Promise.all(Array.from({ length: 32 }, () => any().reserve('test', one)));
    expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(1);
    expect(await row(account_id)).toMatchObject({ held: nano(10) });
    const { id: key_id } = (
      await billing.admin('inference-key-create', { account: account_id, monthly_limit: '10' })
    ).body;
    await any().void(one);
    const last = request(account_id, nano(10), { kind: 'inference', key_id });
    await Promise.all(Array.from({ length: 32 }, () => any().reserve('test', last)));
    await adds();
  });

  it('two concurrent captures with different amounts: one wins, the other gets 409', async () => {
    const { account_id } = await billing.account('1000');
    for (let round = 0; round < 20; round += 1) {
      const one = request(account_id, nano(10));
      await any().reserve('test', one);
      const { posted } = await row(account_id);
      const answers = await Promise.all(
        [nano(3), nano(4)].map((amount) => codeOf(any().capture({ ...one, amount }))),
      );
      expect(answers.sort()).toEqual(['already_captured', 'ok']);
      const [{ captured } = { captured: '' }] = await billing.sql<{ captured: string }>(
        'select captured from reservation where operation_id = $1',
        [one.operation_id],
      );
      expect(BigInt((await row(account_id)).posted!)).toBe(BigInt(posted!) - BigInt(captured));
    }
    await adds();
  });

  it('capture, void and expiry at once: exactly one of them resolves the reservation', async () => {
    const { account_id } = await billing.account('1000');
    const seen = new Set<string>();
    for (let round = 0; round < 30; round += 1) {
      const one = request(account_id, nano(10));
      await any().reserve('test', one);
      const expiry = async () => {
        await billing.sql(
          "update reservation set expires_at = now() - interval '1 second' where operation_id = $1 and state = 'held'",
          [one.operation_id],
        );
        await any().expire();
      };
      const [captured, voided] = await Promise.all([
        any()
          .capture(one)
          .then(
            (answer) => answer.state,
            (error: { code: string }) => error.code,
          ),
        any()
          .void(one)
          .then(
            (answer) => answer.state,
            (error: { code: string }) => error.code,
          ),
        ...(round % 2 ? [expiry()] : []),
      ]);
      const [{ state } = { state: '' }] = await billing.sql<{ state: Reservation['state'] }>(
        'select state from reservation where operation_id = $1',
        [one.operation_id],
      );
      seen.add(state);
      expect([state, captured, voided]).toEqual(
        {
          captured: ['captured', 'captured', 'already_captured'],
          void: ['void', 'already_void', 'void'],
          expired: ['expired', 'expired', 'expired'],
        }[state as 'void'],
      );
    }
    expect(seen.size).toBeGreaterThan(1);
    await adds();
  });

  it('sweeps of several replicas expire each reservation once', async () => {
    const accounts = await Promise.all([1, 2, 3].map(() => billing.account('1000')));
    for (const { account_id } of accounts) {
      await Promise.all(
        Array.from({ length: 40 }, () => any().reserve('test', request(account_id, nano(5)))),
      );
    }
    await billing.sql(
      "update reservation set expires_at = now() - interval '1 second' where state = 'held' and account_id = any($1)",
      [accounts.map(({ account_id }) => account_id)],
    );
    await Promise.all(Array.from({ length: 8 }, () => any().expire()));
    while ((await any().expire()) > 0);
    for (const { account_id } of accounts)
      expect(await row(account_id)).toMatchObject({ posted: nano(1000), held: '0' });
    const releases = await billing.sql<{ count: string }>(
      "select count(*) from transfer where kind = 'release' and account_id = any($1)",
      [accounts.map(({ account_id }) => account_id)],
    );
    expect(releases[0]!.count).toBe('120');
    await adds();
  });

  it('32 spenders with random work on 5 accounts, top-ups and sweeps between: no deadlock, never below zero, adds up', async () => {
    const accounts = await Promise.all([1, 2, 3, 4, 5].map(() => billing.account('200', '50')));
    const failures: string[] = [];
    const worker = async () => {
      for (let step = 0; step < 12; step += 1) {
        const { account_id } = chance.pick(accounts);
        const one = request(account_id, nano(chance.int(1, 60)), {
          kind: chance.pick(['control', 'inference'] as const),
        });
        const code = await codeOf(any().reserve('test', one));
        if (!['ok', 'held_in_flight', 'insufficient_balance'].includes(code)) failures.push(code);
        if (code !== 'ok') continue;
        const end = chance.int(0, 3);
        if (end === 0) await any().void(one);
        else if (end === 1) await any().capture({ ...one, amount: nano(1) });
        else if (end === 2) await any().capture(one);
        if (chance.int(0, 9) === 0)
          await billing.admin('account-topup', { account: account_id, amount: '20' });
        if (chance.int(0, 9) === 0) await any().expire();
      }
    };
    await Promise.all(Array.from({ length: 32 }, worker));
    expect(failures).toEqual([]);
    const overdrawn = await billing.sql(
      'select * from balance where posted < held or credits < credits_held',
    );
    expect(overdrawn).toEqual([]);
    await adds();
  });
});
