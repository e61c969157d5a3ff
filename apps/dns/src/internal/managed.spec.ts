import { randomUUID } from 'node:crypto';
import type { V1Zone } from '@nebo/contracts';
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

const ownerId = () => `app_domain:${randomUUID()}`;
const put = (owner: string, more: Record<string, unknown>, account: string | null = null) =>
  bench.internal(
    'POST',
    'records/put-managed',
    { account_id: bench.account, owner, type: 'A', contents: ['192.0.2.1'], ttl: null, ...more },
    account,
  );
const drop = (owner: string, more: Record<string, unknown> = {}) =>
  bench.internal('POST', 'records/delete-managed', { account_id: bench.account, owner, ...more });
const refused = (status: number, code: string) => ({ status, body: { error: { code } } });
const records = async (name: string) =>
  (await bench.api('GET', `/${zone.id}/dns_records?name=${name}.${zone.name}`)).body.data;

describe('records that the platform keeps', () => {
  it('put makes them in the account’s longest zone, marked as managed; a repeat changes nothing', async () => {
    const inner = await bench.zone({ name: `inner.${zone.name}` });
    const owner = ownerId();
    const first = await put(owner, { name: `www.${zone.name.slice(0, -1)}` });
    expect(first).toMatchObject({
      status: 200,
      body: { zone_id: zone.id, zone_name: zone.name, zone_status: 'pending', changed: true },
    });
    expect(await records('www')).toEqual([
      {
        id: first.body.record_ids[0],
        zone_id: zone.id,
        name: `www.${zone.name}`,
        type: 'A',
        content: '192.0.2.1',
        ttl: null,
        managed: true,
      },
    ]);
    const before = await bench.serial(zone);
    expect((await put(owner, { name: `WWW.${zone.name}` })).body).toEqual({ ...first.body, changed: false });
    expect(await bench.serial(zone)).toBe(before);
    expect((await put(ownerId(), { name: `a.${inner.name}` })).body.zone_id).toBe(inner.id);
    expect((await put(ownerId(), { name: inner.name })).body.zone_id).toBe(inner.id);
  });

  it('put of other values replaces its own and keeps what stays', async () => {
    const owner = ownerId();
    const name = `many.${zone.name}`;
    const first = await put(owner, { name, contents: ['192.0.2.1', '192.0.2.2'] });
    const next = await put(owner, { name, contents: ['192.0.2.2', '192.0.2.3'], ttl: 60 });
    expect(next.body.record_ids[0]).toBe(first.body.record_ids[1]);
    expect(
      (await records('many')).map(({ content, ttl }: { content: string; ttl: number }) => [content, ttl]),
    ).toEqual([
      ['192.0.2.2', 60],
      ['192.0.2.3', 60],
    ]);
  });

  it('users see them, and can neither change nor delete them, alone or as a set, nor join them', async () => {
    const owner = ownerId();
    const name = `kept.${zone.name}`;
    const { body } = await put(owner, { name });
    const record = `/${zone.id}/dns_records/${body.record_ids[0]}`;
    const [set] = (await bench.api('GET', `/${zone.id}/rrsets?name=${name}`)).body.data;
    expect(set).toMatchObject({ managed: true });
    const no = refused(409, 'dns_record_managed');
    expect(await bench.api('PATCH', record, { content: '192.0.2.9' })).toMatchObject(no);
    expect(await bench.api('PATCH', record, {})).toMatchObject(no);
    expect(await bench.api('DELETE', record)).toMatchObject(no);
    const rrset = `/${zone.id}/rrsets/${set.id}`;
    const body2 = { expected_revision: set.revision, ttl: 1, records: ['192.0.2.9'] };
    expect(await bench.api('PUT', rrset, body2)).toMatchObject(no);
    expect(await bench.api('DELETE', `${rrset}?expected_revision=${set.revision}`)).toMatchObject(no);
    const join = (more: object) =>
      bench.api('POST', `/${zone.id}/dns_records`, { name, type: 'A', content: '192.0.2.9', ...more });
    expect(await join({})).toMatchObject(no);
    expect(await join({ type: 'CNAME', content: 'a.example.com.' })).toMatchObject(
      refused(409, 'dns_cname_conflict'),
    );
    expect((await join({ type: 'AAAA', content: '::1' })).status).toBe(201);
    const moved = await bench.record(zone, { name: 'elsewhere', type: 'A', content: '192.0.2.9' });
    expect(await bench.api('PATCH', `/${zone.id}/dns_records/${moved.id}`, { name })).toMatchObject(no);
    expect(await bench.api('DELETE', `/${zone.id}`)).toMatchObject(refused(409, 'zone_in_use'));
    expect((await bench.api('GET', rrset)).body).toEqual(set);
  });

  it('a record that somebody else made is never touched: 409 says what stands there', async () => {
    const mine = await bench.record(zone, { name: 'taken', type: 'A', content: '192.0.2.1' });
    const alias = await bench.record(zone, { name: 'alias', type: 'CNAME', content: 'a.example.com.' });
    const owner = ownerId();
    for (const name of [mine.name, alias.name]) {
      const answer = await put(owner, { name });
      expect(answer).toMatchObject(refused(409, 'dns_record_conflict'));
    }
    expect((await put(owner, { name: mine.name })).body.error.message).toContain('192.0.2.1');
    const other = ownerId();
    await put(other, { name: `theirs.${zone.name}` });
    expect(await put(owner, { name: `theirs.${zone.name}` })).toMatchObject(
      refused(409, 'dns_record_conflict'),
    );
    expect((await drop(owner)).body).toEqual({ deleted: 0 });
    expect(await records('taken')).toEqual([mine]);
    expect(await records('alias')).toEqual([alias]);
    expect(await records('theirs')).toHaveLength(1);
  });

  it('override takes away what the account itself has made there, and nothing else', async () => {
    await bench.record(zone, { name: 'over', type: 'A', content: '192.0.2.9' });
    await bench.record(zone, { name: 'over', type: 'AAAA', content: '2001:db8::9' });
    const text = await bench.record(zone, { name: 'over', type: 'TXT', content: 'stays' });
    await bench.record(zone, { name: 'over-alias', type: 'CNAME', content: 'a.example.com.' });
    const owner = ownerId();
    expect(await put(owner, { name: `over.${zone.name}`, override: true })).toMatchObject({ status: 200 });
    expect(await put(owner, { name: `over-alias.${zone.name}`, override: true })).toMatchObject({
      status: 200,
    });
    const left = await records('over');
    expect(left).toHaveLength(2);
    expect(left).toEqual(
      expect.arrayContaining([
        text,
        expect.objectContaining({ type: 'A', content: '192.0.2.1', managed: true }),
      ]),
    );
    expect(await records('over-alias')).toEqual([expect.objectContaining({ type: 'A', managed: true })]);
    // Another owner's record is a conflict all the same.
    expect(await put(ownerId(), { name: `over.${zone.name}`, override: true })).toMatchObject(
      refused(409, 'dns_record_conflict'),
    );
  });

  it('values of TXT stand beside others’, and leave without them', async () => {
    const name = `_acme-challenge.${zone.name}`;
    const own = await bench.record(zone, { name, type: 'TXT', content: '"mine"', ttl: 30 });
    const [one, two] = [ownerId(), ownerId()];
    await put(one, { name, type: 'TXT', contents: ['token-1'], ttl: 60 });
    await put(two, { name, type: 'TXT', contents: ['token-2'], ttl: 60 });
    expect(await put(two, { name, type: 'TXT', contents: ['token-1'] })).toMatchObject(
      refused(409, 'dns_record_conflict'),
    );
    const added = await bench.record(zone, { name, type: 'TXT', content: 'also mine' });
    const ttl = { name, type: 'TXT', content: 'no', ttl: 5 };
    expect(await bench.api('POST', `/${zone.id}/dns_records`, ttl)).toMatchObject(
      refused(409, 'dns_record_managed'),
    );
    const contents = async () =>
      (await records('_acme-challenge')).map(({ content }: { content: string }) => content).sort();
    expect(await contents()).toEqual(['"mine"', 'also mine', 'token-1', 'token-2']);
    expect((await drop(one)).body).toEqual({ deleted: 1 });
    expect((await drop(two, { name, type: 'TXT' })).body).toEqual({ deleted: 1 });
    expect(await contents()).toEqual(['"mine"', 'also mine']);
    for (const { id } of [own, added])
      expect((await bench.api('DELETE', `/${zone.id}/dns_records/${id}`)).status).toBe(204);
  });

  it('delete takes only the owner’s, by name and type or all of them; a repeat finds nothing', async () => {
    const owner = ownerId();
    const names = ['d1', 'd2', 'd3'].map((label) => `${label}.${zone.name}`);
    for (const name of names) await put(owner, { name });
    await put(owner, { name: names[0]!, type: 'AAAA', contents: ['::1'] });
    expect((await drop(owner, { name: names[0]!, type: 'AAAA' })).body).toEqual({ deleted: 1 });
    expect((await drop(owner, { name: names[0]!.toUpperCase() })).body).toEqual({ deleted: 1 });
    expect((await drop(owner)).body).toEqual({ deleted: 2 });
    expect((await drop(owner)).body).toEqual({ deleted: 0 });
    for (const label of ['d1', 'd2', 'd3']) expect(await records(label)).toEqual([]);
    // A put that was on its way when its owner went.
    expect(await put(owner, { name: names[0]! })).toMatchObject(refused(409, 'already_released'));
  });

  it('of a put and a delete at once nothing is left but what came last', async () => {
    for (let round = 0; round < 10; round += 1) {
      const owner = ownerId();
      const name = `race${round}.${zone.name}`;
      await Promise.all([put(owner, { name }), drop(owner), put(owner, { name })]);
      await drop(owner);
      expect(await records(`race${round}`)).toEqual([]);
    }
  });

  it.each([
    ['no zone', { name: 'www.example.org.' }, 404, 'no_zone'],
    ['no name', { name: 'www' }, 422, 'validation_error'],
    ['a bad value', { contents: ['banana'] }, 422, 'validation_error'],
    ['no values', { contents: [] }, 422, 'validation_error'],
    ['a bad owner', { owner: 'me' }, 422, 'validation_error'],
    ['a bad type', { type: 'SOA' }, 422, 'validation_error'],
  ])('put refuses %s', async (_what, more, status, code) => {
    const body = { name: `x.${zone.name}`, ...more };
    expect(await put(ownerId(), body)).toMatchObject(refused(status, code));
  });

  it('is not for keys, not for another account than the caller speaks for, not in another account’s zone', async () => {
    const name = `x.${zone.name}`;
    expect(await put(ownerId(), { name }, bench.stranger.account_id)).toMatchObject(
      refused(403, 'forbidden'),
    );
    expect(await put(ownerId(), { name, account_id: bench.stranger.account_id })).toMatchObject(
      refused(404, 'no_zone'),
    );
    const { status } = await bench.nebo.request('dns', {
      method: 'POST',
      path: '/internal/v1/records/put-managed',
      as: bench.key,
      body: {},
    });
    expect(status).toBe(401);
  });
});
