import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { Api, ContractCheck, readContract } from '../harness/api.js';
import { Nebo, until } from '../harness/nebo.js';

const contract = new ContractCheck(readContract('v1'));

/** From the public door to the region's agent and back, in one process; the region is an address book. */
describe('private networks', () => {
  let nebo: Nebo;
  let api: Api;
  let region: string;
  beforeAll(async () => {
    nebo = await Nebo.start({ NEBO_DRIVERS: 'networks=simulated' });
    api = new Api(nebo.credentials.base_url, nebo.credentials.accounts[0]!.api_key, contract);
    region = (await nebo.admin('region', 'list')).data[0].id;
  });
  afterAll(() => nebo?.dispose());

  it('create, wait until active, reserve an address, overlap 409, occupied 409, delete', async () => {
    const body = { name: 'backend', subnet: '10.20.0.0/16', cluster_id: region };
    const created = await api.post('/vpcs', body);
    expect(created).toMatchObject({
      status: 201,
      body: { name: 'backend', is_default: false, nat_gateway: null },
    });
    const path = `/vpcs/${created.body.id}`;
    expect((await api.get(`${path}?wait=active&timeout=30`)).body).toMatchObject({
      status: 'active',
      status_reason: null,
    });
    expect((await api.get(`/vpcs?cluster_id=${region}`)).body).toMatchObject({
      count: 1,
      total: 1,
      data: [{ id: created.body.id, status: 'active' }],
    });

    expect(await api.post('/vpcs', { ...body, name: 'other', subnet: '10.20.7.0/24' })).toMatchObject({
      status: 409,
      body: { error: { code: 'subnet_overlaps' } },
    });
    expect(await api.post('/vpcs', { ...body, subnet: '10.21.0.0/16' })).toMatchObject({
      status: 409,
      body: { error: { code: 'name_taken' } },
    });
    expect(await api.post('/vpcs', { ...body, subnet: '10.0.0.0/16' })).toMatchObject({
      status: 400,
      body: { error: { code: 'invalid_subnet' } },
    });

    const reserved = await api.post(`${path}/reserved-ips`, {
      name: 'db',
      address: '10.20.0.10',
      mac: '02:00:00:00:00:10',
    });
    expect(reserved).toMatchObject({ status: 201, body: { address: '10.20.0.10' } });
    expect((await api.get(`${path}/reserved-ips`)).body.data).toEqual([reserved.body]);
    expect(await api.delete(path)).toMatchObject({ status: 409, body: { error: { code: 'vpc_in_use' } } });
    expect((await api.delete(`${path}/reserved-ips/${reserved.body.id}`)).status).toBe(204);
    expect((await api.patch(path, { name: 'renamed' })).body).toMatchObject({
      name: 'renamed',
      status: 'active',
    });

    expect((await api.delete(path)).status).toBe(204);
    expect((await api.get(path)).status).toBe(404);
    expect((await api.get('/vpcs')).body.total).toBe(0);
    // The range is free at once.
    expect((await api.post('/vpcs', body)).status).toBe(201);
  });

  it('what was done is in the account’s audit log', async () => {
    const actions = async () =>
      ((await api.get('/audit-log?limit=200')).body.data as { action: string; resource: string }[]).filter(
        ({ resource }) => resource.startsWith('vpc:'),
      );
    await until(async () => (await actions()).length >= 6);
    expect(new Set((await actions()).map(({ action }) => action))).toEqual(
      new Set([
        'networking_create_vpc',
        'networking_update_vpc',
        'networking_delete_vpc',
        'networking_create_reserved_ip',
        'networking_delete_reserved_ip',
      ]),
    );
  });

  it('a key for one VPC sees and changes that one; another account’s VPC is 404', async () => {
    const vpc = (await api.post('/vpcs', { name: 'one', subnet: '10.40.0.0/24', cluster_id: region })).body;
    const account = nebo.credentials.accounts[0]!.account_id;
    const narrow = await nebo.admin(
      ...['key', 'create', '--account', account, '--actions', 'vpc:read,vpc:write'],
      ...['--resources', `vpc:${vpc.id}`],
    );
    const mine = api.as(narrow.key);
    expect((await mine.get('/vpcs')).body).toMatchObject({ total: 1, data: [{ id: vpc.id }] });
    expect((await mine.patch(`/vpcs/${vpc.id}`, { name: 'mine' })).status).toBe(200);
    expect(await mine.post('/vpcs', { name: 'x', subnet: '10.50.0.0/24', cluster_id: region })).toMatchObject(
      {
        status: 403,
        body: { error: { message: expect.stringContaining('vpc:write') } },
      },
    );
    const other = await nebo.admin('account', 'create', '--name', 'other');
    const stranger = api.as((await nebo.admin('key', 'create', '--account', other.account_id)).key);
    const [foreign, absent] = [
      await stranger.get(`/vpcs/${vpc.id}`),
      await stranger.get(`/vpcs/${randomUUID()}`),
    ];
    expect([foreign.status, foreign.text]).toEqual([404, absent.text]);
    expect((await stranger.get('/vpcs')).body.total).toBe(0);
  });

  it('a floating IP: 402 without a month’s price, charged from the order on, labelled, released', async () => {
    const poor = await nebo.admin('account', 'create', '--name', 'poor', '--topup', '179.99');
    const beggar = api.as((await nebo.admin('key', 'create', '--account', poor.account_id)).key);
    expect(await beggar.post('/floating-ips', { cluster_id: region })).toMatchObject({
      status: 402,
      body: { error: { code: 'insufficient_balance' } },
    });
    await nebo.admin('account', 'topup', '--account', poor.account_id, '--amount', '0.01');
    const ordered = await beggar.post('/floating-ips', { cluster_id: region, name: 'front' });
    expect(ordered).toMatchObject({
      status: 201,
      body: { status: 'available', target_kind: 'interface', auto_release: false, monthly_price: '180.00' },
    });
    const path = `/floating-ips/${ordered.body.id}`;
    expect((await beggar.get('/floating-ips')).body).toMatchObject({ total: 1, data: [ordered.body] });
    expect((await beggar.patch(path, {})).body.name).toBeNull();
    expect((await api.get(path)).status).toBe(404);
    expect((await beggar.delete(path)).status).toBe(204);
    expect((await beggar.get(path)).status).toBe(404);
    // What is charged is the time that it was held: less than an hour's price (180 rubles / 720 h at the least).
    await until(async () => {
      const { balance, available } = (await beggar.get('/account/balance')).body;
      return balance === available && Number(balance) < 180 && Number(balance) > 179.7;
    });
  });
});

const lacking =
  process.platform !== 'linux' || process.getuid?.() !== 0
    ? 'Linux and root'
    : ['/usr/sbin/nft', '/usr/sbin/dnsmasq'].filter((path) => !existsSync(path)).join(', ');

(lacking ? describe.skip : describe)(
  `private networks on this host${lacking ? ` (SKIPPED: it lacks ${lacking})` : ''}`,
  () => {
    let nebo: Nebo;
    let api: Api;
    beforeAll(async () => {
      nebo = await Nebo.start({ NEBO_DRIVERS: 'networks=local' });
      api = new Api(nebo.credentials.base_url, nebo.credentials.accounts[0]!.api_key, contract);
    });
    afterAll(() => nebo?.dispose());
    const spaceOf = async (id: string) =>
      (await readdir('/run/netns').catch(() => [])).find((name) => name.endsWith(id));

    it('a VPC is a namespace, its reserved IP is in DHCP; both outlive a kill -9; SIGTERM leaves nothing', async () => {
      const cluster_id = (await nebo.admin('region', 'list')).data[0].id;
      const make = async (name: string, subnet: string): Promise<string> => {
        const { id } = (await api.post('/vpcs', { name, subnet, cluster_id })).body;
        expect((await api.get(`/vpcs/${id}?wait=active&timeout=30`)).body.status).toBe('active');
        return id;
      };
      const [kept, removed] = [await make('kept', '10.20.0.0/24'), await make('removed', '10.30.0.0/24')];
      const space = (await spaceOf(kept))!;
      const tag = space.split('-')[1]!;
      const mac = '02:00:00:00:00:10';
      await api.post(`/vpcs/${kept}/reserved-ips`, { name: 'db', address: '10.20.0.10', mac });
      const hosts = () => readFile(`/run/nebo-networks/${tag}/${kept}/hosts`, 'utf8').catch(() => '');
      await until(async () => (await hosts()) === `${mac},10.20.0.10\n`);

      await nebo.down('SIGKILL');
      expect(await spaceOf(kept)).toBe(space);
      await nebo.up();
      expect((await api.delete(`/vpcs/${removed}`)).status).toBe(204);
      await until(async () => (await spaceOf(removed)) === undefined);
      expect((await api.get(`/vpcs/${kept}`)).body.status).toBe('active');
      expect(await spaceOf(kept)).toBe(space);
      expect(await hosts()).toBe(`${mac},10.20.0.10\n`);

      expect((await nebo.down()).code).toBe(0);
      expect(await spaceOf(kept)).toBeUndefined();
      expect(existsSync(`/run/nebo-networks/${tag}`)).toBe(false);
    }, 120_000);
  },
);
