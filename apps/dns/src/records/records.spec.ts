import { randomUUID } from 'node:crypto';
import type { V1Zone } from '@nebo/contracts';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench } from '../../test/harness.js';

let bench: Bench;
let zone: V1Zone;
beforeAll(async () => {
  bench = await Bench.start();
  zone = await bench.zone({ default_ttl: 900 });
});
afterAll(async () => {
  await bench?.close();
  await (await sharedPostgres()).stop();
});

const path = (id = '', of = zone) => `/${of.id}/dns_records${id && `/${id}`}`;
const create = (body: Record<string, unknown>, headers: Record<string, string> = {}) =>
  bench.api('POST', path(), body, bench.key, headers);
const refused = (status: number, code: string) => ({ status, body: { error: { code } } });
let names = 0;
const fresh = () => `h${(names += 1)}`;

describe('POST /dns/zones/{zone_id}/dns_records', () => {
  it('201 with every field, the name absolute; the next read shows it', async () => {
    const answer = await create({ name: 'WWW', type: 'a', content: '192.0.2.1' });
    expect(answer).toMatchObject({ status: 201 });
    expect(answer.body).toEqual({
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      zone_id: zone.id,
      name: `www.${zone.name}`,
      type: 'A',
      content: '192.0.2.1',
      ttl: null,
      managed: false,
    });
    expect((await bench.api('GET', path(answer.body.id.toUpperCase()))).body).toEqual(answer.body);
  });

  it('a name may be absolute, relative, without its dot, the zone itself, or in other letters', async () => {
    const bare = zone.name.slice(0, -1);
    const cases: [string, string][] = [
      [`n1.${zone.name}`, `n1.${zone.name}`],
      ['n2', `n2.${zone.name}`],
      [`n3.${bare}`, `n3.${zone.name}`],
      ['a.N4', `a.n4.${zone.name}`],
      ['@', zone.name],
      [bare, zone.name],
      ['_dmarc.n5', `_dmarc.n5.${zone.name}`],
      ['*.n6', `*.n6.${zone.name}`],
      ['*', `*.${zone.name}`],
      ['почта', `xn--80a1acny.${zone.name}`],
    ];
    for (const [index, [name, absolute]] of cases.entries())
      expect((await create({ name, type: 'TXT', content: `"${index}"` })).body).toMatchObject({
        name: absolute,
      });
  });

  it.each([
    ['A', '192.0.2.255'],
    ['AAAA', '2001:db8::1'],
    ['AAAA', '::ffff:192.0.2.1'],
    ['CNAME', 'target.example.com.'],
    ['CNAME', 'Target.Example.COM'],
    ['MX', '10 mail.example.com.'],
    ['MX', '0 .'],
    ['TXT', '"v=spf1 include:_spf.example.com -all"'],
    ['TXT', 'site-verification=abc DEF'],
    ['TXT', '"one" "two \\"quoted\\" \\092 \\255"'],
    ['TXT', `"${'k'.repeat(1_000)}"`],
    ['TXT', '""'],
    ['SRV', '10 5 5060 sip.example.com.'],
    ['SRV', '0 0 0 .'],
    ['CAA', '0 issue "ca.example.net; account=1"'],
    ['CAA', '128 issuewild ";"'],
    ['NS', 'ns.elsewhere.example.'],
  ])('%s %s is taken and said back as it was sent', async (type, content) => {
    const made = await create({ name: fresh(), type, content });
    expect(made).toMatchObject({ status: 201, body: { content, type } });
    expect((await bench.api('GET', path(made.body.id))).body.content).toBe(content);
  });

  it.each([
    ['A', 'banana'],
    ['A', '192.0.2.256'],
    ['A', '192.0.2.01'],
    ['A', '0x7f000001'],
    ['A', '2001:db8::1'],
    ['A', ' 192.0.2.1'],
    ['AAAA', '192.0.2.1'],
    ['AAAA', 'fe80::1%eth0'],
    ['AAAA', '1::2::3'],
    ['CNAME', 'localhost'],
    ['CNAME', '192.0.2.1'],
    ['CNAME', '.'],
    ['CNAME', 'a b.example.'],
    ['CNAME', '*.example.com.'],
    ['MX', 'mail.example.com.'],
    ['MX', '65536 mail.example.com.'],
    ['MX', '10 192.0.2.1'],
    ['MX', '10 .'],
    ['MX', '-1 mail.example.com.'],
    ['MX', '10 mail.example.com. more'],
    ['TXT', '"open'],
    ['TXT', '"a"b"'],
    ['TXT', '"a""b"'],
    ['TXT', '"\\256"'],
    ['TXT', '"tab\there"'],
    ['TXT', 'tab\there'],
    ['SRV', '1 2 3'],
    ['SRV', '1 2 65536 sip.example.com.'],
    ['CAA', '0 issue'],
    ['CAA', '256 issue "a"'],
    ['CAA', '0 is-sue "a"'],
    ['CAA', '0 issue a b'],
    ['CAA', '0 issue "a" "b"'],
    ['NS', '2001:db8::1'],
    ['NS', ''],
    ['TXT', 'x'.repeat(4_097)],
  ])('422 for %s %j', async (type, content) => {
    expect(await create({ name: fresh(), type, content })).toMatchObject({
      status: 422,
      body: { error: { code: 'validation_error' }, detail: [{ loc: ['body', 'content'] }] },
    });
  });

  it.each([
    ['an unknown type', { type: 'SOA' }, 'type'],
    ['a type of another kind', { type: 1 }, 'type'],
    ['no type', { type: undefined }, 'type'],
    ['a name of another zone', { name: 'www.example.org.' }, 'name'],
    ['an empty label', { name: 'a..b' }, 'name'],
    ['a star inside', { name: 'a.*' }, 'name'],
    ['a star in a label', { name: 'a*' }, 'name'],
    ['a space', { name: 'a b' }, 'name'],
    ['a long label', { name: 'a'.repeat(64) }, 'name'],
    ['a long name', { name: `${'a.'.repeat(120)}a` }, 'name'],
    ['no name', { name: undefined }, 'name'],
    ['a negative TTL', { ttl: -1 }, 'ttl'],
    ['a TTL of a fraction', { ttl: 0.5 }, 'ttl'],
    ['a long TTL', { ttl: 604_801 }, 'ttl'],
    ['no content', { content: undefined }, 'content'],
    ['NS of the zone itself', { name: '@', type: 'NS', content: 'ns.example.com.' }, 'type'],
    ['a CNAME of the zone itself', { name: '@', type: 'CNAME', content: 'a.example.com.' }, 'type'],
    ['a wildcard delegation', { name: '*.w', type: 'NS', content: 'ns.example.com.' }, 'type'],
  ])('422 for %s', async (_what, more, field) => {
    expect(await create({ name: fresh(), type: 'A', content: '192.0.2.1', ...more })).toMatchObject({
      status: 422,
      body: { error: { code: 'validation_error' }, detail: [{ loc: ['body', field] }] },
    });
  });

  it('422 for a CNAME to itself', async () => {
    expect(await create({ name: 'self', type: 'CNAME', content: `SELF.${zone.name}` })).toMatchObject(
      refused(422, 'validation_error'),
    );
  });

  it('409 for the same value in any spelling, never a second one', async () => {
    const name = fresh();
    const twice = async (type: string, first: string, second: string) => {
      expect((await create({ name, type, content: first })).status).toBe(201);
      expect(await create({ name, type, content: second })).toMatchObject(refused(409, 'dns_record_exists'));
    };
    await twice('A', '192.0.2.7', '192.0.2.7');
    await twice('AAAA', '2001:db8::1', '2001:DB8:0:0::1');
    await twice('MX', '10 mail.example.com.', '10 MAIL.example.com');
    await twice('TXT', 'plain', '"plain"');
    await twice('CAA', '0 issue "ca.example"', '0 ISSUE ca.example');
    expect((await create({ name, type: 'TXT', content: '"Plain"' })).status).toBe(201);
  });

  it('a CNAME stands alone: 409 in both directions, and for a second one', async () => {
    const [alias, host] = [fresh(), fresh()];
    await bench.record(zone, { name: alias, type: 'CNAME', content: 'a.example.com.' });
    await bench.record(zone, { name: host, type: 'A', content: '192.0.2.1' });
    for (const body of [
      { name: alias, type: 'A', content: '192.0.2.1' },
      { name: alias, type: 'TXT', content: 'x' },
      { name: host, type: 'CNAME', content: 'a.example.com.' },
      { name: alias, type: 'CNAME', content: 'b.example.com.' },
    ])
      expect(await create(body)).toMatchObject(refused(409, 'dns_cname_conflict'));
  });

  it('the TTL is the set’s: taken over when absent, changed for the siblings when given', async () => {
    const name = fresh();
    const first = await bench.record(zone, { name, type: 'A', content: '192.0.2.1', ttl: 60 });
    const second = await bench.record(zone, { name, type: 'A', content: '192.0.2.2' });
    expect(second.ttl).toBe(60);
    expect((await create({ name, type: 'A', content: '192.0.2.3', ttl: null })).body.ttl).toBe(60);
    expect((await create({ name, type: 'A', content: '192.0.2.4', ttl: 120 })).body.ttl).toBe(120);
    expect((await bench.api('GET', path(first.id))).body.ttl).toBe(120);
    expect((await create({ name, type: 'AAAA', content: '::1' })).body.ttl).toBeNull();
  });

  it('409 beyond 256 values, beyond what a message holds, and beyond the records of a zone', async () => {
    const many = await bench.zone();
    const values = Array.from({ length: 256 }, (_, index) => `192.0.2.${index}`);
    await bench.set(many, { name: 'full', type: 'A', records: values });
    const full = (body: Record<string, unknown>) => bench.api('POST', path('', many), body);
    expect(await full({ name: 'full', type: 'A', content: '198.51.100.1' })).toMatchObject(
      refused(409, 'dns_limit'),
    );
    const long = Array.from(
      { length: 12 },
      (_, index) => `"${String.fromCharCode(97 + index).repeat(4_000)}"`,
    );
    const set = await bench.api('POST', `/${many.id}/rrsets`, { name: 'long', type: 'TXT', records: long });
    expect(set).toMatchObject(refused(409, 'dns_limit'));
    await bench.sql('update zone set record_count = 200000 where id = $1', [many.id]);
    expect(await full({ name: 'more', type: 'A', content: '192.0.2.1' })).toMatchObject(
      refused(409, 'dns_limit'),
    );
  });

  it('a repeat under one Idempotency-Key answers the first one and adds nothing', async () => {
    const headers = { 'idempotency-key': randomUUID() };
    const body = { name: fresh(), type: 'A', content: '192.0.2.1' };
    const first = await create(body, headers);
    expect(await create(body, headers)).toMatchObject({ status: 201, text: first.text });
    expect(await create({ ...body, content: '192.0.2.2' }, headers)).toMatchObject(
      refused(422, 'idempotency_key_reused'),
    );
  });
});

describe('GET …/dns_records', () => {
  it('filters exactly by name and type, in a stable order with totals', async () => {
    const own = await bench.zone();
    const made = [];
    for (const [name, type, content] of [
      ['www', 'A', '192.0.2.1'],
      ['www', 'TXT', 'x'],
      ['w', 'A', '192.0.2.1'],
      ['www', 'A', '192.0.2.2'],
    ] as const)
      made.push(await bench.record(own, { name, type, content }));
    const list = async (query: string) => (await bench.api('GET', `${path('', own)}?${query}`)).body;
    expect(await list('')).toEqual({ data: made, limit: 50, offset: 0, count: 4, total: 4 });
    expect((await list(`name=www.${own.name}`)).data).toEqual([made[0], made[1], made[3]]);
    expect((await list(`name=WWW.${own.name}&type=A`)).data).toEqual([made[0], made[3]]);
    expect((await list('name=www&type=a&limit=1&offset=1')).data).toEqual([made[3]]);
    expect(await list('type=MX')).toMatchObject({ data: [], total: 0 });
    expect(await list('name=a..b')).toMatchObject({ data: [], total: 0 });
    expect(await list('name=www.example.org.')).toMatchObject({ data: [], total: 0 });
    expect((await list('limit=2&offset=4')).data).toEqual([]);
    expect((await bench.api('GET', `${path('', own)}?limit=0`)).status).toBe(422);
  });
});

describe('PATCH …/dns_records/{record_id}', () => {
  const change = (id: string, body: Record<string, unknown>) => bench.api('PATCH', path(id), body);

  it('content keeps the id; TTL changes the set; null and absent', async () => {
    const name = fresh();
    const record = await bench.record(zone, { name, type: 'A', content: '192.0.2.1', ttl: 60 });
    const other = await bench.record(zone, { name, type: 'A', content: '192.0.2.2' });
    const changed = await change(record.id, { content: '192.0.2.3' });
    expect(changed).toMatchObject({ status: 200, body: { ...record, content: '192.0.2.3' } });
    expect((await change(record.id, { ttl: 30 })).body.ttl).toBe(30);
    expect((await bench.api('GET', path(other.id))).body.ttl).toBe(30);
    expect((await change(record.id, { name: null, type: null, content: null })).body.ttl).toBe(30);
    expect((await change(record.id, { ttl: null })).body.ttl).toBeNull();
    expect(await change(record.id, { content: '192.0.2.2' })).toMatchObject(
      refused(409, 'dns_record_exists'),
    );
    expect(await change(record.id, { content: 'banana' })).toMatchObject(refused(422, 'validation_error'));
  });

  it('another name or type moves it, id and TTL with it', async () => {
    const [from, to] = [fresh(), fresh()];
    const record = await bench.record(zone, { name: from, type: 'A', content: '192.0.2.1', ttl: 60 });
    expect((await change(record.id, { name: to })).body).toEqual({ ...record, name: `${to}.${zone.name}` });
    expect((await bench.api('GET', `${path()}?name=${from}`)).body.total).toBe(0);
    expect((await change(record.id, { type: 'AAAA', content: '::1' })).body).toMatchObject({
      id: record.id,
      type: 'AAAA',
      ttl: 60,
    });
    await bench.record(zone, { name: from, type: 'AAAA', content: '::2', ttl: 7 });
    expect((await change(record.id, { name: from })).body.ttl).toBe(7);
    // Its own old set is no conflict; somebody else's CNAME is.
    const alone = await bench.record(zone, { name: fresh(), type: 'A', content: '192.0.2.9' });
    expect((await change(alone.id, { type: 'CNAME', content: 'a.example.com.' })).status).toBe(200);
    expect(await change(record.id, { name: alone.name })).toMatchObject(refused(409, 'dns_cname_conflict'));
    expect(await change(record.id, { type: 'A' })).toMatchObject(refused(422, 'validation_error'));
    expect(await change(record.id, { name: '@', type: 'CNAME', content: 'a.example.' })).toMatchObject(
      refused(422, 'validation_error'),
    );
  });

  it('an empty body changes nothing, the serial neither', async () => {
    const record = await bench.record(zone, { name: fresh(), type: 'A', content: '192.0.2.1' });
    const before = await bench.serial(zone);
    expect((await change(record.id, {})).body).toEqual(record);
    expect(await bench.serial(zone)).toBe(before);
    expect((await change(record.id, { content: '192.0.2.2' })).status).toBe(200);
    expect(await bench.serial(zone)).toBe(before + 1n);
  });
});

describe('DELETE …/dns_records/{record_id}', () => {
  it('204, then 404; the last record takes its set along, and the TTL with it', async () => {
    const name = fresh();
    const first = await bench.record(zone, { name, type: 'A', content: '192.0.2.1', ttl: 60 });
    const second = await bench.record(zone, { name, type: 'A', content: '192.0.2.2' });
    for (const { id } of [first, second]) {
      expect(await bench.api('DELETE', path(id))).toMatchObject({ status: 204, text: '' });
      for (const method of ['GET', 'DELETE']) expect((await bench.api(method, path(id))).status).toBe(404);
    }
    expect((await bench.api('GET', `/${zone.id}/rrsets?name=${name}`)).body.total).toBe(0);
    expect((await bench.record(zone, { name, type: 'A', content: '192.0.2.1' })).ttl).toBeNull();
  });

  it('404 in another zone, for strangers and for what is no id', async () => {
    const other = await bench.zone();
    const record = await bench.record(zone, { name: fresh(), type: 'A', content: '192.0.2.1' });
    for (const [method, body] of [
      ['GET', undefined],
      ['PATCH', { ttl: 1 }],
      // The ids of the path come before what is wrong with the body.
      ['PATCH', { ttl: 'long' }],
      ['PATCH', undefined],
      ['DELETE', undefined],
    ] as const) {
      for (const [where, as] of [
        [path(record.id, other), bench.key],
        [path(record.id), bench.stranger],
        [path(randomUUID()), bench.key],
        [path('banana'), bench.key],
      ] as const)
        expect(await bench.api(method, where, body, as)).toMatchObject(refused(404, 'not_found'));
    }
    expect(
      await bench.api('POST', path(), { name: 'a', type: 'A', content: '192.0.2.1' }, bench.stranger),
    ).toMatchObject(refused(404, 'not_found'));
    expect((await bench.api('GET', path(), undefined, bench.stranger)).status).toBe(404);
    expect((await bench.api('GET', path(record.id))).status).toBe(200);
  });
});

it('every change is said for the audit log, without its content', async () => {
  const own = await bench.zone();
  const record = await bench.record(own, { name: 'a', type: 'TXT', content: 'a-secret' });
  await bench.api('PATCH', path(record.id, own), { content: 'another-secret' });
  await bench.api('DELETE', path(record.id, own));
  const lines = await bench.sql<{ text: string; action: string }>(
    `select envelope::text as text, envelope->'data'->>'action' as action from outbox
     where envelope->'data'->>'resource' = $1 order by seq`,
    [`dns_zone:${own.id}`],
  );
  expect(lines.map(({ action }) => action)).toEqual([
    'dns_create_zone',
    'dns_create_dns_record',
    'dns_update_dns_record',
    'dns_delete_dns_record',
  ]);
  expect(lines.map(({ text }) => text).join()).not.toContain('secret');
});
