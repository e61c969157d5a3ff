import { randomUUID } from 'node:crypto';
import { ruble } from '@nebo/contracts';
import { Database } from '@nebo/persistence';
import { type Billing, nano, startBilling } from '../../test/billing.js';
import { Chance } from '../../test/random.js';
import { settlementOf, TestRouter } from '../../test/routers.js';
import { SliceModel } from '../../test/slice-model.js';
import { listsOf, readSettlement, type SettlementRow, sliceSettle } from './settlement.js';

/** Sequences to run: 24 in `npm test`, more with NEBO_PROOF (`npm run proof -- money`); all follow from NEBO_SEED. */
const sequences = Number(process.env['NEBO_PROOF'] || 24);
const firstSeed = Number(process.env['NEBO_SEED'] || 20_261_121);

describe('slices, many at once', () => {
  let billing: Billing;
  let database: Database;
  beforeAll(async () => {
    billing = await startBilling();
    // A connection for each of 32: all of them truly at once, past the pool of the service.
    database = new Database({
      url: billing.nebo.runtime.databaseUrl('identity_billing'),
      schema: 'identity_billing',
      max: 32,
    });
  });
  afterAll(async () => {
    await database?.close();
    await billing?.close();
  });

  const world = async (topup: string, limit?: string) => {
    const { account_id } = await billing.account(topup);
    const key = (
      await billing.admin('inference-key-create', {
        account: account_id,
        ...(limit ? { monthly_limit: limit } : {}),
      })
    ).body.id as string;
    const router = () => new TestRouter(billing, account_id, key, limit !== undefined).open();
    return { account_id, key, routers: await Promise.all([router(), router(), router()]) };
  };
  const row = async (account: string) =>
    (
      await billing.sql<Record<string, string>>(
        'select posted, held, leased from balance where account_id = $1',
        [account],
      )
    )[0]!;
  const addsUp = async () =>
    expect((await billing.internal('POST', 'money/reconcile')).body).toMatchObject({
      ok: true,
      differences: [],
    });
  const codeOf = (work: Promise<unknown>) =>
    work.then(
      () => 'ok',
      (error: { message: string }) => error.message,
    );
  const take = (router: TestRouter, need: bigint, key: string | null = null) =>
    codeOf(
      database.query('select 1 from slice_take($1::uuid, $2, $3::uuid, $4, $5, $6::uuid, $7, $8, 30)', [
        router.id,
        router.epoch,
        router.account,
        need,
        need * 3n,
        key,
        need,
        need * 3n,
      ]),
    );

  it('takes and orders at once never get more than there is, of money and of the limit', async () => {
    const chance = new Chance(5);
    for (let round = 0; round < 4; round += 1) {
      const { account_id, key, routers } = await world('300', '120');
      const codes = await Promise.all(
        Array.from({ length: 48 }, async (_, index) => {
          const amount = BigInt(chance.int(1, 30)) * ruble;
          if (index % 3 > 0) return take(chance.pick(routers), amount, index % 2 ? key : null);
          const reserve =
            "select 1 from money_reserve($1::uuid, $2, 'test', 'control', null, $3, '', null, 60)";
          return codeOf(database.query(reserve, [account_id, randomUUID(), amount]));
        }),
      );
      expect(
        codes.filter((code) => !['ok', 'held_in_flight', 'insufficient_balance'].includes(code)),
      ).toEqual([]);
      const { posted, held, leased } = await row(account_id);
      expect(BigInt(posted!) - BigInt(held!) - BigInt(leased!)).toBeGreaterThanOrEqual(0n);
      const [limits] = await billing.sql<{ used: string; leased: string }>(
        'select used, leased from key_month where key_id = $1',
        [key],
      );
      expect(BigInt(limits!.used) + BigInt(limits!.leased)).toBeLessThanOrEqual(BigInt(nano(120)));
    }
    await addsUp();
  });

  it('the same settlements at once, in any order and in batches of several accounts, charge once: no deadlock', async () => {
    const worlds = await Promise.all([world('100', '90'), world('100', '90'), world('100')]);
    const [router] = worlds[0]!.routers;
    const ends: SettlementRow[] = [];
    for (const { account_id, key } of worlds) {
      const { body } = await router!.call('take', { account_id, need: nano(50), want: nano(50) });
      for (let count = 0; count < 40; count += 1)
        ends.push(
          readSettlement(
            settlementOf({ account_id, key_id: key, slice_id: body.account.id, amount: nano(1) }),
            0,
          ) as SettlementRow,
        );
    }
    const chance = new Chance(3);
    const shuffled = () =>
      ends
        .map((end) => ({ end, at: chance.next() }))
        .sort((a, b) => a.at - b.at)
        .slice(0, 90)
        .map(({ end }) => end);
    const settle = (batch: typeof ends) =>
      codeOf(database.query(`select 1 from ${sliceSettle}`, [router!.id, 'test', ...listsOf(batch)]));
    const codes = await Promise.all(Array.from({ length: 16 }, () => settle(shuffled())));
    codes.push(await settle(ends));
    expect(codes.filter((code) => code !== 'ok')).toEqual([]);
    for (const { account_id } of worlds)
      expect(await row(account_id)).toEqual({ posted: nano(60), held: '0', leased: nano(10) });
    await addsUp();
  });

  it('everything at once on 4 accounts: no deadlock, never below zero, adds up', async () => {
    const worlds = await Promise.all(['80', '80', '200', '30'].map((topup) => world(topup, '60')));
    const chance = new Chance(9);
    const strange: unknown[] = [];
    const worker = async () => {
      for (let step = 0; step < 10; step += 1) {
        const { account_id, routers } = chance.pick(worlds);
        const router = chance.pick(routers);
        const amount = BigInt(chance.int(1, 20)) * ruble;
        const deed = chance.int(0, 9);
        let answer: { status: number; text: string } | undefined;
        if (deed < 3) answer = await router.take(amount, amount * 2n);
        else if (deed < 5)
          answer = await router.settle([router.ended(amount / 2n), router.ended(amount / 4n)]);
        else if (deed === 5) answer = await router.giveBack();
        else if (deed === 6) answer = await router.renew(amount);
        else if (deed === 7) {
          const operation_id = randomUUID();
          const order = {
            operation_id,
            account_id,
            kind: 'control',
            amount: amount.toString(),
            description: '',
          };
          answer = await billing.money('reserve', order);
          if (answer.status === 200 && chance.next() < 0.5) answer = await billing.money('capture', order);
        } else if (deed === 8) {
          // Time does this without a lock. A statement that changes several slices takes the account's balance first, as all do
          // (migration slices); both are one transaction.
          await billing.sql(
            `select 1 from balance where account_id = '${account_id}' for update;
             update slice set expires_at = now() where state = 'active' and router_id = '${router.id}'`,
          );
          await database.query('select slice_sweep(10)');
        } else if (chance.next() < 0.3) await router.open();
        // A router that began a new life meanwhile is fenced, as it should be.
        if (answer && ![200, 402, 409].includes(answer.status)) strange.push([deed, answer.text]);
      }
    };
    await Promise.all(Array.from({ length: 16 }, worker));
    expect(strange).toEqual([]);
    expect(await billing.sql('select * from balance where posted - held - leased < 0 or posted < 0')).toEqual(
      [],
    );
    expect(
      await billing.sql(
        'select m.* from key_month m join api_key k on k.id = m.key_id where m.used < 0 or m.leased < 0',
      ),
    ).toEqual([]);
    await addsUp();
  }, 60_000);

  async function sequence(seed: number): Promise<void> {
    const chance = new Chance(seed);
    const rubles = chance.int(30, 120);
    const limit = BigInt(chance.int(20, 100)) * ruble;
    const { account_id, key, routers } = await world(String(rubles), (limit / ruble).toString());
    const plain = routers.map((router) => new TestRouter(billing, account_id, key, false, router.id));
    plain.forEach((router, index) => (router.epoch = routers[index]!.epoch));
    const model = new SliceModel(BigInt(rubles) * ruble, limit, routers.length);
    const told: string[] = [];
    const ids = [0, 1, 2, 3, 4].map((number) => `${seed}-${number}`);
    for (let step = 0; step < 16; step += 1) {
      const index = chance.int(0, 2);
      const router = routers[index]!;
      const amount = BigInt(chance.pick([1, 5, 10, 10, 25, 60])) * ruble + BigInt(chance.pick([0, 0, 1]));
      const deed = chance.pick([
        'take',
        'take',
        'take',
        'settle',
        'settle',
        'renew',
        'return',
        'open',
        'order',
        'freeze',
        'write-off',
      ] as const);
      told.push(`${deed} ${index} ${amount}`);
      const check = (got: unknown, expected: unknown) =>
        expect({ seed, told, got }).toEqual({ seed, told, got: expected });
      if (deed === 'take') {
        const limited = chance.next() < 0.5;
        const from = limited ? router : plain[index]!;
        const answer = await from.take(amount, amount * 3n);
        if (answer.status === 200 && !limited) router.slice = from.slice;
        check(answer.body.error?.code ?? 'ok', model.take(index, amount, amount * 3n, limited));
        if (answer.status === 200) check(BigInt(answer.body.account.amount), model.money[index]!.amount);
      } else if (deed === 'settle') {
        const id = chance.pick(ids);
        const isKnown = model.settled.has(id);
        const end = router.ended(amount, { operation_id: id });
        check((await router.settle([end])).body, { settled: [id], refused: [] });
        if (!isKnown) model.settle(index, id, amount, true);
      } else if (deed === 'renew') {
        await router.renew(amount);
        model.renew(index, amount);
      } else if (deed === 'return') {
        const slices = (
          await billing.sql<{ id: string; version: number }>(
            "select id, version from slice where router_id = $1 and state <> 'closed'",
            [router.id],
          )
        ).map((slice) => ({ ...slice, amount: amount.toString() }));
        await router.call('return', { slices });
        model.giveBack(index, amount);
      } else if (deed === 'open') {
        await router.open();
        plain[index]!.epoch = router.epoch;
        model.close(index);
      } else if (deed === 'order') {
        const operation_id = randomUUID();
        const order = {
          operation_id,
          account_id,
          kind: 'control',
          amount: amount.toString(),
          description: '',
        };
        check(
          (await billing.money('reserve', order)).body.error?.code ?? 'ok',
          model.reserve(operation_id, amount),
        );
        if (model.orders.has(operation_id) && chance.next() < 0.5) {
          await billing.money('capture', order);
          model.capture(operation_id);
        }
      } else {
        const slices = await billing.sql<{ id: string }>(
          "update slice set expires_at = now() where router_id = $1 and state <> 'closed' returning id",
          [router.id],
        );
        if (deed === 'write-off') {
          for (const { id } of slices) await billing.admin('slice-write-off', { slice: id });
          model.close(index);
        }
      }
      const [state] = await billing.sql(
        `select posted, held, leased, (select coalesce(sum(lost), 0)::bigint from settlement s where s.account_id = b.account_id) as lost
         from balance b where account_id = $1`,
        [account_id],
      );
      check(state, {
        posted: `${model.posted}`,
        held: `${model.held}`,
        leased: `${model.leased}`,
        lost: `${model.lost}`,
      });
    }
    const [months] = await billing.sql('select used, leased from key_month where key_id = $1', [key]);
    expect({ seed, told, months: months ?? { used: '0', leased: '0' } }).toEqual({
      seed,
      told,
      months: { used: `${model.keyUsed}`, leased: `${model.keyLeased}` },
    });
  }

  it(
    `${sequences} random sequences never differ from a model in memory, and the ledger adds up afterwards`,
    async () => {
      let next = firstSeed;
      const last = firstSeed + sequences;
      await Promise.all(
        [1, 2, 3, 4].map(async () => {
          while (next < last) await sequence(next++);
        }),
      );
      await addsUp();
    },
    60_000 + sequences * 1_000,
  );

  it('takes part in many different outcomes, or the sequences would prove little', async () => {
    const [seen] = await billing.sql(
      `select count(*) filter (where lost > 0) > 0 as lost, count(*) filter (where lost = 0) > 0 as paid,
         (select count(*) > 0 from slice where state = 'closed') as closed,
         (select count(*) > 0 from slice where state <> 'closed' and key_id is not null) as limits,
         (select count(*) > 0 from audit_entry where action = 'slice write-off') as written_off
       from settlement`,
    );
    expect(seen).toEqual({ lost: true, paid: true, closed: true, limits: true, written_off: true });
  });
});
