import { randomUUID } from 'node:crypto';
import { EmbeddedBus } from '@nebo/bus';
import { accountResumed, accountSuspended, balanceEmpty, balanceLow } from '@nebo/contracts';
import { type Billing, nano, startBilling } from '../../test/billing.js';
import { StandingService } from './standing.service.js';

describe('the standing of accounts', () => {
  let billing: Billing;
  let standing: StandingService;
  const bus = new EmbeddedBus();
  const heard: { word: string; account: string | null }[] = [];
  beforeAll(async () => {
    // Grace and keeping as installed; the tests move the clock of the rows. The worker's own rounds stay out of the way.
    billing = await startBilling({ NEBO_STANDING_SECONDS: '3600' }, bus);
    standing = billing.provider(StandingService);
    for (const [word, event] of Object.entries({
      balanceLow,
      balanceEmpty,
      accountSuspended,
      accountResumed,
    }))
      await bus.subscribeAll(event.subject, (delivery) => {
        heard.push({ word, account: delivery.account ?? null });
        return Promise.resolve();
      });
  });
  afterAll(async () => {
    await billing?.close();
    await bus.close();
  });

  const open = (account_id: string, more: object = {}) =>
    billing.money('span-open', {
      operation_id: randomUUID(),
      account_id,
      resource: 'vm:1',
      amount_per_month: '0',
      amount_per_hour: nano(3_600),
      started_at: new Date(Date.now() - 2_000).toISOString(),
      description: 'a machine by the second',
      ...more,
    });
  const stateOf = async (account: string) =>
    (await billing.internal('GET', 'standing')).body.find(
      ({ account_id }: { account_id: string }) => account_id === account,
    )?.state ?? 'in order';
  const shift = (account: string, column: string, by: string) =>
    billing.sql(
      `update account_standing set ${column} = ${column} - interval '${by}' where account_id = $1`,
      [account],
    );
  const words = async (account: string, count: number) => {
    for (let tries = 0; tries < 200; tries += 1) {
      const said = heard.filter((one) => one.account === account).map(({ word }) => word);
      if (said.length >= count) return said;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    return heard.filter((one) => one.account === account).map(({ word }) => word);
  };

  it('empty at once with a span that costs more than there is; suspended after the grace, forfeited after that; a top-up ends it', async () => {
    const { account_id } = await billing.account('1');
    await open(account_id);
    await standing.sweep();
    // Two seconds at a ruble each: nothing is charged before the hour is full, and yet nothing is left.
    expect((await billing.balance(account_id))['balance']).toBe('1.00');
    expect(await stateOf(account_id)).toBe('empty');
    await shift(account_id, 'empty_since', '71 hours');
    await standing.sweep();
    expect(await stateOf(account_id)).toBe('empty');
    await shift(account_id, 'empty_since', '1 hour');
    await Promise.all([standing.sweep(), standing.sweep(), standing.sweep()]);
    expect(await stateOf(account_id)).toBe('suspended');
    await shift(account_id, 'suspended_at', '14 days');
    expect(await stateOf(account_id)).toBe('forfeited');
    expect(
      (await billing.admin('account-topup', { account: account_id, amount: '100000' })).status,
    ).toBeLessThan(300);
    expect(await stateOf(account_id)).toBe('in order');
    expect(await words(account_id, 4)).toEqual([
      'balanceLow',
      'balanceEmpty',
      'accountSuspended',
      'accountResumed',
    ]);
  });

  it('at zero or below with a debt is empty; at exactly zero with nothing charged is in order; low is said once', async () => {
    const { account_id } = await billing.account('100');
    const order = { operation_id: randomUUID(), account_id };
    await billing.money('reserve', {
      ...order,
      kind: 'control',
      amount: nano(100),
      description: 'all of it',
    });
    await billing.money('capture', order);
    expect((await billing.balance(account_id))['balance']).toBe('0.00');
    await standing.sweep();
    await standing.sweep();
    expect(await stateOf(account_id)).toBe('in order');
    const span = randomUUID();
    const started_at = new Date(Date.now() - 60_000).toISOString();
    await open(account_id, { operation_id: span, started_at });
    await billing.money('span-close', {
      account_id,
      operation_id: span,
      ended_at: new Date(Date.now() - 30_000).toISOString(),
    });
    await standing.sweep();
    // Below zero with nothing open any more.
    expect(await stateOf(account_id)).toBe('empty');
    expect(await words(account_id, 2)).toEqual(['balanceLow', 'balanceEmpty']);
  });

  it('what is free of charge makes nobody empty: an account at zero keeps it', async () => {
    const { account_id } = await billing.account();
    const started_at = new Date(Date.now() - 5_000).toISOString();
    await open(account_id, { amount_per_hour: '0', started_at });
    await standing.sweep(account_id);
    expect(await stateOf(account_id)).toBe('in order');
    expect(await billing.sql('select * from standing_suspects(0) x where x = $1', [account_id])).toEqual([]);
    // Beside it something that is charged: nothing is left for that.
    await open(account_id, { started_at });
    await standing.sweep(account_id);
    expect(await stateOf(account_id)).toBe('empty');
  });

  it('many at once are taken in turns, by one replica at a time; those that are in order again too', async () => {
    const accounts = await Promise.all(Array.from({ length: 5 }, () => billing.account('1')));
    for (const { account_id } of accounts) await open(account_id);
    const turn = () =>
      billing.sql<{ account_id: string; change: string | null }>(
        'select account_id, change from standing_sweep(null, 1, 72, 2)',
      );
    const seen = new Set<string>();
    for (let rows = await turn(); rows.length > 0; rows = await turn()) {
      expect(new Set(rows.map(({ account_id }) => account_id)).size).toBeLessThanOrEqual(2);
      for (const { account_id } of rows) seen.add(account_id);
    }
    for (const { account_id } of accounts) {
      expect(seen).toContain(account_id);
      expect(await stateOf(account_id)).toBe('empty');
    }
    const client = await billing.connect();
    await client.query('begin');
    await client.query("select pg_advisory_xact_lock(hashtextextended('standing_sweep', 0))");
    await billing.sql('update balance set posted = 1000000000000000 where account_id = any($1::uuid[])', [
      accounts.map(({ account_id }) => account_id),
    ]);
    expect(await standing.sweep()).toBe(0);
    expect(await stateOf(accounts[0]!.account_id)).toBe('empty');
    // One account by itself waits for nobody.
    await standing.sweep(accounts[0]!.account_id);
    expect(await stateOf(accounts[0]!.account_id)).toBe('in order');
    await client.query('commit');
    client.release();
    await standing.sweep();
    for (const { account_id } of accounts) expect(await stateOf(account_id)).toBe('in order');
  });

  it('what may have changed is estimated from above: every account whose standing is wrong is among it', async () => {
    const { account_id } = await billing.account('10');
    const [before] = await billing.sql('select * from standing_suspects(0) x where x = $1', [account_id]);
    expect(before).toBeUndefined();
    for (const minutes of [1, 59, 61, 200]) {
      const started_at = new Date(Date.now() - minutes * 60_000).toISOString();
      await open(account_id, { started_at, amount_per_hour: nano(1), amount_per_month: nano(1_000) });
      const [row] = await billing.sql<{ available: string; left: string }>(
        `select g.available::text as available, (b.posted - sum((s.amount_per_hour + div(s.amount_per_month, 672) + 1)
           * (ceil(extract(epoch from clock_timestamp() - s.charged_until) / 3600) + 1)))::text as left
         from balance b join span s using (account_id) cross join lateral standing_of(b.account_id) g
         where b.account_id = $1 group by b.posted, g.available`,
        [account_id],
      );
      expect(Number(row!.left)).toBeLessThanOrEqual(Number(row!.available));
    }
    const [after] = await billing.sql('select * from standing_suspects(0) x where x = $1', [account_id]);
    expect(after).toBeDefined();
  });

  it('an account that never had money is told nothing', async () => {
    const { account_id } = await billing.account();
    await standing.sweep();
    expect(await stateOf(account_id)).toBe('in order');
    expect(await words(account_id, 0)).toEqual([]);
  });

  it('401 without a service’s signature', async () => {
    const answer = await billing.nebo.request('identity-billing', {
      path: '/internal/v1/standing',
      as: null,
    });
    expect(answer.status).toBe(401);
  });
});
