import { generateKeyPairSync } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseRubles } from '@nebo/contracts';
import { nothingLost } from '../harness/audit.js';
import { Api, ContractCheck, readContract } from '../harness/api.js';
import { Nebo, until } from '../harness/nebo.js';

const contract = new ContractCheck(readContract('v1'));

/** A public key in OpenSSH form. */
function publicKey(): string {
  const raw = generateKeyPairSync('ed25519').publicKey.export({ format: 'der', type: 'spki' }).subarray(-32);
  const field = (bytes: Buffer) => Buffer.concat([Buffer.from([0, 0, 0, bytes.length]), bytes]);
  return `ssh-ed25519 ${Buffer.concat([field(Buffer.from('ssh-ed25519')), field(raw)]).toString('base64')} me`;
}

/** From the public door to the region's agent and back, in one process; the region only simulates machines. */
describe('machines', () => {
  let nebo: Nebo;
  let api: Api;
  let project: string;
  let order: Record<string, unknown>;
  beforeAll(async () => {
    nebo = await Nebo.start({ NEBO_DRIVERS: 'machines=simulated,networks=simulated' });
    const [demo] = nebo.credentials.accounts;
    api = new Api(nebo.credentials.base_url, demo!.api_key, contract);
    project = demo!.project_id;
    const [region] = (await api.get('/regions')).body.data;
    const [plan] = (await api.get('/vm-plans')).body.data;
    const { images, families } = (await api.get(`/projects/${project}/images?cluster_id=${region.id}`)).body;
    expect(families[0].versions[0].by_cluster[region.id]).toBe(images[0].id);
    order = {
      hostname: 'web',
      image_id: images[0].id,
      vm_plan_id: plan.id,
      cluster_id: region.id,
      default_user: 'me',
      period_days: 3,
    };
  });
  afterAll(() => nebo?.dispose());

  const balance = async () => parseRubles((await api.get('/account/balance')).body.balance);
  const reach = async (id: string, status: string) => {
    const { body } = await api.get(`/vms/${id}?wait=${status}&timeout=30`);
    expect(body).toMatchObject({ status, status_reason: null });
    return body;
  };
  const gone = (id: string) => until(async () => (await api.get(`/vms/${id}`)).status === 404, 30_000);
  /** Nothing of any machine is left: in the list, in the networks, on the region's host. */
  const nothingLeft = async () => {
    expect((await api.get('/vms')).body).toMatchObject({ data: [], total: 0 });
    for (const vpc of (await api.get('/vpcs')).body.data) {
      const path = `/vpcs/${vpc.id}`;
      expect((await api.delete(path)).status).toBe(204);
      await until(async () => (await api.get(path)).status === 404, 30_000);
    }
    const file = join(nebo.home, 'region-agent/machines/machines.log');
    await until(async () => readFileSync(file, 'utf8') === '', 30_000);
  };

  it('says at start that its machines are not real', () => {
    expect(nebo.output).toContain('machines are simulated, nothing of them is real');
  });

  it('create, wait, stop, start, restart, delete: charged once, nothing is left', async () => {
    const before = await balance();
    const key = (await api.post('/ssh-keys', { name: 'laptop', public_key: publicKey() })).body;
    const body = { ...order, name: 'web', ssh_key_ids: [key.id], cloud_init: '#cloud-config\n' };
    const created = await api.post(`/projects/${project}/vms`, body);
    expect(created).toMatchObject({ status: 201, body: { name: 'web', project_id: project } });
    const path = `/vms/${created.body.id}`;
    const vm = await reach(created.body.id, 'active');
    expect(vm).toMatchObject({
      simulated: true,
      interfaces: [{ type: 'vpc', vpc_id: expect.any(String), ipv4_addresses: [expect.any(String)] }],
      paid_until: expect.stringMatching(/Z$/),
    });
    expect(await api.delete(`/vpcs/${vm.interfaces[0].vpc_id}`)).toMatchObject({ status: 409 });

    for (const [verb, entered, reached] of [
      ['stop', 'stopping', 'stopped'],
      ['start', 'starting', 'active'],
      ['restart', 'restarting', 'active'],
    ] as const) {
      expect(await api.post(`${path}/${verb}`)).toMatchObject({ status: 200, body: { status: entered } });
      await reach(vm.id, reached);
    }
    expect((await api.patch(path, { name: 'renamed', auto_renew: false })).body.name).toBe('renamed');

    const charged = before - (await balance());
    expect(charged).toBeGreaterThan(0n);
    const lines = (await api.get('/account/ledger?limit=200')).body.data;
    expect(JSON.stringify(lines)).toContain('machine web, plan nano');
    expect(await api.delete(path)).toMatchObject({ status: 202, body: { status: 'deleting' } });
    await gone(vm.id);
    expect(before - (await balance())).toBe(charged);
    expect((await api.delete(`/ssh-keys/${key.id}`)).status).toBe(204);
    await nothingLeft();
    await until(async () => {
      const acts = (await api.get('/audit-log?limit=200')).body.data.map(
        ({ action }: { action: string }) => action,
      );
      return ['vms_create_vm', 'vms_stop_vm', 'vms_delete_vm', 'ssh_keys_create_ssh_key'].every((act) =>
        acts.includes(act),
      );
    }, 30_000);
  });

  it('402 with nothing made for an account without money', async () => {
    const poor = await nebo.admin('account', 'create', '--name', 'poor', '--topup', '1');
    const { key } = await nebo.admin('key', 'create', '--account', poor.account_id);
    const own = api.as(key);
    const [its] = (await own.get('/projects')).body.data;
    const refused = await own.post(`/projects/${its.id}/vms`, { ...order, name: 'dear' });
    expect(refused).toMatchObject({ status: 402, body: { error: { code: 'insufficient_balance' } } });
    expect((await own.get('/vms')).body.total).toBe(0);
    expect((await own.get('/account/balance')).body.balance).toBe('1.00');
  });

  it('survives kill -9 in the middle: machines that ran run on, those under way are made, nothing is charged twice', async () => {
    const before = await balance();
    const steady = (await api.post(`/projects/${project}/vms`, { ...order, name: 'steady' })).body
      .id as string;
    await reach(steady, 'active');
    const one = before - (await balance());
    const started = await Promise.all(
      [1, 2, 3, 4].map(
        async (n) => (await api.post(`/projects/${project}/vms`, { ...order, name: `m${n}` })).body.id,
      ),
    );
    await nebo.down('SIGKILL');
    await nebo.up();
    expect((await reach(steady, 'active')).interfaces).toHaveLength(1);
    for (const id of started) await reach(id as string, 'active');
    expect(before - (await balance())).toBe(5n * one);
    for (const id of [steady, ...started]) expect((await api.delete(`/vms/${id}`)).status).toBe(202);
    await nebo.down('SIGKILL');
    await nebo.up();
    for (const id of [steady, ...started]) await gone(id as string);
    await nothingLeft();
  });

  it('an operator adds plans', async () => {
    const { data } = await nebo.admin('plan', 'list');
    expect(data.map(({ name }: { name: string }) => name)).toEqual(['nano', 'small', 'medium']);
    const plan = ['plan', 'add', '--name', 'large', '--vcpu', '4', '--memory', '8192', '--disk', '80'];
    expect(await nebo.admin(...plan)).toMatchObject({ name: 'large', max_disk_gb: 80 });
    expect((await api.get('/vm-plans')).body.data.at(-1)).toMatchObject({
      name: 'large',
      monthly_price: '2980.00',
    });
    await expect(nebo.admin(...plan)).rejects.toThrow('name_taken');
  });

  it('nothing is lost or left over, says the audit', () => nothingLost(nebo), 90_000);
});
