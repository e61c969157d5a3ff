import { randomUUID } from 'node:crypto';
import type { V1Vpc } from '@nebo/contracts';
import { keyOf } from '@nebo/service-kit/testing';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, eventually, otherRegion, region } from '../../test/harness.js';

let bench: Bench;
beforeAll(async () => {
  bench = await Bench.start();
});
afterAll(async () => {
  await bench?.close();
  await (await sharedPostgres()).stop();
});

const create = (more: Record<string, unknown>, as = bench.key, headers: Record<string, string> = {}) =>
  bench.api(
    'POST',
    'vpcs',
    { name: `n ${randomUUID()}`, subnet: '10.20.0.0/16', cluster_id: region, ...more },
    as,
    headers,
  );

describe('POST /vpcs', () => {
  it('201 with every field of the record, pending until the region reports', async () => {
    const account = keyOf(randomUUID());
    const answer = await create({ name: 'backend' }, account);
    expect(answer).toMatchObject({ status: 201 });
    expect(answer.body).toEqual({
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      name: 'backend',
      subnet: '10.20.0.0/16',
      cluster_id: region,
      is_default: false,
      nat_gateway: null,
      ovn_name: null,
      status: 'pending',
      status_reason: null,
    });
    expect((await bench.api('GET', `vpcs/${answer.body.id.toUpperCase()}`, undefined, account)).body).toEqual(
      answer.body,
    );
  });

  it.each([
    ['a blank name', { name: '  ' }, 422, 'validation_error'],
    ['no name', { name: undefined }, 422, 'validation_error'],
    ['a long name', { name: 'x'.repeat(256) }, 422, 'validation_error'],
    ['no range', { subnet: 'banana' }, 422, 'validation_error'],
    ['host bits', { subnet: '10.20.0.1/16' }, 422, 'validation_error'],
    ['a public range', { subnet: '8.8.0.0/16' }, 400, 'invalid_subnet'],
    ['the platform’s range', { subnet: '10.1.0.0/16' }, 400, 'invalid_subnet'],
    ['too small', { subnet: '10.20.0.0/29' }, 400, 'invalid_subnet'],
    ['no region', { cluster_id: 'here' }, 422, 'validation_error'],
    ['an unknown region', { cluster_id: randomUUID() }, 404, 'not_found'],
  ])('refuses %s', async (_what, more, status, code) => {
    expect(await create(more, keyOf(randomUUID()))).toMatchObject({ status, body: { error: { code } } });
  });

  it('409 for an overlap in the account and region; other regions and accounts may overlap', async () => {
    const account = keyOf(randomUUID());
    expect((await create({ subnet: '10.20.0.0/16' }, account)).status).toBe(201);
    for (const subnet of ['10.20.0.0/16', '10.20.5.0/24', '10.20.255.240/28'])
      expect(await create({ subnet }, account)).toMatchObject({
        status: 409,
        body: { error: { code: 'subnet_overlaps' } },
      });
    expect((await create({ subnet: '10.21.0.0/16' }, account)).status).toBe(201);
    expect((await create({ cluster_id: otherRegion }, account)).status).toBe(201);
    expect((await create({}, keyOf(randomUUID()))).status).toBe(201);
  });

  it('409 for a taken name, whatever its case; free again in another region and after a delete', async () => {
    const account = keyOf(randomUUID());
    const { body } = await create({ name: 'Сеть' }, account);
    const again = { name: 'сеть', subnet: '10.30.0.0/16' };
    expect(await create(again, account)).toMatchObject({
      status: 409,
      body: { error: { code: 'name_taken' } },
    });
    expect((await create({ ...again, cluster_id: otherRegion }, account)).status).toBe(201);
    expect((await bench.api('DELETE', `vpcs/${body.id}`, undefined, account)).status).toBe(204);
    expect((await create(again, account)).status).toBe(201);
  });

  it('of many that want one range at once, one gets it', async () => {
    const account = keyOf(randomUUID());
    const answers = await Promise.all(Array.from({ length: 8 }, () => create({}, account)));
    expect(answers.map(({ status }) => status).sort()).toEqual([201, ...Array<number>(7).fill(409)]);
  });

  it('a repeat under one Idempotency-Key answers the first one and makes nothing; another content is 422', async () => {
    const account = keyOf(randomUUID());
    const headers = { 'idempotency-key': randomUUID() };
    const first = await create({ name: 'once' }, account, headers);
    const second = await create({ name: 'once' }, account, headers);
    expect(second).toMatchObject({ status: 201, text: first.text });
    expect(await create({ name: 'twice' }, account, headers)).toMatchObject({
      status: 422,
      body: { error: { code: 'idempotency_key_reused' } },
    });
    expect((await bench.api('GET', 'vpcs', undefined, account)).body.total).toBe(1);
  });

  it('every act is said for the audit log, in its transaction', async () => {
    const account = keyOf(randomUUID());
    const { body } = await create({ name: 'a' }, account);
    await create({ name: 'a', subnet: '10.40.0.0/16' }, account);
    await bench.api('PATCH', `vpcs/${body.id}`, { name: 'b' }, account);
    await bench.api('DELETE', `vpcs/${body.id}`, undefined, account);
    const lines = await bench.sql<{ envelope: { type: string; data: Record<string, unknown> } }>(
      "select envelope from outbox where envelope->>'account' = $1 order by seq",
      [account.account_id],
    );
    const event = { vpc_id: body.id, region_id: region, subnet: body.subnet };
    expect(
      lines.map(({ envelope: { type, data } }) => [type.slice('nebo.networking.'.length), data]),
    ).toMatchObject([
      [
        'audit.written.v1',
        { action: 'networking_create_vpc', resource: `vpc:${body.id}`, actor: `key:${account.key_id}` },
      ],
      ['vpc.created.v1', { ...event, name: 'a' }],
      ['audit.written.v1', { action: 'networking_update_vpc', details: { name: 'b' } }],
      ['audit.written.v1', { action: 'networking_delete_vpc', details: { name: 'b' } }],
      ['vpc.deleted.v1', { ...event, name: 'b' }],
    ]);
  });
});

describe('GET, PATCH and DELETE of one VPC', () => {
  it('404 for absent, malformed and foreign ids, with one body', async () => {
    const vpc = await bench.vpc();
    const answers = [];
    for (const method of ['GET', 'PATCH', 'DELETE']) {
      const body = method === 'PATCH' ? { name: 'x' } : undefined;
      answers.push(await bench.api(method, `vpcs/${vpc.id}`, body, bench.stranger));
      answers.push(await bench.api(method, `vpcs/${randomUUID()}`, body));
      answers.push(await bench.api(method, 'vpcs/no-id', body));
    }
    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
    expect(answers[0]).toMatchObject({ status: 404, body: { error: { code: 'not_found' } } });
    expect((await bench.api('GET', `vpcs/${vpc.id}`)).body).toEqual(vpc);
  });

  it('PATCH renames; an empty body changes nothing; 409 for a taken name, 422 for a blank one', async () => {
    const [one, two] = [await bench.vpc({ name: 'one' }), await bench.vpc({ name: 'two' })];
    expect(await bench.api('PATCH', `vpcs/${one.id}`, { name: 'uno' })).toMatchObject({
      status: 200,
      body: { ...one, name: 'uno' },
    });
    expect((await bench.api('PATCH', `vpcs/${one.id}`, {})).body.name).toBe('uno');
    expect((await bench.api('PATCH', `vpcs/${one.id}`, { name: 'UNO' })).body.name).toBe('UNO');
    expect(await bench.api('PATCH', `vpcs/${two.id}`, { name: 'uno' })).toMatchObject({
      status: 409,
      body: { error: { code: 'name_taken' } },
    });
    for (const name of [' ', '', null, 7])
      expect((await bench.api('PATCH', `vpcs/${two.id}`, { name })).status).toBe(422);
    expect((await bench.api('GET', `vpcs/${two.id}`)).body.name).toBe('two');
  });

  it('DELETE: 409 while a port is in it, 204 without, then 404 and out of the list', async () => {
    const vpc = await bench.vpc();
    const port = (await bench.claim({ vpc_id: vpc.id })).body;
    expect(await bench.api('DELETE', `vpcs/${vpc.id}`)).toMatchObject({
      status: 409,
      body: { error: { code: 'vpc_in_use', message: expect.stringContaining('1 vm interface') } },
    });
    await bench.internal('POST', 'ports/release', { operation_id: port.id, account_id: bench.account });
    expect(await bench.api('DELETE', `vpcs/${vpc.id}`)).toMatchObject({ status: 204, text: '' });
    expect((await bench.api('DELETE', `vpcs/${vpc.id}`)).status).toBe(404);
    expect((await bench.api('GET', `vpcs/${vpc.id}`)).status).toBe(404);
    expect((await bench.internal('GET', `owners/vpc/${vpc.id}`)).status).toBe(404);
    expect((await bench.claim({ vpc_id: vpc.id })).status).toBe(404);
  });

  it('a delete and a claim at once: one of them loses, never both win', async () => {
    for (let round = 0; round < 10; round += 1) {
      const vpc = await bench.vpc();
      const [deleted, claimed] = await Promise.all([
        bench.api('DELETE', `vpcs/${vpc.id}`),
        bench.claim({ vpc_id: vpc.id }),
      ]);
      expect([`204 404`, `409 200`]).toContain(`${deleted.status} ${claimed.status}`);
    }
  });

  it('wait: 422 for unknown words and times, and an answer once the time is over', async () => {
    const vpc = await bench.vpc();
    for (const query of ['wait=done', 'wait=active&timeout=0', 'timeout=61'])
      expect((await bench.api('GET', `vpcs/${vpc.id}?${query}`)).status).toBe(422);
    expect((await bench.api('GET', `vpcs/${vpc.id}?wait=active&timeout=1`)).body.status).toBe('pending');
    expect((await bench.api('GET', `vpcs/${vpc.id}?wait=pending&timeout=60`)).body.status).toBe('pending');
  });
});

describe('GET /vpcs', () => {
  it('pages from the oldest on, by region, and shows what the policy allows', async () => {
    const account = keyOf(randomUUID());
    const made: V1Vpc[] = [];
    for (const [third, cluster_id] of [region, region, otherRegion].entries())
      made.push(await bench.vpc({ subnet: `10.50.${third}.0/24`, cluster_id }, account));
    const list = async (query = '', as = account) =>
      (await bench.api('GET', `vpcs${query}`, undefined, as)).body;
    expect(await list()).toEqual({ data: made, limit: 50, offset: 0, count: 3, total: 3 });
    expect(await list('?limit=1&offset=1')).toMatchObject({
      data: [{ id: made[1]!.id }],
      count: 1,
      total: 3,
    });
    expect((await list(`?cluster_id=${otherRegion}`)).data).toEqual([made[2]]);
    expect(await list('?cluster_id=nowhere')).toMatchObject({ data: [], total: 0 });
    const only = (effect: 'allow' | 'deny', id: string) => ({
      effect,
      actions: ['vpc:*'],
      resources: [`vpc:${id}`],
    });
    const allow = { ...account, policy: [only('allow', made[0]!.id)] };
    expect((await list('', allow)).data).toEqual([made[0]]);
    const deny = { ...account, policy: [...account.policy, only('deny', made[0]!.id)] };
    expect((await list('', deny)).total).toBe(2);
    const nothing = {
      ...account,
      policy: [{ effect: 'allow' as const, actions: ['app:*'], resources: ['*'] }],
    };
    expect(await list('', nothing)).toMatchObject({ data: [], total: 0 });
    expect((await bench.api('GET', 'vpcs?limit=0', undefined, account)).status).toBe(422);
  });
});

describe('owners', () => {
  it('says whose a VPC is; 404 for what is none', async () => {
    const vpc = await bench.vpc();
    expect((await bench.internal('GET', `owners/vpc/${vpc.id}`)).body).toEqual({
      account_id: bench.account,
      region_id: region,
      project_id: null,
      parents: [],
    });
    expect((await bench.internal('GET', `owners/vpc/${randomUUID()}`)).status).toBe(404);
    expect((await bench.internal('GET', 'owners/vpc/x')).status).toBe(404);
  });
});

describe('a life without a region', () => {
  it('a VPC that no agent reports is still deletable, and goes on being wanted gone', async () => {
    const vpc = await bench.vpc();
    expect((await bench.api('DELETE', `vpcs/${vpc.id}`)).status).toBe(204);
    const row = await eventually('it is being removed', async () => {
      const [found] = await bench.sql<{ status: string }>('select status from vpc where id = $1', [vpc.id]);
      return found?.status === 'deleting' && found;
    });
    expect(row.status).toBe('deleting');
  });
});
