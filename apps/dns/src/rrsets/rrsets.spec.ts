import { randomUUID } from 'node:crypto';
import type { V1DNSRecord, V1Zone } from '@nebo/contracts';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench } from '../../test/harness.js';

let bench: Bench;
let zone: V1Zone;
beforeAll(async () => {
  bench = await Bench.start();
  zone = await bench.zone();
});
afterAll(async () => {
  await bench?.close();
  await (await sharedPostgres()).stop();
});

const path = (id = '', of = zone) => `/${of.id}/rrsets${id && `/${id}`}`;
const refused = (status: number, code: string) => ({ status, body: { error: { code } } });
const idsOf = async (name: string) =>
  new Map<string, string>(
    (await bench.api('GET', `/${zone.id}/dns_records?name=${name}&limit=200`)).body.data.map(
      ({ content, id }: V1DNSRecord) => [content, id],
    ),
  );
let names = 0;
const fresh = () => `s${(names += 1)}`;

describe('record sets', () => {
  it('POST 201 with every field; GET says the same; the records are the same data', async () => {
    const name = fresh();
    const answer = await bench.api('POST', path(), {
      name,
      type: 'a',
      ttl: null,
      records: ['192.0.2.2', '192.0.2.1'],
    });
    expect(answer).toMatchObject({ status: 201 });
    expect(answer.body).toEqual({
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      zone_id: zone.id,
      name: `${name}.${zone.name}`,
      type: 'A',
      ttl: null,
      records: ['192.0.2.2', '192.0.2.1'],
      managed: false,
      revision: expect.stringMatching(/^[0-9a-f]{64}$/),
    });
    expect((await bench.api('GET', path(answer.body.id.toUpperCase()))).body).toEqual(answer.body);
    expect([...(await idsOf(name)).keys()]).toEqual(['192.0.2.2', '192.0.2.1']);
    await bench.record(zone, { name, type: 'A', content: '192.0.2.3', ttl: 9 });
    const { body } = await bench.api('GET', path(answer.body.id));
    expect(body).toMatchObject({ ttl: 9, records: ['192.0.2.2', '192.0.2.1', '192.0.2.3'] });
    expect(body.revision).not.toBe(answer.body.revision);
  });

  it.each([
    ['no records', { records: [] }, 'records'],
    [
      'too many',
      { records: Array.from({ length: 257 }, (_, index) => `10.0.${index >> 8}.${index & 255}`) },
      'records',
    ],
    ['one twice', { records: ['192.0.2.1', '192.0.2.1'] }, 'records'],
    ['one in two spellings', { type: 'AAAA', records: ['::1', '0::1'] }, 'records'],
    ['a bad value', { records: ['192.0.2.1', 'banana'] }, 'records'],
    ['a number', { records: [1] }, 'records'],
    [
      'two CNAMEs',
      { type: 'CNAME', records: ['a.example.', 'b.example.'].map((name) => `x.${name}`) },
      'records',
    ],
    ['a type that is none', { type: 'X' }, 'type'],
    ['a name outside', { name: 'www.example.org.' }, 'name'],
    ['NS of the zone itself', { name: '@', type: 'NS', records: ['ns.example.com.'] }, 'type'],
    ['a TTL in text', { ttl: '1' }, 'ttl'],
  ])('POST 422 for %s', async (_what, more, field) => {
    const body = { name: fresh(), type: 'A', records: ['192.0.2.1'], ...more };
    expect(await bench.api('POST', path(), body)).toMatchObject({
      status: 422,
      body: { error: { code: 'validation_error' }, detail: [{ loc: ['body', field] }] },
    });
  });

  it('POST never overwrites: 409 for what is there, and beside a CNAME', async () => {
    const [name, alias] = [fresh(), fresh()];
    await bench.record(zone, { name, type: 'A', content: '192.0.2.1' });
    await bench.set(zone, { name: alias, type: 'CNAME', records: ['a.example.com.'] });
    const post = (of: string, type: string, value: string) =>
      bench.api('POST', path(), { name: of, type, records: [value] });
    expect(await post(name, 'A', '192.0.2.9')).toMatchObject(refused(409, 'dns_record_exists'));
    expect(await post(name, 'CNAME', 'a.example.com.')).toMatchObject(refused(409, 'dns_cname_conflict'));
    expect(await post(alias, 'A', '192.0.2.9')).toMatchObject(refused(409, 'dns_cname_conflict'));
    expect((await bench.api('GET', `${path()}?name=${name}`)).body.data).toMatchObject([
      { records: ['192.0.2.1'] },
    ]);
  });

  it('PUT replaces TTL and values; values that stay keep their ids; the revision changes', async () => {
    const name = fresh();
    const set = await bench.set(zone, {
      name,
      type: 'A',
      ttl: 60,
      records: ['192.0.2.1', '192.0.2.2', '192.0.2.3'],
    });
    const before = await idsOf(name);
    const records = ['192.0.2.9', '192.0.2.3', '192.0.2.1'];
    const put = await bench.api('PUT', path(set.id), { expected_revision: set.revision, ttl: null, records });
    expect(put).toMatchObject({ status: 200, body: { id: set.id, ttl: null, records } });
    expect(put.body.revision).not.toBe(set.revision);
    expect((await bench.api('GET', path(set.id))).body).toEqual(put.body);
    const after = await idsOf(name);
    expect(after.get('192.0.2.1')).toBe(before.get('192.0.2.1'));
    expect(after.get('192.0.2.3')).toBe(before.get('192.0.2.3'));
    expect(after.has('192.0.2.2')).toBe(false);
    expect([...before.values()]).not.toContain(after.get('192.0.2.9'));
  });

  it('a respelled value keeps its id and is said back as it was sent', async () => {
    const name = fresh();
    const set = await bench.set(zone, { name, type: 'MX', records: ['10 mail.example.com.'] });
    const [id] = (await idsOf(name)).values();
    const records = ['10 MAIL.example.com.'];
    const put = await bench.api('PUT', path(set.id), { expected_revision: set.revision, ttl: null, records });
    expect(put.body.records).toEqual(records);
    expect(await idsOf(name)).toEqual(new Map([[records[0], id]]));
  });

  it('409 dns_rrset_changed for a stale revision in PUT and DELETE, whoever changed it', async () => {
    const name = fresh();
    const set = await bench.set(zone, { name, type: 'A', records: ['192.0.2.1'] });
    const body = { expected_revision: set.revision, ttl: 5, records: ['192.0.2.2'] };
    await bench.record(zone, { name, type: 'A', content: '192.0.2.7' });
    expect(await bench.api('PUT', path(set.id), body)).toMatchObject(refused(409, 'dns_rrset_changed'));
    expect(await bench.api('DELETE', `${path(set.id)}?expected_revision=${set.revision}`)).toMatchObject(
      refused(409, 'dns_rrset_changed'),
    );
    const { revision } = (await bench.api('GET', path(set.id))).body;
    const answers = await Promise.all(
      Array.from({ length: 6 }, (_, index) =>
        bench.api('PUT', path(set.id), {
          expected_revision: revision,
          ttl: null,
          records: [`192.0.2.${index + 20}`],
        }),
      ),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([200, ...Array<number>(5).fill(409)]);
  });

  it('PUT of the same changes nothing, neither revision nor serial; upper case of a revision is the same', async () => {
    const set = await bench.set(zone, { name: fresh(), type: 'A', ttl: 5, records: ['192.0.2.1'] });
    const before = await bench.serial(zone);
    const body = { expected_revision: set.revision.toUpperCase(), ttl: 5, records: ['192.0.2.1'] };
    expect((await bench.api('PUT', path(set.id), body)).body).toEqual(set);
    expect(await bench.serial(zone)).toBe(before);
  });

  it('PUT 422 without a revision, with a bad one, and for bad values', async () => {
    const set = await bench.set(zone, { name: fresh(), type: 'A', records: ['192.0.2.1'] });
    const put = (more: object) =>
      bench.api('PUT', path(set.id), {
        expected_revision: set.revision,
        ttl: null,
        records: ['192.0.2.1'],
        ...more,
      });
    for (const more of [
      { expected_revision: undefined },
      { expected_revision: 'x' },
      { records: [] },
      { records: ['x'] },
    ])
      expect(await put(more)).toMatchObject(refused(422, 'validation_error'));
  });

  it('DELETE 204 with the revision, 422 without; then 404', async () => {
    const set = await bench.set(zone, { name: fresh(), type: 'A', records: ['192.0.2.1', '192.0.2.2'] });
    expect((await bench.api('DELETE', path(set.id))).status).toBe(422);
    const gone = `${path(set.id)}?expected_revision=${set.revision}`;
    expect(await bench.api('DELETE', gone)).toMatchObject({ status: 204, text: '' });
    expect((await bench.api('DELETE', gone)).status).toBe(404);
    expect((await bench.api('GET', path(set.id))).status).toBe(404);
  });

  it('lists page by page, filtered by name and type', async () => {
    const own = await bench.zone();
    const sets = [
      await bench.set(own, { name: 'b', type: 'A', records: ['192.0.2.1', '192.0.2.2'] }),
      await bench.set(own, { name: 'a', type: 'TXT', records: ['x'] }),
      await bench.set(own, { name: 'a', type: 'A', records: ['192.0.2.3'] }),
    ];
    const list = async (query: string) => (await bench.api('GET', `${path('', own)}?${query}`)).body;
    expect(await list('')).toEqual({ data: sets, limit: 50, offset: 0, count: 3, total: 3 });
    expect((await list('limit=1&offset=1')).data).toEqual([sets[1]]);
    expect((await list(`name=a.${own.name}`)).data).toEqual(sets.slice(1));
    expect((await list('name=A&type=txt')).data).toEqual([sets[1]]);
    expect((await list('name=a..b')).data).toEqual([]);
    expect((await list('type=MX')).total).toBe(0);
  });

  it('404 in another zone, for strangers and for what is no id', async () => {
    const other = await bench.zone();
    const set = await bench.set(zone, { name: fresh(), type: 'A', records: ['192.0.2.1'] });
    const body = { expected_revision: set.revision, ttl: null, records: ['192.0.2.2'] };
    for (const [where, as] of [
      [path(set.id, other), bench.key],
      [path(set.id), bench.stranger],
      [path(randomUUID()), bench.key],
      [path('banana'), bench.key],
    ] as const) {
      expect(await bench.api('GET', where, undefined, as)).toMatchObject(refused(404, 'not_found'));
      // The ids of the path come before what is wrong with the body.
      for (const sent of [body, { records: 1 }, undefined])
        expect(await bench.api('PUT', where, sent, as)).toMatchObject(refused(404, 'not_found'));
      expect(
        await bench.api('DELETE', `${where}?expected_revision=${set.revision}`, undefined, as),
      ).toMatchObject(refused(404, 'not_found'));
    }
    const create = { name: fresh(), type: 'A', records: ['192.0.2.1'] };
    expect((await bench.api('POST', path(), create, bench.stranger)).status).toBe(404);
    expect((await bench.api('GET', path(), undefined, bench.stranger)).status).toBe(404);
  });

  it('POST once per Idempotency-Key', async () => {
    const headers = { 'idempotency-key': randomUUID() };
    const body = { name: fresh(), type: 'A', records: ['192.0.2.1'] };
    const first = await bench.api('POST', path(), body, bench.key, headers);
    expect(await bench.api('POST', path(), body, bench.key, headers)).toMatchObject({
      status: 201,
      text: first.text,
    });
  });
});
