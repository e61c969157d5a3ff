import { randomUUID } from 'node:crypto';
import { keyOf } from '@nebo/service-kit/testing';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, freshName, nameservers } from '../../test/harness.js';

let bench: Bench;
beforeAll(async () => {
  bench = await Bench.start();
});
afterAll(async () => {
  await bench?.close();
  await (await sharedPostgres()).stop();
});

const create = (more: Record<string, unknown>, as = bench.key, headers: Record<string, string> = {}) =>
  bench.api('POST', '', { name: freshName(), ...more }, as, headers);
const zoned = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/;

describe('POST /dns/zones', () => {
  it('201 with every field of the record, pending, with the name servers to delegate to', async () => {
    const name = freshName();
    const answer = await create({ name });
    expect(answer).toMatchObject({ status: 201 });
    expect(answer.body).toEqual({
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      name,
      status: 'pending',
      status_reason: expect.stringContaining('not been checked'),
      created_at: expect.stringMatching(zoned),
      updated_at: expect.stringMatching(zoned),
      default_ttl: null,
      dnssec_enabled: false,
      nameservers,
    });
    expect((await bench.api('GET', `/${answer.body.id.toUpperCase()}`)).body).toEqual(answer.body);
  });

  it.each([
    ['example-1.com', 'example-1.com.'],
    ['EXAMPLE-2.com.', 'example-2.com.'],
    ['a.b.example-3.com', 'a.b.example-3.com.'],
    ['пример.рф', 'xn--e1afmkfd.xn--p1ai.'],
    ['2.0.192.in-addr.arpa', '2.0.192.in-addr.arpa.'],
  ])('%s is %s', async (given, name) => {
    expect((await create({ name: given }, keyOf(randomUUID()))).body).toMatchObject({ name });
  });

  it.each([
    ['one label', { name: 'com' }],
    ['nothing', { name: '' }],
    ['a dot', { name: '.' }],
    ['no name', { name: undefined }],
    ['an empty label', { name: 'a..com' }],
    ['a wildcard', { name: '*.example.com' }],
    ['an underscore', { name: '_x.example.com' }],
    ['a hyphen at the edge', { name: '-a.example.com' }],
    ['a space', { name: 'a b.com' }],
    ['an address', { name: '192.0.2.1' }],
    ['a long label', { name: `${'a'.repeat(64)}.com` }],
    ['a long name', { name: `${'a.'.repeat(130)}com` }],
    ['a negative TTL', { default_ttl: -1 }],
    ['a long TTL', { default_ttl: 604_801 }],
    ['a TTL in text', { default_ttl: '300' }],
  ])('422 for %s', async (_what, more) => {
    expect(await create(more)).toMatchObject({
      status: 422,
      body: { error: { code: 'validation_error' }, detail: [{ loc: ['body', expect.any(String)] }] },
    });
  });

  it('DNSSEC is not supported, and says so', async () => {
    const refused = { status: 422, body: { error: { code: 'not_supported' } } };
    expect(await create({ dnssec_enabled: true })).toMatchObject(refused);
    const { body } = await create({ dnssec_enabled: false });
    expect(await bench.api('PATCH', `/${body.id}`, { dnssec_enabled: true })).toMatchObject(refused);
    expect((await bench.api('PATCH', `/${body.id}`, { dnssec_enabled: false })).status).toBe(200);
  });

  it('409 for a zone that the account has; another account may have it too', async () => {
    const { name } = await bench.zone();
    expect(await create({ name: name.toUpperCase() })).toMatchObject({
      status: 409,
      body: { error: { code: 'zone_exists' } },
    });
    expect((await create({ name }, bench.stranger)).body).toMatchObject({ name, status: 'pending' });
  });

  it('409 where the platform itself gives out names', async () => {
    for (const name of ['apps.localhost', 'mine.apps.localhost.'])
      expect(await create({ name })).toMatchObject({
        status: 409,
        body: { error: { code: 'zone_reserved' } },
      });
  });

  it('of many that want one name at once, one gets it', async () => {
    const name = freshName();
    const answers = await Promise.all(Array.from({ length: 8 }, () => create({ name })));
    expect(answers.map(({ status }) => status).sort()).toEqual([201, ...Array<number>(7).fill(409)]);
  });

  it('409 beyond the limit of zones', async () => {
    const account = keyOf(randomUUID());
    await bench.sql(
      `insert into zone (id, account_id, name, serial) select gen_random_uuid(), $1::uuid, 'n' || n || '.limit.example.', 1
       from generate_series(1, 1000) n`,
      [account.account_id],
    );
    expect(await create({}, account)).toMatchObject({ status: 409, body: { error: { code: 'dns_limit' } } });
  });

  it('a repeat under one Idempotency-Key answers the first one; another content is 422', async () => {
    const headers = { 'idempotency-key': randomUUID() };
    const name = freshName();
    const first = await create({ name }, bench.key, headers);
    expect(await create({ name }, bench.key, headers)).toMatchObject({ status: 201, text: first.text });
    expect(await create({}, bench.key, headers)).toMatchObject({
      status: 422,
      body: { error: { code: 'idempotency_key_reused' } },
    });
  });
});

describe('GET /dns/zones', () => {
  it('filters by status and by a part of the name, pages in a stable order, shows what the policy allows', async () => {
    const account = keyOf(randomUUID());
    const zones = [];
    for (const name of ['alpha.example.', 'beta.example.', 'gamma.test.', 'xn--e1afmkfd.xn--p1ai.'])
      zones.push(await bench.zone({ name }, account));
    const names = async (query: string, as = account) =>
      (await bench.api('GET', `?${query}`, undefined, as)).body.data.map(
        ({ name }: { name: string }) => name,
      );
    expect(await names('')).toEqual(zones.map(({ name }) => name));
    expect(await names('search=A.EX')).toEqual(['alpha.example.', 'beta.example.']);
    expect(await names('search=test.')).toEqual(['gamma.test.']);
    expect(await names(`search=${encodeURIComponent('пример.рф')}`)).toEqual(['xn--e1afmkfd.xn--p1ai.']);
    expect(await names('search=100%25')).toEqual([]);
    expect(await names('status_filter=pending')).toHaveLength(4);
    expect(await names('status_filter=active')).toEqual([]);
    expect(await names('status_filter=banana')).toEqual([]);
    expect(await names('limit=2&offset=2')).toEqual(zones.slice(2).map(({ name }) => name));
    expect((await bench.api('GET', '?limit=2&offset=4', undefined, account)).body).toEqual({
      data: [],
      limit: 2,
      offset: 4,
      count: 0,
      total: 4,
    });
    const one = {
      effect: 'allow' as const,
      actions: ['dns_zone:read'],
      resources: [`dns_zone:${zones[1]!.id}`],
    };
    expect(await names('', { ...account, policy: [one] })).toEqual(['beta.example.']);
    expect(
      await names('', {
        ...account,
        policy: [
          { ...one, resources: ['*'] },
          { ...one, effect: 'deny' },
        ],
      }),
    ).toEqual(['alpha.example.', 'gamma.test.', 'xn--e1afmkfd.xn--p1ai.']);
    expect(await names('', { ...account, policy: [{ ...one, actions: ['vm:read'] }] })).toEqual([]);
    expect((await bench.api('GET', '?limit=201', undefined, account)).status).toBe(422);
  });
});

describe('one zone', () => {
  it('PATCH changes the default TTL and grows the serial; nothing else changes anything', async () => {
    const zone = await bench.zone({ default_ttl: 60 });
    const before = await bench.serial(zone);
    expect((await bench.api('PATCH', `/${zone.id}`, {})).body).toEqual(zone);
    expect((await bench.api('PATCH', `/${zone.id}`, { default_ttl: 60 })).body).toEqual(zone);
    expect(await bench.serial(zone)).toBe(before);
    const changed = await bench.api('PATCH', `/${zone.id}`, { default_ttl: 600, name: 'other.example.' });
    expect(changed.body).toMatchObject({ default_ttl: 600, name: zone.name });
    expect(changed.body.updated_at > zone.updated_at).toBe(true);
    expect(await bench.serial(zone)).toBe(before + 1n);
    expect((await bench.api('PATCH', `/${zone.id}`, { default_ttl: null })).body.default_ttl).toBeNull();
    expect((await bench.api('PATCH', `/${zone.id}`, { default_ttl: 1.5 })).status).toBe(422);
  });

  it('DELETE takes its records along; the name is free and the serial goes on', async () => {
    const zone = await bench.zone();
    await bench.record(zone, { name: 'www', type: 'A', content: '192.0.2.1' });
    const before = await bench.serial(zone);
    expect(await bench.api('DELETE', `/${zone.id}`, undefined)).toMatchObject({ status: 204, text: '' });
    for (const method of ['GET', 'DELETE']) expect((await bench.api(method, `/${zone.id}`)).status).toBe(404);
    const again = await bench.zone({ name: zone.name });
    expect((await bench.api('GET', `/${again.id}/dns_records`)).body.total).toBe(0);
    expect(await bench.serial(again)).toBeGreaterThanOrEqual(before - 1n);
  });

  it('every operation is 404 for strangers and for what is no id', async () => {
    const zone = await bench.zone();
    for (const path of [zone.id, randomUUID(), 'banana'])
      for (const [method, body] of [
        ['GET', undefined],
        ['PATCH', {}],
        ['DELETE', undefined],
      ] as const)
        expect(await bench.api(method, `/${path}`, body, bench.stranger)).toMatchObject({
          status: 404,
          body: { error: { code: 'not_found' } },
        });
    expect((await bench.api('POST', `/${zone.id}/verify`, undefined, bench.stranger)).status).toBe(404);
    expect((await bench.api('GET', `/${zone.id}`, undefined, null)).status).toBe(401);
    expect((await bench.api('GET', `/${zone.id}`)).status).toBe(200);
  });

  it('is known to the gateway by its owner', async () => {
    const zone = await bench.zone();
    expect((await bench.internal('GET', `owners/dns_zone/${zone.id}`)).body).toEqual({
      account_id: bench.account,
      project_id: null,
      parents: [],
    });
    expect((await bench.internal('GET', `owners/dns_zone/${randomUUID()}`)).status).toBe(404);
  });

  it('every act is said for the audit log, in its transaction', async () => {
    const account = keyOf(randomUUID());
    const zone = await bench.zone({}, account);
    await create({ name: zone.name }, account);
    await bench.api('PATCH', `/${zone.id}`, { default_ttl: 1 }, account);
    await bench.api('DELETE', `/${zone.id}`, undefined, account);
    const lines = await bench.sql<{ envelope: { data: Record<string, unknown> } }>(
      "select envelope from outbox where envelope->>'account' = $1 order by seq",
      [account.account_id],
    );
    expect(lines.map(({ envelope }) => envelope.data)).toMatchObject([
      { action: 'dns_create_zone', resource: `dns_zone:${zone.id}`, actor: `key:${account.key_id}` },
      { action: 'dns_update_zone', details: { default_ttl: 1 } },
      { action: 'dns_delete_zone', details: { name: zone.name } },
      { zone_id: zone.id, name: zone.name, status: 'deleted' },
    ]);
  });
});
