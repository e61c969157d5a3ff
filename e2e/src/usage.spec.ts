import { randomUUID } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { packFolder } from '@nebo/archive';
import { parseRubles, type V1AppUsageRow, type V1Usage } from '@nebo/contracts';
import { Api, ContractCheck, readContract } from '../harness/api.js';
import { nothingLost } from '../harness/audit.js';
import { Nebo, root, until } from '../harness/nebo.js';

/**
 * Times kill -9 of everything while the app works: once in `npm test`, 50 is the bar (`npm run proof -- usage`). The split form has its
 * look at what was charged in `jobs.spec.ts`.
 */
const kills = Number(process.env['NEBO_PROOF'] || 1);
/** Length of the hours that are counted here, seconds. */
const bucket = 10;

/** Works for a while when asked, and says what it counted itself, microseconds. */
const server = `
const used = () => { const { user, system } = process.cpuUsage(); return user + system; };
require('node:http').createServer((request, response) => {
  const until = used() + 1_000 * Number(request.url.slice(1));
  while (used() < until);
  response.end(String(used()));
}).listen(process.env.PORT, process.env.HOST);
`;

/** An app on demand that works shows up in what the account used and in what it paid. */
describe('apps on demand are charged for what they use', () => {
  let nebo: Nebo;
  let api: Api;
  let folder: string;
  let app: string;
  let host: string;
  const contract = new ContractCheck(readContract('v1'));

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'nebo-usage-'));
    // A plan that includes little, so that something is left to pay.
    const prices = await readFile(join(root, 'deploy/config/prices.yaml'), 'utf8');
    const little = prices.replace(
      /free: \{.*\}/,
      "free: { name: Free, month: '0.00', active_cpu_hours: 0, memory_gb_hours: 1 }",
    );
    await writeFile(join(folder, 'prices.yaml'), little);
    nebo = await Nebo.start({
      NEBO_PRICES_FILE: join(folder, 'prices.yaml'),
      NEBO_USAGE_BUCKET: String(bucket),
      NEBO_IDLE_TIMEOUT: '1',
      NEBO_RATE_LIMIT: '0',
    });
    const [demo] = nebo.credentials.accounts;
    api = new Api(nebo.credentials.base_url, demo!.api_key, contract);
    const name = `busy-${randomUUID().slice(0, 8)}`;
    host = `${name}.apps.localhost`;
    const made = await api.post(`/projects/${demo!.project_id}/apps`, {
      name,
      source_type: 'upload',
      app_type: 'backend',
    });
    app = made.body.id;
    const site = await mkdtemp(join(folder, 'app-'));
    await writeFile(join(site, 'server.js'), server);
    await writeFile(join(site, 'package.json'), JSON.stringify({ scripts: { start: 'node server.js' } }));
    const raw = await buffer((await packFolder(site)).stream);
    const headers = { 'content-type': 'application/gzip' };
    const build = (await api.call('POST', `/apps/${app}/deployments`, { raw, headers })).body.id;
    await until(async () => {
      const { body } = await api.get(`/apps/${app}/builds/${build}?wait=live&timeout=20`);
      if (body.status === 'error' || body.boot_error) throw new Error(body.error ?? body.boot_error);
      return body.deploy_state === 'live';
    }, 60_000);
  }, 120_000);
  afterAll(async () => {
    await nebo?.dispose();
    await rm(folder, { recursive: true, force: true });
  });

  /** `fetch` names no other host than the address. */
  const work = (ms: number): Promise<string> =>
    new Promise((resolve, reject) => {
      const call = request(`${nebo.credentials.edge_url}/${ms}`, { headers: { host } });
      call.once('error', reject);
      call.once('response', (answer) => {
        const whole = buffer(answer).then(String);
        whole.then((text) => (answer.statusCode === 200 ? resolve(text) : reject(new Error(text))), reject);
      });
      call.end();
    });
  const usage = async (): Promise<V1Usage> => (await api.get('/usage')).body;
  const rowOf = async (kind: 'replica' | 'run'): Promise<V1AppUsageRow | undefined> =>
    (await usage()).apps.rows.find((row) => row.app_id === app && row.kind === kind);
  /** All lines of the ledger that are charges by use. */
  const charges = async (): Promise<{ description: string; amount: string }[]> => {
    const lines: { description: string; amount: string }[] = [];
    for (let offset = 0; ; offset += 200) {
      const { body } = await api.get(`/account/ledger?limit=200&offset=${offset}`);
      lines.push(...body.data);
      if (body.data.length < 200)
        return lines.filter(({ description }) => description.endsWith('beyond the plan'));
    }
  };
  const isLocal = async () => {
    const { findings } = (await nebo.admin('doctor')) as { findings: { area: string; in_use: string }[] };
    return findings.find(({ area }) => area === 'replicas')!.in_use === 'local';
  };

  it('a replica on demand and a run of a job: measured, charged, in usage and in the ledger', async () => {
    await work(1_500);
    const job = (
      await api.post(`/apps/${app}/jobs`, {
        name: 'once',
        command: 'node -e "while (process.cpuUsage().user < 300_000);"',
      })
    ).body.id;
    expect((await api.post(`/apps/${app}/jobs/${job}/run`)).status).toBe(202);
    await until(
      async () => (await rowOf('replica')) !== undefined && (await rowOf('run')) !== undefined,
      60_000,
    );
    const [replica, run] = [(await rowOf('replica'))!, (await rowOf('run'))!];
    const { allowance } = await usage();
    if (!(await isLocal())) {
      // Plain processes cost nothing, and the report says so.
      expect([replica.amount, run.amount, replica.active_cpu_seconds]).toEqual(['0.00', '0.00', '0']);
      expect(replica.free_hours).toBeGreaterThan(0);
      return;
    }
    // All of the CPU is beyond this plan; the memory is within it. Either may have met the end of an hour.
    const worked = async (kind: 'replica' | 'run', seconds: number) =>
      Number((await rowOf(kind))!.active_cpu_seconds) >= seconds;
    await until(async () => (await worked('replica', 1.5)) && (await worked('run', 0.3)), 60_000);
    const { totals } = (await usage()).apps;
    expect(parseRubles(totals.amount) > 0n).toBe(true);
    expect(totals).toMatchObject({
      included_cpu_seconds: '0',
      included_memory_gb_hours: totals.memory_gb_hours,
      free_hours: 0,
    });
    expect(allowance).toMatchObject({ plan: 'free', active_cpu_hours: { included: '0', left: '0' } });
    const lines = await charges();
    expect(
      lines.every(({ description }) =>
        description.endsWith(' s of Active CPU and 0 GB-hours beyond the plan'),
      ),
    ).toBe(true);
    expect(lines.some(({ description }) => description.includes(', on demand, '))).toBe(true);
    expect(lines.some(({ description }) => description.includes(', job runs, '))).toBe(true);
  }, 120_000);

  it(
    `kill -9 of everything while it works, ${kills} of them: little is lost, nothing is charged twice`,
    async () => {
      const measured = async () => Number((await rowOf('replica'))!.active_cpu_seconds);
      const before = await measured();
      const began = Date.now();
      for (let kill = 0; kill < kills; kill += 1) {
        await work(500);
        const working = work(60_000).catch(() => 'cut');
        await new Promise((resolve) => setTimeout(resolve, 500 + Math.random() * 1_500));
        await nebo.down('SIGKILL');
        expect(await working).toBe('cut');
        await nebo.up();
      }
      if (!(await isLocal())) return;
      // What it worked in peace at least, and with one processor not more than the time that has passed.
      await until(async () => (await measured()) >= before + 0.5 * kills, 60_000);
      expect(await measured()).toBeLessThan(before + (Date.now() - began) / 1_000);
      await nothingLost(nebo);
      const { totals } = (await usage()).apps;
      const paid = (await charges()).reduce((sum, { amount }) => sum - parseRubles(amount), 0n);
      expect(paid).toBe(parseRubles(totals.amount));
    },
    120_000 + kills * 30_000,
  );
});
