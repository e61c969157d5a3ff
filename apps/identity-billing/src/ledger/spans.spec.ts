import { randomUUID } from 'node:crypto';
import { Database } from '@nebo/persistence';
import { type Billing, nano, startBilling } from '../../test/billing.js';
import { Chance } from '../../test/random.js';
import { Recalls } from '../slices/recalls.js';
import { SpansService } from './spans.service.js';

const hour = 3_600_000;

describe('spans', () => {
  let billing: Billing;
  let database: Database;
  let spans: SpansService;
  beforeAll(async () => {
    billing = await startBilling();
    database = new Database({
      url: billing.nebo.runtime.databaseUrl('identity_billing'),
      schema: 'identity_billing',
      max: 16,
    });
    spans = new SpansService(database, billing.provider(Recalls));
  });
  afterAll(async () => {
    await database?.close();
    await billing?.close();
  });

  const open = (account: string, started: string | Date, rubles: number, more: object = {}) =>
    billing.money('span-open', {
      operation_id: randomUUID(),
      account_id: account,
      resource: 'floating_ip:1',
      amount_per_month: nano(rubles),
      started_at: typeof started === 'string' ? started : started.toISOString(),
      description: 'Floating IP',
      ...more,
    });
  const close = (account_id: string, operation_id: string, ended: string | Date) =>
    billing.money('span-close', {
      account_id,
      operation_id,
      ended_at: typeof ended === 'string' ? ended : ended.toISOString(),
    });
  const cost = async (month: string, from: string, to: string) =>
    BigInt(
      (await billing.sql<{ cost: string }>('select span_cost($1, $2, $3) as cost', [month, from, to]))[0]!
        .cost,
    );
  const charges = (operation_id: string) =>
    billing.sql<{ starts_at: Date; ends_at: Date; amount: string }>(
      'select starts_at, ends_at, amount from span_charge where operation_id = $1 order by starts_at',
      [operation_id],
    );

  it('a calendar month in UTC costs exactly its price, in hours or in any pieces, in months of any length', async () => {
    const chance = new Chance(3);
    for (const [from, to] of [
      ['2026-02-01', '2026-03-01'],
      ['2028-02-01', '2028-03-01'],
      ['2026-03-01', '2026-04-01'],
      ['2026-11-01', '2026-12-01'],
    ]) {
      const price = (1_000_000_007n * BigInt(chance.int(1, 900))).toString();
      expect(await cost(price, `${from}T00:00:00Z`, `${to}T00:00:00Z`)).toBe(BigInt(price));
      const [begin, end] = [Date.parse(from!), Date.parse(to!)];
      let sum = 0n;
      for (let at = begin; at < end;) {
        const next = Math.min(end, at + chance.int(1, 80 * hour));
        sum += await cost(price, new Date(at).toISOString(), new Date(next).toISOString());
        at = next;
      }
      expect(sum).toBe(BigInt(price));
    }
    // An hour of February is dearer than one of March: the month is the unit.
    expect(await cost(nano(744), '2026-03-01T00:00:00Z', '2026-03-01T01:00:00Z')).toBe(BigInt(nano(1)));
    expect(await cost(nano(672), '2026-02-28T23:00:00Z', '2026-03-01T00:00:00Z')).toBe(BigInt(nano(1)));
    // Across the month's end each side counts at its own month's length.
    expect(await cost(nano(744 * 672), '2026-02-28T23:30:00Z', '2026-03-01T00:30:00Z')).toBe(
      BigInt(nano(372 + 336)),
    );
    expect(await cost(nano(5), '2026-02-28T23:30:00Z', '2026-02-28T23:30:00Z')).toBe(0n);
  });

  it('a price per hour is charged by the exact time, beside a monthly one, however the hours are cut', async () => {
    const { account_id } = await billing.account('10000');
    const [operation_id, started] = [randomUUID(), '2026-10-31T22:59:58.500Z'];
    const more = { operation_id, amount_per_hour: nano(3_600.000001) };
    expect((await open(account_id, started, 744, more)).status).toBe(200);
    // The same operation with another price is another one.
    expect((await open(account_id, started, 744, { ...more, amount_per_hour: '1' })).status).toBe(409);
    await spans.chargeDue(new Date('2026-11-01T00:30:00Z'));
    const closed = await close(account_id, operation_id, '2026-11-01T01:00:00.250Z');
    const hours = (BigInt(nano(3_600.000001)) * 7_201_750_000n) / 3_600_000_000n;
    const months =
      (await cost(nano(744), started, '2026-11-01T00:00:00Z')) +
      (await cost(nano(744), '2026-11-01T00:00:00Z', '2026-11-01T01:00:00.250Z'));
    expect(BigInt(closed.body.charged)).toBe(hours + months);
    const parts = await charges(operation_id);
    expect(parts.reduce((sum, { amount }) => sum + BigInt(amount), 0n)).toBe(hours + months);
    expect(await close(account_id, operation_id, '2026-11-01T01:00:00.250Z')).toMatchObject({
      body: { charged: closed.body.charged },
    });
    // One that is closed where it began costs nothing, whatever was charged meanwhile.
    const never = randomUUID();
    await open(account_id, started, 0, { ...more, operation_id: never });
    await spans.chargeDue(new Date('2026-11-01T00:30:00Z'));
    expect((await close(account_id, never, started)).body.charged).toBe('0');
  });

  it('the session time zone changes nothing', async () => {
    const [row] = await billing.sql<{ cost: string }>(
      `with zone as (select set_config('timezone', 'Pacific/Auckland', false))
       select span_cost($1, '2026-03-31T23:00:00Z', '2026-04-01T01:00:00Z') as cost from zone`,
      [nano(744 * 720)],
    );
    await billing.sql("select set_config('timezone', 'UTC', false)");
    expect(row!.cost).toBe(nano(720 + 744));
  });

  it('is charged by UTC hours across a month end, and the exact rest at the close', async () => {
    const { account_id, as } = await billing.account('10000');
    const operation_id = randomUUID();
    const started = '2026-09-30T22:30:00.000Z';
    expect(await open(account_id, started, 720, { operation_id })).toMatchObject({
      status: 200,
      body: { charged: '0', ended_at: null },
    });
    await spans.chargeDue(new Date('2026-10-01T01:59:59Z'));
    // The service's own worker, whose clock says November, may have charged more meanwhile; what it is now ends the same.
    const closed = await close(account_id, operation_id, '2026-10-01T02:15:00.000Z');
    const expected =
      (await cost(nano(720), started, '2026-10-01T00:00:00Z')) +
      (await cost(nano(720), '2026-10-01T00:00:00Z', '2026-10-01T02:15:00Z'));
    expect(closed).toMatchObject({
      status: 200,
      body: { charged: expected.toString(), ended_at: '2026-10-01T02:15:00.000Z' },
    });
    const [first, second] = await charges(operation_id);
    expect([first!.starts_at.toISOString(), first!.ends_at.toISOString(), first!.amount]).toEqual([
      started,
      '2026-09-30T23:00:00.000Z',
      nano(0.5),
    ]);
    expect(second!.amount).toBe(nano(1));
    const page = (await billing.api('GET', 'account/ledger', as)).body;
    expect(page.data.at(-2)).toMatchObject({
      kind: 'charge',
      amount: '-0.50',
      source_id: `${operation_id}@2026-09-30T22:30:00.000000Z`,
    });
    const { balance } = await billing.balance(account_id);
    expect(balance).toBe(
      (10_000_000_000_000n - expected)
        .toString()
        .replace(/(\d{9})$/, '.$1')
        .replace(/0+$/, '')
        .replace(/(\.\d)$/, '$10'),
    );
    expect((await close(account_id, operation_id, '2026-10-01T02:15:00Z')).body).toEqual(closed.body);
    expect((await close(account_id, operation_id, '2026-10-01T02:16:00Z')).body.error.code).toBe(
      'already_closed',
    );
  });

  it('16 workers at once charge each hour once', async () => {
    const { account_id } = await billing.account('1000');
    const now = new Date();
    const started = new Date(Math.floor(now.getTime() / hour) * hour - 30 * hour + 1_000);
    const ids = [1, 2, 3, 4, 5].map(() => randomUUID());
    for (const operation_id of ids) await open(account_id, started, 100, { operation_id });
    await Promise.all(Array.from({ length: 16 }, () => spans.chargeDue(now)));
    for (const operation_id of ids) {
      const rows = await charges(operation_id);
      expect(rows).toHaveLength(30);
      for (const [index, row] of rows.entries()) {
        if (index > 0) expect(row.starts_at).toEqual(rows[index - 1]!.ends_at);
      }
    }
    const sum = await cost(
      nano(100),
      started.toISOString(),
      new Date(Math.floor(now.getTime() / hour) * hour).toISOString(),
    );
    const [row] = await billing.sql('select posted from balance where account_id = $1', [account_id]);
    expect(row).toEqual({ posted: (BigInt(nano(1000)) - 5n * sum).toString() });
    await spans.chargeDue(now);
    expect((await billing.sql('select posted from balance where account_id = $1', [account_id]))[0]).toEqual(
      row,
    );
  });

  it('workers and closes at once: each span costs its exact time', async () => {
    const { account_id } = await billing.account('1000', '30');
    const ended = new Date(Math.floor(Date.now() / hour) * hour - hour + 60_000);
    const started = new Date(ended.getTime() - 20 * hour - 5_000);
    const ids = Array.from({ length: 12 }, () => randomUUID());
    for (const operation_id of ids) await open(account_id, started, 300, { operation_id });
    await Promise.all([
      ...ids.map((operation_id) => close(account_id, operation_id, ended)),
      ...Array.from({ length: 6 }, () => spans.chargeDue()),
    ]);
    const each = await cost(nano(300), started.toISOString(), ended.toISOString());
    const [row] = await billing.sql<Record<string, string>>(
      'select posted, credits from balance where account_id = $1',
      [account_id],
    );
    expect(BigInt(row!['posted']!) + BigInt(row!['credits']!)).toBe(BigInt(nano(1030)) - 12n * each);
    expect((await billing.internal('POST', 'money/reconcile')).body).toMatchObject({ ok: true });
  });

  it('an end reported late pays back what was charged beyond it, to money and credits as they were taken', async () => {
    const { account_id } = await billing.account('100', '1');
    const started = new Date(Math.floor(Date.now() / hour) * hour - 20 * hour);
    const operation_id = randomUUID();
    await open(account_id, started, 2232, { operation_id });
    await spans.chargeDue();
    const ended = new Date(started.getTime() + 10 * 60_000);
    const { charged } = (await close(account_id, operation_id, ended)).body;
    expect(BigInt(charged)).toBe(await cost(nano(2232), started.toISOString(), ended.toISOString()));
    const [row] = await billing.sql<Record<string, string>>(
      'select posted, credits from balance where account_id = $1',
      [account_id],
    );
    expect(row!['posted']).toBe(nano(100));
    expect(BigInt(row!['credits']!)).toBe(BigInt(nano(1)) - BigInt(charged));
    expect((await billing.internal('POST', 'money/reconcile')).body).toMatchObject({ ok: true });
  });

  it('may take the balance below zero (debt); new orders are then 402, and a top-up is needed', async () => {
    const { account_id } = await billing.account('1');
    const started = new Date(Date.now() - 30 * hour);
    const operation_id = randomUUID();
    await open(account_id, started, 744 * 2, { operation_id });
    await spans.chargeDue();
    const { balance, available } = await billing.balance(account_id);
    expect(Number(balance)).toBeLessThan(-50);
    expect(available).toBe(balance);
    const reserve = { operation_id: 'x', account_id, kind: 'control', amount: nano(0.01), description: '' };
    expect((await billing.money('reserve', reserve)).body.error.code).toBe('insufficient_balance');
  });

  it('402 when less is available than the order needs; a repeat opens no second span; 404, 409, 422', async () => {
    const { account_id } = await billing.account('100');
    const now = new Date(Date.now() - 1_000);
    const operation_id = randomUUID();
    const answer = await open(account_id, now, 180, { operation_id, needs_available: nano(180) });
    expect(answer).toMatchObject({ status: 402, body: { error: { code: 'insufficient_balance' } } });
    expect(answer.body.error.message).toContain('100.00 ₽ available, 180.00 ₽ needed');
    await billing.admin('account-topup', { account: account_id, amount: '80' });
    const opened = await open(account_id, now, 180, { operation_id, needs_available: nano(180) });
    expect(opened.status).toBe(200);
    const doubles = await Promise.all(
      Array.from({ length: 10 }, () => open(account_id, now, 180, { operation_id })),
    );
    for (const double of doubles) expect(double.body).toEqual(opened.body);
    expect((await open(account_id, now, 181, { operation_id })).body.error.code).toBe('operation_reused');
    expect((await open(randomUUID(), now, 1)).status).toBe(404);
    expect((await close(account_id, 'none', now)).status).toBe(404);
    expect((await close(account_id, operation_id, new Date(now.getTime() - hour))).status).toBe(422);
    expect((await close(account_id, operation_id, new Date(Date.now() + hour))).status).toBe(422);
    for (const started of ['', 'today', '2026-01-01T00:00:00', '2026-13-01T00:00:00Z']) {
      expect((await open(account_id, started, 1)).status).toBe(422);
    }
  });
});
