import { randomUUID } from 'node:crypto';
import { parseRubles, type V1Usage } from '@nebo/contracts';
import { keyOf } from '@nebo/service-kit/testing';
import { type Billing, nano, startBilling } from '../../test/billing.js';
import { TestRouter } from '../../test/routers.js';
import { usageRange } from './usage-range.js';

describe('usage of models', () => {
  let billing: Billing;
  let account: string;
  let as: ReturnType<typeof keyOf>;
  const keys: string[] = [];
  beforeAll(async () => {
    billing = await startBilling();
    const made = await billing.account('1000');
    ({ account_id: account, as } = made);
    const stranger = await billing.account('1000');
    for (const owner of [account, account, stranger.account_id]) {
      const { id } = (await billing.admin('inference-key-create', { account: owner })).body;
      keys.push(id);
      const router = await new TestRouter(billing, owner, id).open();
      await router.take(nano(100));
      const ended = (model: string, amount: string, at: string) =>
        router.ended(amount, {
          at,
          usage: {
            kind: 'inference',
            model,
            input_tokens: 100,
            cached_tokens: 30,
            output_tokens: 20,
            reasoning_tokens: 7,
          },
        });
      const settlements = [
        ended('glm-5.3', nano(1.5), '2026-03-01T10:00:00Z'),
        ended('glm-5.3', '1', '2026-03-01T22:30:00.000Z'),
        ended('kimi-k3', nano(2), '2026-03-01T20:59:59.999Z'),
        ended('kimi-k3', nano(0.25), '2026-03-02T01:00:00+03:00'),
        ended('=model,"x"', nano(4), '2026-03-05T00:00:00Z'),
      ];
      expect((await router.settle(settlements)).body.settled).toHaveLength(5);
    }
    // The other way that a request can be charged: reserved and captured; and something that is no request.
    for (const [kind, usage] of [
      ['inference', { kind: 'inference', model: 'glm-5.3', input_tokens: 5 }],
      ['control', { kind: 'compute' }],
    ] as const) {
      const call = { operation_id: randomUUID(), account_id: account };
      const more = kind === 'inference' ? { key_id: keys[0] } : {};
      await billing.money('reserve', { ...call, kind, amount: nano(3), description: '', ...more });
      await billing.money('capture', { ...call, usage });
    }
    await billing.admin('inference-key-revoke', { key: keys[1] });
  });
  afterAll(() => billing?.close());

  const get = (query: string, who = as) => billing.api('GET', `usage?${query}`, who);
  const march = 'from=2026-03-01&to=2026-03-31';
  const short = ({ rows }: V1Usage) =>
    rows.map(({ day, model, key_id, requests, amount }) => [day, model, key_id, requests, amount]);

  it('200 by day, in the days of the zone', async () => {
    const { status, body } = await get(march);
    expect(status).toBe(200);
    expect(body).toMatchObject({ from: '2026-03-01', to: '2026-03-31', tz: 'UTC', by: ['day'] });
    expect(short(body)).toEqual([
      ['2026-03-01', null, null, 8, '7.500000002'],
      ['2026-03-05', null, null, 2, '8.00'],
    ]);
    expect(body.rows[0]).toMatchObject({
      input_tokens: 800,
      cached_tokens: 240,
      output_tokens: 160,
      reasoning_tokens: 56,
    });
    expect(Math.abs(Date.parse(body.as_of) - Date.now())).toBeLessThan(600_000);
    const moscow = (await get(`${march}&tz=Europe/Moscow`)).body;
    expect(short(moscow).map(([day, , , requests, amount]) => [day, requests, amount])).toEqual([
      ['2026-03-01', 4, '7.00'],
      ['2026-03-02', 4, '0.500000002'],
      ['2026-03-05', 2, '8.00'],
    ]);
    expect(moscow.totals).toEqual(body.totals);
    expect((await get('from=2026-03-02&to=2026-03-02&tz=Europe/Moscow')).body.totals).toMatchObject({
      requests: 4,
      amount: '0.500000002',
    });
  });

  it('200 by model and key, filtered; of a revoked key too', async () => {
    const { body } = await get(`${march}&by=model,key`);
    expect(body.by).toEqual(['model', 'key']);
    expect(short(body).sort()).toEqual(
      [keys[0], keys[1]]
        .flatMap((key) => [
          [null, '=model,"x"', key, 1, '4.00'],
          [null, 'glm-5.3', key, 2, '1.500000001'],
          [null, 'kimi-k3', key, 2, '2.25'],
        ])
        .sort(),
    );
    const one = (await get(`${march}&by=key,key&key_id=${keys[1]!.toUpperCase()}&model=kimi-k3`)).body;
    expect(short(one)).toEqual([[null, null, keys[1], 2, '2.25']]);
    expect(one.totals.amount).toBe('2.25');
    // Another account's key is nobody's here.
    expect((await get(`${march}&key_id=${keys[2]}`)).body).toMatchObject({
      rows: [],
      totals: { requests: 0, input_tokens: 0, amount: '0.00' },
    });
  });

  it('the totals are what the ledger charged', async () => {
    const then = (await get(`${march}&by=day,model,key`)).body.totals;
    // Left out: the last thirty days.
    const now = (await get('by=key')).body.totals;
    expect([then.requests, now.requests, now.amount]).toEqual([10, 1, '3.00']);
    const [{ amount } = { amount: '' }] = await billing.sql<{ amount: string }>(
      `select sum(l.amount) as amount from ledger_line l join transfer t on t.id = l.transfer_id
       where l.account_id = $1 and l.book = 'revenue' and (t.kind = 'charge' or t.source_id in (
         select operation_id from reservation r where r.account_id = $1 and r.kind = 'inference'))`,
      [account],
    );
    expect(parseRubles(then.amount) + parseRubles(now.amount)).toBe(BigInt(amount));
  });

  it.each(['csv', 'ndjson'])('exports every request as %s, streamed and over pages', async (format) => {
    const file = await billing.api('GET', `usage/export?${march}&format=${format}&tz=UTC`, as);
    expect(file.status).toBe(200);
    expect(file.headers['content-disposition']).toBe(`attachment; filename="usage.${format}"`);
    expect(file.headers['content-type']).toBe(
      format === 'csv' ? 'text/csv; charset=utf-8' : 'application/x-ndjson',
    );
    const lines = file.text.trimEnd().split(format === 'csv' ? '\r\n' : '\n');
    if (format === 'csv') {
      expect(lines[0]).toBe(
        'at,operation_id,key_id,model,input_tokens,cached_tokens,output_tokens,reasoning_tokens,amount',
      );
      expect(lines).toHaveLength(11);
      expect(lines[1]).toMatch(
        /^2026-03-01T10:00:00.000Z,[0-9a-f-]{36},[0-9a-f-]{36},glm-5.3,100,30,20,7,1.50$/,
      );
      expect(lines.at(-1)).toContain(`,"'=model,""x""",100,`);
    } else {
      const records = lines.map((line) => JSON.parse(line) as { at: string; amount: string });
      expect(records).toHaveLength(10);
      expect(records.map(({ at }) => at)).toEqual([...records.map(({ at }) => at)].sort());
      expect(records[0]).toMatchObject({ model: 'glm-5.3', input_tokens: 100, amount: '1.50' });
    }
  });

  it('more than one page comes whole and in order', async () => {
    const many = await billing.account('1000');
    await billing.sql(
      `insert into usage_record (account_id, operation_id, kind, model, amount, facts, created_at)
       select $1, 'op-' || n, 'inference', 'm', n, '{"input_tokens": 1}', '2026-03-01T00:00:00Z'::timestamptz + n / 7 * interval '1 microsecond'
       from generate_series(1, 2500) as n`,
      [many.account_id],
    );
    const { text } = await billing.api('GET', `usage/export?${march}&format=ndjson`, many.as);
    const ids = text
      .trimEnd()
      .split('\n')
      .map((line) => (JSON.parse(line) as { operation_id: string }).operation_id);
    expect(ids).toEqual(Array.from({ length: 2_500 }, (_, index) => `op-${index + 1}`));
    expect((await get(march, many.as)).body.totals).toMatchObject({ requests: 2_500, amount: '0.00312625' });
    // A page's rows have an end.
    await billing.sql(
      `insert into usage_record (account_id, operation_id, kind, model, amount, facts, created_at)
       select $1, 'model-' || n, 'inference', 'm' || n, 1, '{}', '2026-03-02T00:00:00Z' from generate_series(1, 10000) as n`,
      [many.account_id],
    );
    expect(await get(`${march}&by=model`, many.as)).toMatchObject({
      status: 422,
      body: { detail: [{ loc: ['query', 'by'] }] },
    });
  });

  it.each([
    ['from=2026-02-30', 'from'],
    ['from=yesterday', 'from'],
    ['from=2026-03-02&to=2026-03-01', 'from'],
    ['from=2024-01-01&to=2026-03-01', 'from'],
    ['to=1999-12-31', 'to'],
    ['tz=Mars/Olympus', 'tz'],
    ['tz=%2B03:00', 'tz'],
    ['by=week', 'by'],
    ['by=', 'by'],
    ['key_id=x', 'key_id'],
    ['model=', 'model'],
  ])('422 names the field of %s', async (query, field) => {
    const paths = field === 'by' ? ['usage'] : ['usage', 'usage/export'];
    for (const path of paths)
      expect(await billing.api('GET', `${path}?${query}`, as)).toMatchObject({
        status: 422,
        body: { error: { code: 'validation_error' }, detail: [{ loc: ['query', field] }] },
      });
  });

  it('422 for another format; 401 without a key; 503 while the balance cannot be read', async () => {
    expect(await billing.api('GET', 'usage/export?format=xlsx', as)).toMatchObject({
      status: 422,
      body: { detail: [{ loc: ['query', 'format'] }] },
    });
    for (const path of ['usage', 'usage/export'])
      expect((await billing.nebo.request('identity-billing', { path: `/v1/${path}`, as: null })).status).toBe(
        401,
      );
    await billing.sql('alter table usage_record rename to usage_record_away');
    const answers = [await get(march), await billing.api('GET', 'usage/export', as)];
    await billing.sql('alter table usage_record_away rename to usage_record');
    for (const answer of answers)
      expect(answer).toMatchObject({ status: 503, body: { error: { code: 'billing_unavailable' } } });
  });

  it('days that were left out end today, in the zone', () => {
    const now = new Date('2026-03-01T22:00:00Z');
    expect(usageRange({ tz: 'UTC' }, now)).toEqual({ from: '2026-01-31', to: '2026-03-01', tz: 'UTC' });
    expect(usageRange({ tz: 'Asia/Tokyo' }, now)).toMatchObject({ from: '2026-02-01', to: '2026-03-02' });
    expect(usageRange({ tz: 'UTC', to: '2024-02-29' }, now)).toMatchObject({ from: '2024-01-31' });
  });
});
