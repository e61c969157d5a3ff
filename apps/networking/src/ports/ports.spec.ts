import { randomUUID } from 'node:crypto';
import type { PortInfo } from '@nebo/contracts';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, otherRegion, region } from '../../test/harness.js';

let bench: Bench;
beforeAll(async () => {
  bench = await Bench.start();
});
afterAll(async () => {
  await bench?.close();
  await (await sharedPostgres()).stop();
});

const release = (operation_id: string, account_id: string = bench.account) =>
  bench.internal('POST', 'ports/release', { operation_id, account_id });
const addresses = async (ids: string[], account_id: string = bench.account): Promise<PortInfo[]> =>
  (await bench.internal('POST', 'ports/addresses', { account_id, ids })).body.ports;

describe('claim', () => {
  it('gives the lowest free addresses behind the gateway and MACs of one interface', async () => {
    const vpc = await bench.vpc({ subnet: '192.168.10.0/28' });
    const ports: PortInfo[] = [];
    for (const kind of ['vm_interface', 'replica', 'nat_gateway'])
      ports.push((await bench.claim({ vpc_id: vpc.id, kind })).body);
    expect(ports.map(({ address }) => address)).toEqual(['192.168.10.2', '192.168.10.3', '192.168.10.4']);
    expect(ports[0]).toEqual({
      id: expect.any(String),
      kind: 'vm_interface',
      owner: expect.stringMatching(/^vm:/),
      vpc_id: vpc.id,
      region_id: region,
      address: '192.168.10.2',
      prefix: 28,
      gateway: '192.168.10.1',
      mac: expect.stringMatching(/^02(:[0-9a-f]{2}){5}$/),
      floating_ip: null,
    });
    expect(new Set(ports.map(({ mac }) => mac)).size).toBe(3);
    await release(ports[1]!.id);
    expect((await bench.claim({ vpc_id: vpc.id })).body.address).toBe('192.168.10.3');
  });

  it('fills a subnet to the last host address, then 409 subnet_full', async () => {
    const vpc = await bench.vpc({ subnet: '192.168.11.16/28' });
    const answers = [];
    for (let count = 0; count < 14; count += 1) answers.push(await bench.claim({ vpc_id: vpc.id }));
    expect(answers.slice(0, 13).map(({ body }) => body.address)).toEqual(
      Array.from({ length: 13 }, (_, index) => `192.168.11.${18 + index}`),
    );
    expect(answers[13]).toMatchObject({ status: 409, body: { error: { code: 'subnet_full' } } });
  });

  it('many at once get an address each', async () => {
    const vpc = await bench.vpc();
    const answers = await Promise.all(Array.from({ length: 20 }, () => bench.claim({ vpc_id: vpc.id })));
    expect(answers.map(({ status }) => status)).toEqual(Array(20).fill(200));
    expect(new Set(answers.map(({ body }) => body.address)).size).toBe(20);
    expect(new Set(answers.map(({ body }) => body.mac)).size).toBe(20);
  });

  it('a repeat answers the first one, also when two run at once; another content under the id is 409', async () => {
    const vpc = await bench.vpc();
    const request = { operation_id: randomUUID(), owner: `vm:${randomUUID()}`, vpc_id: vpc.id };
    const answers = await Promise.all([bench.claim(request), bench.claim(request), bench.claim(request)]);
    for (const answer of answers) expect(answer).toMatchObject({ status: 200, body: answers[0]!.body });
    expect((await bench.claim({ ...request, vpc_id: vpc.id.toUpperCase() })).body).toEqual(answers[0]!.body);
    expect(await bench.claim({ ...request, kind: 'replica' })).toMatchObject({
      status: 409,
      body: { error: { code: 'operation_reused' } },
    });
    const [counted] = await bench.sql<{ count: number }>(
      'select count(*)::int as count from port where vpc_id = $1',
      [vpc.id],
    );
    expect(counted!.count).toBe(1);
  });

  it('an address and a MAC that the caller names: canonical, and 409 when they are in use', async () => {
    const vpc = await bench.vpc({ subnet: '192.168.12.0/24' });
    const wanted = { vpc_id: vpc.id, address: '192.168.12.77', mac: '02-AA-BB-CC-DD-EE' };
    expect((await bench.claim(wanted)).body).toMatchObject({
      address: '192.168.12.77',
      mac: '02:aa:bb:cc:dd:ee',
    });
    const refusals = [
      [{ address: '192.168.12.77' }, 409, 'address_in_use'],
      [{ address: '192.168.12.1' }, 409, 'address_in_use'],
      [{ mac: '02:aa:bb:cc:dd:ee' }, 409, 'mac_in_use'],
      [{ address: '192.168.12.0' }, 400, 'address_outside_subnet'],
      [{ address: '192.168.12.255' }, 400, 'address_outside_subnet'],
      [{ address: '192.168.13.1' }, 400, 'address_outside_subnet'],
      [{ address: '192.168.12.256' }, 422, 'validation_error'],
      [{ mac: '01:00:5e:00:00:01' }, 422, 'validation_error'],
      [{ kind: 'volume' }, 422, 'validation_error'],
      [{ operation_id: 'x' }, 422, 'validation_error'],
    ] as const;
    for (const [more, status, code] of refusals)
      expect(await bench.claim({ vpc_id: vpc.id, ...more })).toMatchObject({
        status,
        body: { error: { code } },
      });
  });

  it('404 for a VPC that is absent or another account’s, 400 for another region’s', async () => {
    const vpc = await bench.vpc();
    const foreign = await bench.vpc({}, bench.stranger);
    for (const vpc_id of [randomUUID(), foreign.id])
      expect(await bench.claim({ vpc_id })).toMatchObject({
        status: 404,
        body: { error: { message: 'vpc_id: not found' } },
      });
    expect(await bench.claim({ vpc_id: vpc.id, region_id: otherRegion })).toMatchObject({
      status: 400,
      body: { error: { code: 'vpc_region_mismatch' } },
    });
    expect((await bench.claim({ vpc_id: vpc.id, region_id: region })).status).toBe(200);
  });

  it('403 for a service that acts for another account than its body names, 401 for a key', async () => {
    const body = {
      operation_id: randomUUID(),
      account_id: bench.account,
      kind: 'replica',
      owner: `app:${randomUUID()}`,
      vpc_id: null,
      region_id: region,
    };
    expect((await bench.internal('POST', 'ports/claim', body, randomUUID())).status).toBe(403);
    const asKey = { method: 'POST', path: '/internal/v1/ports/claim', as: bench.key, body };
    expect((await bench.nebo.request('networking', asKey)).status).toBe(401);
  });
});

describe('the default VPC', () => {
  const claimIn = (account_id: string, region_id: string | null = region) =>
    bench.claim({ account_id, region_id });
  const listOf = async (account_id: string) =>
    (await bench.api('GET', 'vpcs', undefined, { ...bench.key, account_id })).body.data;

  it('is made on first use, once, by however many at once; one per region', async () => {
    const account = randomUUID();
    const answers = await Promise.all(Array.from({ length: 6 }, () => claimIn(account)));
    expect(new Set(answers.map(({ body }) => body.vpc_id)).size).toBe(1);
    expect((await claimIn(account, otherRegion)).body.vpc_id).not.toBe(answers[0]!.body.vpc_id);
    expect(await listOf(account)).toMatchObject([
      { name: 'default', is_default: true, subnet: '10.128.0.0/20', status: 'pending' },
      { name: 'default', is_default: true, cluster_id: otherRegion },
    ]);
  });

  it('takes a range and a name that the account’s other VPCs leave', async () => {
    const account = randomUUID();
    const as = { ...bench.key, account_id: account };
    await bench.vpc({ name: 'Default', subnet: '10.128.0.0/16' }, as);
    await claimIn(account);
    expect(await listOf(account)).toMatchObject([
      { is_default: false },
      { name: 'default-2', subnet: '10.129.0.0/20', is_default: true },
    ]);
  });

  it('422 without a region', async () => {
    expect((await claimIn(randomUUID(), null)).status).toBe(422);
  });
});

describe('release and addresses', () => {
  it('frees address and MAC; repeats and unknown ids are fine; a claim that comes late makes nothing', async () => {
    const vpc = await bench.vpc();
    const operation_id: string = randomUUID();
    const claimed = await bench.claim({ operation_id, vpc_id: vpc.id });
    expect(claimed.status).toBe(200);
    for (let count = 0; count < 2; count += 1) expect((await release(operation_id)).status).toBe(200);
    expect(await addresses([operation_id])).toEqual([]);
    const never: string = randomUUID();
    expect((await release(never)).status).toBe(200);
    for (const id of [operation_id, never])
      expect(await bench.claim({ operation_id: id, vpc_id: vpc.id })).toMatchObject({
        status: 409,
        body: { error: { code: 'already_released' } },
      });
  });

  it('another account releases and reads nothing', async () => {
    const vpc = await bench.vpc();
    const { body } = await bench.claim({ vpc_id: vpc.id });
    expect((await release(body.id, bench.stranger.account_id)).status).toBe(200);
    expect(await addresses([body.id], bench.stranger.account_id)).toEqual([]);
    expect(await addresses([body.id, randomUUID()])).toEqual([body]);
    expect((await release(body.id)).status).toBe(200);
    expect(await addresses([body.id])).toEqual([]);
  });

  it('claim and release at once leave no port behind', async () => {
    const vpc = await bench.vpc();
    for (let round = 0; round < 10; round += 1) {
      const operation_id: string = randomUUID();
      await Promise.all([bench.claim({ operation_id, vpc_id: vpc.id }), release(operation_id)]);
      expect(await addresses([operation_id])).toEqual([]);
    }
  });

  it('422 for what are no ids', async () => {
    const body = { account_id: bench.account, ids: ['x'] };
    expect((await bench.internal('POST', 'ports/addresses', body)).status).toBe(422);
  });
});
