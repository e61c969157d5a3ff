import { randomUUID } from 'node:crypto';
import type { V1FloatingIP } from '@nebo/contracts';
import { keyOf } from '@nebo/service-kit/testing';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, eventually, otherRegion, region } from '../../test/harness.js';

let bench: Bench;
beforeAll(async () => {
  bench = await Bench.start({ NEBO_FLOATING_RANGE: '198.51.100.0/28' });
});
beforeEach(() => {
  bench.billing.away = false;
  bench.billing.available = 10n ** 15n;
});
afterEach(async () => {
  // The pool is small: what a test ordered goes back.
  const held = await bench.sql<{ id: string; account_id: string }>('select id, account_id from floating_ip');
  for (const { id, account_id } of held)
    await bench.api('DELETE', `floating-ips/${id}`, undefined, keyOf(account_id));
});
afterAll(async () => {
  await bench?.close();
  await (await sharedPostgres()).stop();
});

const order = (more: Record<string, unknown> = {}, as = bench.key, headers: Record<string, string> = {}) =>
  bench.api('POST', 'floating-ips', { cluster_id: region, ...more }, as, headers);
const spanOf = (id: string) =>
  eventually('its span is open', async () => bench.billing.spanOf(`floating_ip:${id}`));

describe('POST /floating-ips', () => {
  it('201 with every field of the record; charged by a span of its monthly price, the hold is given back', async () => {
    const answer = await order({ name: 'я'.repeat(255) });
    expect(answer).toMatchObject({ status: 201 });
    expect(answer.body).toEqual({
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      address: expect.stringMatching(/^198\.51\.100\.(\d|1[0-5])$/),
      cluster_id: region,
      status: 'available',
      name: 'я'.repeat(255),
      internal_address: null,
      target_kind: 'interface',
      vm_id: null,
      vm_interface_id: null,
      vm_project_id: null,
      vpc_id: null,
      auto_release: false,
      last_error: null,
      monthly_price: '180.00',
      created_at: expect.stringMatching(/Z$/),
    });
    expect((await bench.api('GET', `floating-ips/${answer.body.id}`)).body).toEqual(answer.body);
    expect((await spanOf(answer.body.id)).open).toMatchObject({
      account_id: bench.account,
      amount_per_month: '180000000000',
      prices: [{ id: 'floating_ip.month', version: 3 }],
    });
    await eventually('no hold is left', async () => bench.billing.held.size === 0);
  });

  it('402 below a month’s price, 503 when billing is away, 404 for an unknown region, 422 for labels: nothing is made', async () => {
    const account = keyOf(randomUUID());
    const free = async () => (await bench.sql('select 1 from pool_address where held_by is null')).length;
    const before = await free();
    bench.billing.available = 179_999_999_999n;
    expect(await order({}, account)).toMatchObject({
      status: 402,
      body: { error: { code: 'insufficient_balance' } },
    });
    bench.billing.away = true;
    expect(await order({}, account)).toMatchObject({
      status: 503,
      body: { error: { code: 'billing_unavailable' } },
    });
    bench.billing.away = false;
    expect((await order({ cluster_id: randomUUID() }, account)).status).toBe(404);
    for (const more of [{ cluster_id: 'x' }, { name: '' }, { name: ' ' }, { name: 'x'.repeat(256) }])
      expect((await order(more, account)).status).toBe(422);
    expect((await bench.api('GET', 'floating-ips', undefined, account)).body.total).toBe(0);
    expect(await free()).toBe(before);
  });

  it('two orders on the money of one: one is made', async () => {
    await eventually('no other hold stands', async () => bench.billing.held.size === 0);
    bench.billing.available = 200_000_000_000n;
    // The hold of the order stands until its span is open.
    bench.billing.noSpans = true;
    const account = keyOf(randomUUID());
    const answers = await Promise.all([order({}, account), order({}, account)]);
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 402]);
    bench.billing.noSpans = false;
    await eventually('the hold is given back', async () => bench.billing.held.size === 0, 20_000);
    const { data } = (await bench.api('GET', 'floating-ips', undefined, account)).body;
    expect(data).toHaveLength(1);
    expect(bench.billing.spanOf(`floating_ip:${data[0].id}`)).toMatchObject({ closed: null });
  });

  it('a repeat under one Idempotency-Key answers the first, although the money is gone', async () => {
    const headers = { 'idempotency-key': randomUUID() };
    const first = await order({}, bench.key, headers);
    bench.billing.available = 0n;
    expect(await order({}, bench.key, headers)).toMatchObject({ status: 201, text: first.text });
    expect((await bench.api('GET', 'floating-ips')).body.total).toBe(1);
  });

  it('16 at once get an address each, the 17th 503 no_capacity; another region has none', async () => {
    const answers = await Promise.all(Array.from({ length: 17 }, () => order()));
    expect(answers.map(({ status }) => status).sort()).toEqual([...Array<number>(16).fill(201), 503]);
    const addresses = answers.filter(({ status }) => status === 201).map(({ body }) => body.address);
    expect(new Set(addresses).size).toBe(16);
    expect(answers.find(({ status }) => status === 503)!.body).toMatchObject({
      error: { code: 'no_capacity' },
    });
    expect((await order({ cluster_id: otherRegion })).status).toBe(503);
    // Neither those that were made nor those that were not hold money on.
    await eventually('no hold is left', async () => bench.billing.held.size === 0);
  });
});

describe('one floating IP', () => {
  it('a label is set, kept by nobody’s reading, and cleared by null and by an empty body', async () => {
    const { id } = (await order({ name: 'front' })).body as V1FloatingIP;
    const label = async (body: object) => (await bench.api('PATCH', `floating-ips/${id}`, body)).body.name;
    expect(await label({ name: 'web' })).toBe('web');
    expect(await label({ name: null })).toBeNull();
    expect(await label({ name: 'again' })).toBe('again');
    expect(await label({})).toBeNull();
    expect((await bench.api('GET', `floating-ips/${id}`)).body.name).toBeNull();
    expect((await bench.api('PATCH', `floating-ips/${id}`, { name: '' })).status).toBe(422);
  });

  it('release: 204, then 404; the span ends, and the address is given to somebody else last', async () => {
    const { id, address } = (await order()).body as V1FloatingIP;
    const { open } = await spanOf(id);
    expect((await bench.api('DELETE', `floating-ips/${id}`)).status).toBe(204);
    expect((await bench.api('DELETE', `floating-ips/${id}`)).status).toBe(404);
    expect((await bench.api('GET', `floating-ips/${id}`)).status).toBe(404);
    expect((await bench.internal('GET', `owners/floating_ip/${id}`)).status).toBe(404);
    const span = bench.billing.spanOf(`floating_ip:${id}`)!;
    await eventually('the span is closed', async () => span.closed !== null);
    expect(Date.parse(span.closed!)).toBeGreaterThanOrEqual(Date.parse(open['started_at']!));
    await eventually('its row is gone', async () => {
      return (await bench.sql('select 1 from span where fip_id = $1', [id])).length === 0;
    });
    expect((await order()).body.address).not.toBe(address);
  });

  it('a clock that was set back ends no span before it began: billing would refuse that, and charge for ever', async () => {
    const { id } = (await order()).body as V1FloatingIP;
    await spanOf(id);
    const [row] = await bench.sql<{ started_at: Date }>(
      "update span set started_at = now() + interval '10 minutes' where fip_id = $1 returning started_at",
      [id],
    );
    expect((await bench.api('DELETE', `floating-ips/${id}`)).status).toBe(204);
    const span = bench.billing.spanOf(`floating_ip:${id}`)!;
    await eventually('the span is closed', async () => span.closed !== null);
    expect(span.closed).toBe(row!.started_at.toISOString());
  });

  it('released while billing is away: the span is opened and closed once it is back', async () => {
    const { id } = (await order()).body as V1FloatingIP;
    await spanOf(id);
    bench.billing.away = true;
    expect((await bench.api('DELETE', `floating-ips/${id}`)).status).toBe(204);
    bench.billing.away = false;
    const span = bench.billing.spanOf(`floating_ip:${id}`)!;
    await eventually('the span is closed', async () => span.closed !== null, 30_000);
  });

  it('404 with one body for absent, malformed and foreign ids; the owner is told', async () => {
    const { id } = (await order()).body as V1FloatingIP;
    const answers = [];
    for (const method of ['GET', 'PATCH', 'DELETE']) {
      const body = method === 'PATCH' ? { name: 'x' } : undefined;
      answers.push(await bench.api(method, `floating-ips/${id}`, body, bench.stranger));
      answers.push(await bench.api(method, `floating-ips/${randomUUID()}`, body));
      answers.push(await bench.api(method, 'floating-ips/no-id', body));
    }
    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
    expect(answers[0]!.status).toBe(404);
    expect((await bench.internal('GET', `owners/floating_ip/${id}`)).body).toEqual({
      account_id: bench.account,
      project_id: null,
      parents: [],
    });
  });

  it('the list pages, filters by region and shows what the policy allows', async () => {
    const made = [(await order()).body, (await order()).body] as V1FloatingIP[];
    const list = async (query = '', as = bench.key) =>
      (await bench.api('GET', `floating-ips${query}`, undefined, as)).body;
    expect(await list()).toMatchObject({ data: made, count: 2, total: 2 });
    expect(await list('?limit=1&offset=1')).toMatchObject({ data: [made[1]], count: 1, total: 2 });
    expect((await list(`?cluster_id=${otherRegion}`)).total).toBe(0);
    const resources = [`floating_ip:${made[0]!.id}`];
    const narrow = { ...bench.key, policy: [{ effect: 'allow' as const, actions: ['*'], resources }] };
    expect((await list('', narrow)).data).toEqual([made[0]]);
    expect((await list('', bench.stranger)).total).toBe(0);
  });
});
