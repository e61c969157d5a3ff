import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import https from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer, text } from 'node:stream/consumers';
import { packFolder } from '@nebo/archive';
import { Api, ContractCheck, readContract } from '../harness/api.js';
import { Nebo, until } from '../harness/nebo.js';
import { ParentZone } from '../harness/parent-zone.js';
import { deploySleepy, SleepyClient } from '../harness/sleepy.js';

const zone = 'broke.example';
const domain = `www.${zone}`;
const nameservers = ['ns1.e2e.test', 'ns2.e2e.test'];

/** What visitors meet while the account of an app has no money, from the edge's doors; and that all comes back. */
describe('an account that is suspended, as visitors see it', () => {
  let nebo: Nebo;
  let api: Api;
  let account: string;
  let project: string;
  let parent: ParentZone;
  let folder: string;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'nebo-suspended-'));
    parent = await ParentZone.start();
    nebo = await Nebo.start({
      NEBO_DRIVERS: 'machines=simulated,networks=simulated',
      NEBO_GRACE_HOURS: '0',
      NEBO_STANDING_SECONDS: '1',
      NEBO_DRAIN_MS: '500',
      NEBO_IDLE_TIMEOUT: '2',
      NEBO_RATE_LIMIT: '0',
      NEBO_DNS_RESOLVER: parent.address,
      NEBO_NAMESERVERS: nameservers.join(','),
    });
    const demo = new Api(
      nebo.credentials.base_url,
      nebo.credentials.accounts[0]!.api_key,
      new ContractCheck(readContract('v1')),
    );
    // An account of its own: its money is this test's alone.
    const made = await nebo.admin('account', 'create', '--name', 'shopkeeper', '--topup', '1500000');
    account = made.account_id;
    api = demo.as((await nebo.admin('key', 'create', '--account', account)).key);
    project = (await api.get('/projects')).body.data[0].id;
  }, 120_000);
  afterAll(async () => {
    await nebo?.dispose();
    parent?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  const clientOf = (host: string) => new SleepyClient(nebo.credentials.edge_url, host);
  /** One visit of the custom domain over TLS, by one who trusts this installation's authority only. */
  const visit = async (): Promise<{ status: number; text: string; type: string; retry: string }> => {
    const ca = await readFile(join(nebo.home, 'ca/ca.pem'));
    const port = Number(nebo.env['NEBO_EDGE_TLS_PORT']);
    const headers = { host: domain, accept: 'text/html' };
    return new Promise((resolve, reject) => {
      const options = { host: '127.0.0.1', port, servername: domain, ca, agent: false as const, headers };
      https
        .get(options, (answer) => {
          const { 'content-type': type = '', 'retry-after': retry = '' } = answer.headers;
          text(answer).then(
            (body) => resolve({ status: answer.statusCode!, text: body, type, retry }),
            reject,
          );
        })
        .on('error', reject);
    });
  };
  const price = (id: string, amount: string) =>
    nebo.admin('price', 'set', '--id', id, '--amount', amount, '--unit', 'month');
  /** Orders a machine that costs what it is told to. */
  const spend = async (rubles: number) => {
    await price('vm.nano.month', String(rubles));
    const [region] = (await api.get('/regions')).body.data;
    const { images } = (await api.get(`/projects/${project}/images?cluster_id=${region.id}`)).body;
    const plans = (await api.get('/vm-plans')).body.data as { id: string; name: string }[];
    const made = await api.post(`/projects/${project}/vms`, {
      ...{
        name: 'dear',
        hostname: 'dear',
        image_id: images[0].id,
        cluster_id: region.id,
        default_user: 'me',
      },
      vm_plan_id: plans.find(({ name }) => name === 'nano')!.id,
    });
    expect(made.status).toBe(201);
  };

  it('503 with a sentence at every address, a WebSocket too; files go on; a top-up brings all of it back', async () => {
    const [served, asleep] = await Promise.all([
      deploySleepy(api, project, { replica_count: 1 }),
      deploySleepy(api, project),
    ]);
    const page = (await api.post(`/projects/${project}/apps`, { name: 'page', source_type: 'upload' })).body;
    await writeFile(join(folder, 'index.html'), 'a page of files');
    const raw = await buffer((await packFolder(folder)).stream);
    await api.call('POST', `/apps/${page.id}/deployments`, {
      raw,
      headers: { 'content-type': 'application/gzip' },
    });
    const job = { name: 'sweep', command: 'node -e 1' };
    const { id: jobId } = (await api.post(`/apps/${served.id}/jobs`, job)).body;
    const { id: zoneId } = (await api.post('/dns/zones', { name: zone })).body;
    parent.delegate(`${zone}.`, nameservers);
    expect((await api.post(`/dns/zones/${zoneId}/verify`)).body.status).toBe('active');
    expect((await api.post(`/apps/${served.id}/domains`, { domain })).status).toBe(201);
    await until(async () => (await visit().catch(() => null))?.status === 200, 60_000);
    const files = clientOf('page.apps.localhost');
    await until(async () => (await files.send('GET', '/')).text === 'a page of files', 60_000);
    // Open when the money ends.
    const { socket } = await clientOf(served.host).connect();
    const closed = new Promise<void>((resolve) =>
      socket!.once('close', () => resolve()).on('error', () => undefined),
    );
    const before = await clientOf(served.host).send('GET', '/');
    expect(before.status).toBe(200);

    // Hundreds of rubles a second from the next span on, which a change of size opens: its first hour has to be there. Then
    // an order takes nearly all that is left.
    await price('replica.vcpu.month', '900000000');
    expect((await api.patch(`/apps/${served.id}`, { replica_memory_mb: 768 })).status).toBe(200);
    const left = Number((await api.get('/account/balance')).body.balance);
    await spend(Math.floor(left) - 4_000);
    await until(async () => (await visit()).status === 503, 60_000);
    await closed;

    const shown = await visit();
    expect(shown).toMatchObject({ status: 503, type: 'text/html; charset=utf-8' });
    expect(shown.text).toContain('suspended');
    const said = await clientOf(served.host).send('GET', '/');
    expect([said.status, JSON.parse(said.text)]).toEqual([
      503,
      {
        error: {
          code: 'app_not_running',
          message: expect.stringContaining('suspended'),
          request_id: expect.any(String),
        },
      },
    ]);
    const refused = await clientOf(served.host).connect();
    expect([refused.socket, refused.answer.statusCode]).toEqual([null, 503]);
    // Nobody wakes what sleeps, with whatever it comes.
    for (const kind of [0, 1, 2, 3, 4, 5]) expect((await clientOf(asleep.host).ask(kind)).status).toBe(503);
    expect(await files.send('GET', '/')).toMatchObject({ status: 200, text: 'a page of files' });
    // Its owner reads everything, and is told what is wrong with what cannot be done.
    expect((await api.get(`/apps/${served.id}`)).status).toBe(200);
    expect((await api.get(`/apps/${served.id}/domains`)).body.data).toHaveLength(2);
    expect(await api.post(`/apps/${served.id}/jobs/${jobId}/run`)).toMatchObject({
      status: 409,
      body: { error: { message: expect.stringContaining('suspended') } },
    });
    await until(async () => (await api.get('/account/balance')).body.balance.startsWith('-'), 30_000);

    await price('replica.vcpu.month', '450');
    await nebo.admin('account', 'topup', '--account', account, '--amount', '1000000');
    await until(async () => (await visit()).status === 200, 60_000);
    const after = await clientOf(served.host).send('GET', '/');
    expect(after.status).toBe(200);
    expect(after.start).not.toBe(before.start);
    // The first is held while it starts.
    await until(async () => (await clientOf(asleep.host).send('GET', '/')).status === 200, 60_000);
    for (const { host } of [served, asleep]) expect((await clientOf(host).ask(4)).good).toBe(true);
    expect((await api.get(`/apps/${served.id}/builds/${served.build}`)).body).toMatchObject({
      deploy_state: 'live',
    });
  }, 240_000);
});
