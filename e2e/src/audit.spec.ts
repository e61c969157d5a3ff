import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { MasterKey } from '@nebo/service-kit';
import pg from 'pg';
import { Api, ContractCheck, readContract } from '../harness/api.js';
import { Nebo, run, until } from '../harness/nebo.js';

interface Report {
  ok: boolean;
  differences: { rule: string; thing: string; text: string }[];
  under_way: { thing: string; state: string }[];
  counted: Record<string, number>;
}

/** The operator's `audit` against an installation in which somebody has lost and left things. */
describe('the audit', () => {
  let nebo: Nebo;
  let api: Api;
  let sql: pg.Client;
  let vm: { id: string; interfaces: { id: string; vpc_id: string }[] };
  beforeAll(async () => {
    nebo = await Nebo.start({ NEBO_DRIVERS: 'machines=simulated,networks=simulated' });
    const [demo] = nebo.credentials.accounts;
    api = new Api(nebo.credentials.base_url, demo!.api_key, new ContractCheck(readContract('v1')));
    sql = new pg.Client({
      host: '127.0.0.1',
      port: Number(readFileSync(join(nebo.home, 'postgres/postmaster.pid'), 'utf8').split('\n')[3]),
      user: 'postgres',
      password: MasterKey.fromFile(join(nebo.home, 'master.key')).rolePassword('postgres'),
      database: 'postgres',
    });
    // It may hear of the database's end before it has ended itself; without a listener that would end the tests.
    sql.on('error', () => undefined);
    await sql.connect();
    const [region] = (await api.get('/regions')).body.data;
    const [plan] = (await api.get('/vm-plans')).body.data;
    const path = `/projects/${demo!.project_id}/images?cluster_id=${region.id}`;
    const [image] = (await api.get(path)).body.images;
    const order = {
      hostname: 'web',
      image_id: image.id,
      vm_plan_id: plan.id,
      cluster_id: region.id,
      default_user: 'me',
      interfaces: [{ type: 'vpc', floating_ip: true }],
    };
    const made = async (body: object) => {
      const { id } = (await api.post(`/projects/${demo!.project_id}/vms`, { ...order, ...body })).body;
      return (await api.get(`/vms/${id}?wait=active&timeout=60`)).body;
    };
    vm = await made({ name: 'paid', period_days: 3, backup_count: 1 });
    await made({ name: 'by the second', ephemeral: true });
    await api.post(`/vms/${vm.id}/backups`, { name: 'one' });
    await api.post(`/vpcs/${vm.interfaces[0]!.vpc_id}/nat-gateway`, {});
    await api.post('/floating-ips', { cluster_id: region.id });
  }, 120_000);
  afterAll(async () => {
    await sql?.end();
    await nebo?.dispose();
  });

  const audit = async (settle: number, ...more: string[]) =>
    run(
      process.execPath,
      ['apps/all-in-one/dist/admin.js', 'audit', '--settle', `${settle}`, ...more],
      nebo.env,
    );
  const report = async (settle: number): Promise<{ code: number | null; report: Report }> => {
    const { code, stdout, stderr } = await audit(settle, '--json');
    expect(stderr).toBe('');
    return { code, report: JSON.parse(stdout) as Report };
  };

  it('a clean installation: exit code 0, nothing differs, nothing is under way, everything was compared', async () => {
    const { code, report: found } = await report(60);
    expect(found).toMatchObject({ ok: true, differences: [], under_way: [] });
    expect(code).toBe(0);
    expect(found.counted).toMatchObject({
      ...{ vm: 2, vm_span: 1, backup: 1, blob: 1, vpc: 1, nat_gateway: 1, floating_ip: 4, span: 4 },
      ...{ pool_address: 4, billing_span: 5, port: 3 },
      ...{ 'host machine': 2, 'host network': 1, 'host floating_ip': 3 },
    });
  });

  it('what is lost and left over is told in words with ids, and the exit code is 1', async () => {
    const [nobody, port, span] = [randomUUID(), vm.interfaces[0]!.id, randomUUID()];
    // As if a transaction had been torn: the machine's row is gone, a free address is held, a charge has no owner.
    await sql.query('set search_path to compute');
    await sql.query('delete from compute.vm_backup where vm_id = $1', [vm.id]);
    await sql.query('delete from compute.vm where id = $1', [vm.id]);
    await sql.query(
      `update networking.pool_address set held_by = $1 where (region_id, address) =
         (select region_id, address from networking.pool_address where held_by is null limit 1)`,
      [nobody],
    );
    await sql.query(
      `insert into identity_billing.span (account_id, operation_id, source_service, resource, amount_per_month,
         description, started_at, charged_until) values ($1, $2, 'networking', $3, 1, 'left', now(), now())`,
      [nebo.credentials.accounts[0]!.account_id, span, `floating_ip:${nobody}`],
    );
    const { code, report: found } = await report(4);
    expect(code).toBe(1);
    const rules = found.differences.map(({ rule, thing }) => `${rule}: ${thing}`);
    for (const one of [
      `not wanted: machine:${vm.id}`,
      `port without vm: port:${port}`,
      `billing_span without floating_ip: billing_span:${span}`,
      `charge without span: billing_span:${span}`,
    ])
      expect(rules).toContain(one);
    const held = found.differences.find(({ rule }) => rule === 'pool_address without floating_ip');
    expect(held!.text).toContain(`names floating_ip:${nobody}, which does not exist`);
    const words = await audit(4);
    expect(words.code).toBe(1);
    expect(words.stdout).toContain(`x port without vm: port:${port} names vm:${vm.id}, which does not exist`);
  });

  it('an agent that starts, here after a kill -9 of everything, removes what nobody wants', async () => {
    await nebo.down('SIGKILL');
    await nebo.up();
    await until(
      async () => {
        const { differences } = (await report(1)).report;
        return !differences.some(({ thing }) => thing === `machine:${vm.id}`);
      },
      60_000,
      1_000,
    );
  }, 150_000);

  it('2 for an option that is none', async () => {
    const { code, stderr } = await run(
      process.execPath,
      ['apps/all-in-one/dist/admin.js', 'audit', '--settle', 'soon'],
      nebo.env,
    );
    expect({ code, stderr }).toMatchObject({ code: 2, stderr: expect.stringContaining('--settle') });
  });
});
