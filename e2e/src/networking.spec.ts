import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { Api, ContractCheck, readContract } from '../harness/api.js';
import { nothingLost } from '../harness/audit.js';
import { forms, type Installation } from '../harness/forms.js';
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

  it('kill -9 while a gateway goes and an address is released: both go on, nothing stays held', async () => {
    const { id } = (await api.post('/vpcs', { name: 'out', subnet: '10.60.0.0/24', cluster_id: region }))
      .body;
    await api.get(`/vpcs/${id}?wait=active&timeout=30`);
    const { fip_id } = (await api.post(`/vpcs/${id}/nat-gateway`)).body;
    await until(async () => (await api.get(`/vpcs/${id}`)).body.nat_gateway.status === 'attached');
    expect((await api.delete(`/vpcs/${id}/nat-gateway`)).status).toBe(202);
    const other = (await api.post('/floating-ips', { cluster_id: region })).body;
    expect((await api.delete(`/floating-ips/${other.id}`)).status).toBe(204);
    await nebo.down('SIGKILL');
    await nebo.up();
    await until(async () => (await api.get(`/floating-ips/${fip_id}`)).status === 404, 60_000);
    expect((await api.get(`/vpcs/${id}`)).body.nat_gateway).toBeNull();
    expect((await nebo.admin('pool', 'list')).data).toMatchObject([{ total: 256, held: 0, free: 256 }]);
    expect((await api.delete(`/vpcs/${id}`)).status).toBe(204);
    // What is charged from now on is nothing.
    const balance = async () => (await api.get('/account/balance')).body;
    await until(async () => {
      const { balance: all, available } = await balance();
      return all === available;
    });
  }, 120_000);

  it('nothing is lost or left over, says the audit', () => nothingLost(nebo), 90_000);
});

/** Public addresses in the order in which existing clients ask (contract/4, section 3); the region is an address book. */
describe.each(forms)('public addresses $form', ({ missing, start }) => {
  const check = missing ? it.skip : it;
  let nebo: Installation;
  let api: Api;
  let region: string;
  let project: string;
  beforeAll(async () => {
    if (missing) return;
    nebo = await start({ NEBO_DRIVERS: 'machines=simulated,networks=simulated' });
    api = new Api(nebo.baseUrl, nebo.key, contract);
    [{ id: region }] = (await api.get('/regions')).body.data;
    [{ id: project }] = (await api.get('/projects')).body.data;
  }, 120_000);
  afterAll(() => nebo?.stop());

  const wait = async (path: string, status: string) => {
    const { body } = await api.get(`${path}?wait=${status}&timeout=30`);
    expect(body).toMatchObject({ status });
    return body;
  };
  const network = async (name: string, subnet: string) => {
    const { id } = (await api.post('/vpcs', { name, subnet, cluster_id: region })).body;
    return wait(`/vpcs/${id}`, 'active');
  };

  const machine = async (name: string, nic: Record<string, unknown>) => {
    const [plan] = (await api.get('/vm-plans')).body.data;
    const [image] = (await api.get(`/projects/${project}/images?cluster_id=${region}`)).body.images;
    const { body } = await api.post(`/projects/${project}/vms`, {
      ...{ name, hostname: name, image_id: image.id, vm_plan_id: plan.id, cluster_id: region },
      ...{ default_user: 'me', period_days: 3, interfaces: [{ type: 'vpc', dhcp4: true, ...nic }] },
    });
    return wait(`/vms/${body.id}`, 'active');
  };

  check(
    'order, attach to a machine’s interface, detach, attach again; available when the machine is gone',
    async () => {
      const vpc = await network('front', '10.30.0.0/24');
      const vm = await machine('web', { vpc_id: vpc.id });
      const [nic] = vm.interfaces.filter(({ vpc_id }: { vpc_id: string }) => vpc_id === vpc.id);

      const fip = (await api.post('/floating-ips', { cluster_id: region, name: 'web' })).body;
      expect(fip).toMatchObject({ status: 'available', target_kind: 'interface', vm_interface_id: null });
      const path = `/floating-ips/${fip.id}`;
      const attached = await api.post(`${path}/attach`, { vm_interface_id: nic.id });
      expect(attached).toMatchObject({ status: 200, body: { vm_interface_id: nic.id, vm_id: vm.id } });
      expect(['attaching', 'attached']).toContain(attached.body.status);
      expect(await wait(path, 'attached')).toMatchObject({
        address: fip.address,
        internal_address: nic.ipv4_addresses[0].split('/')[0],
        vm_project_id: project,
        vpc_id: vpc.id,
        auto_release: false,
      });
      expect((await api.get(`/vms/${vm.id}`)).body.floating_ips).toEqual([
        { id: fip.id, address: fip.address, status: 'attached' },
      ]);
      expect(await api.post(`${path}/attach`, { vm_interface_id: nic.id })).toMatchObject({ status: 409 });
      expect(await api.delete(path)).toMatchObject({
        status: 409,
        body: { error: { code: 'floating_ip_attached' } },
      });

      const headers = { 'content-type': 'application/json' };
      const off = await api.post(`${path}/detach`, undefined, { headers });
      expect(off).toMatchObject({ status: 200, body: { vm_interface_id: null, status: 'detaching' } });
      expect(await wait(path, 'available')).toEqual(fip);
      await api.post(`${path}/attach`, { vm_interface_id: nic.id });
      await wait(path, 'attached');

      expect((await api.delete(`/vms/${vm.id}`)).status).toBe(202);
      await until(async () => (await api.get(`/vms/${vm.id}`)).status === 404);
      expect(await wait(path, 'available')).toEqual(fip);
      expect((await api.delete(path)).status).toBe(204);
      expect((await api.get(path)).status).toBe(404);
      expect((await api.delete(`/vpcs/${vpc.id}`)).status).toBe(204);
    },
  );

  check('an address that is ordered with a machine goes with it; one taken off by hand stays', async () => {
    const vpc = await network('own', '10.32.0.0/24');
    for (const kept of [false, true]) {
      const vm = await machine(kept ? 'kept' : 'gone', { vpc_id: vpc.id, floating_ip: true });
      const path = `/floating-ips/${vm.floating_ips[0].id}`;
      expect(await wait(path, 'attached')).toMatchObject({
        auto_release: true,
        vm_id: vm.id,
        vm_interface_id: vm.interfaces[0].id,
        vm_project_id: project,
      });
      if (kept) {
        await api.post(`${path}/detach`);
        expect(await wait(path, 'available')).toMatchObject({ auto_release: false });
      }
      expect((await api.delete(`/vms/${vm.id}`)).status).toBe(202);
      await until(async () => (await api.get(`/vms/${vm.id}`)).status === 404);
      expect((await api.get(path)).status).toBe(kept ? 200 : 404);
      if (kept) expect((await api.delete(path)).status).toBe(204);
    }
    await until(async () => (await api.delete(`/vpcs/${vpc.id}`)).status === 204);
  });

  check(
    'a NAT gateway with an ordered and with a brought address: every look of a client is one it understands',
    async () => {
      const vpc = await network('back', '10.31.0.0/24');
      const path = `/vpcs/${vpc.id}`;
      for (const brought of [null, (await api.post('/floating-ips', { cluster_id: region })).body]) {
        expect((await api.get(path)).body).toMatchObject({ status: 'active', nat_gateway: null });
        const enabled = await api.post(`${path}/nat-gateway`, brought ? { fip_id: brought.id } : {});
        expect(enabled).toMatchObject({ status: 201, body: { enabled: true, last_error: null } });
        const { fip_id, address } = enabled.body;
        if (brought) expect([fip_id, address]).toEqual([brought.id, brought.address]);
        expect(await api.post(`${path}/nat-gateway`)).toMatchObject({
          status: 409,
          body: { error: { code: 'nat_gateway_exists' } },
        });
        await until(async () => {
          const { nat_gateway: seen } = (await api.get(path)).body;
          expect(seen).toMatchObject({ enabled: true, fip_id, address });
          expect(['attaching', 'attached']).toContain(seen.status);
          return seen.status === 'attached';
        });
        expect((await api.get(`/floating-ips/${fip_id}`)).body).toMatchObject({
          status: 'attached',
          target_kind: 'vpc_nat',
          vpc_id: vpc.id,
          auto_release: true,
        });
        expect(await api.delete(path)).toMatchObject({
          status: 409,
          body: { error: { code: 'vpc_in_use' } },
        });

        const disabled = await api.delete(`${path}/nat-gateway`);
        expect(disabled).toMatchObject({
          status: 202,
          body: { enabled: false, status: 'detaching', fip_id },
        });
        await until(async () => {
          const { nat_gateway: shown } = (await api.get(path)).body;
          const { status, body } = await api.get(`/floating-ips/${fip_id}`);
          if (shown) expect(shown).toMatchObject({ fip_id, status: 'detaching' });
          if (status === 404) {
            expect(shown).toBeNull();
            return true;
          }
          expect(body.auto_release).toBe(true);
          if (body.target_kind === 'vpc_nat') expect(shown && body.vpc_id).toBe(vpc.id);
          else expect(body).toMatchObject({ target_kind: 'interface', vpc_id: null, vm_interface_id: null });
          return false;
        });
      }
      expect((await api.delete(`${path}/nat-gateway`)).status).toBe(404);
      expect((await api.delete(path)).status).toBe(204);
      expect((await api.get('/floating-ips')).body.total).toBe(0);
    },
  );

  check('a range that the operator adds to another region gives addresses there', async () => {
    const far = await nebo.admin('region', 'add', '--name', 'far');
    const order = () => api.post('/floating-ips', { cluster_id: far.id });
    // A new region is known to all within 10 s.
    await until(async () => (await order()).status === 503);
    const added = await nebo.admin('pool', 'add', '--region', far.id, '--range', '198.51.100.4/32');
    expect(added).toMatchObject({ range: '198.51.100.4/32', total: 1, free: 1 });
    const ordered = await order();
    expect(ordered).toMatchObject({ status: 201, body: { address: '198.51.100.4' } });
    expect(await order()).toMatchObject({ status: 503, body: { error: { code: 'no_capacity' } } });
    const { data } = await nebo.admin('pool', 'list');
    expect(data).toMatchObject([
      { range: '203.0.113.0/24', total: 256 },
      { range: '198.51.100.4/32', held: 1 },
    ]);
    expect((await api.delete(`/floating-ips/${ordered.body.id}`)).status).toBe(204);
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
