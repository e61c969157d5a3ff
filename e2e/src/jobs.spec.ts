import { randomUUID } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { packFolder } from '@nebo/archive';
import { parseRubles, type V1Usage } from '@nebo/contracts';
import { Api, ContractCheck, readContract } from '../harness/api.js';
import { forms, type Installation } from '../harness/forms.js';
import { root, until } from '../harness/nebo.js';
import { SleepyClient } from '../harness/sleepy.js';

/** Works for so many milliseconds of processor time as the path says. */
const server = `
require('node:http').createServer((req, res) => {
  const end = process.cpuUsage().user + 1_000 * Number(req.url.slice(1));
  while (process.cpuUsage().user < end);
  res.end('here');
}).listen(process.env.PORT, process.env.HOST);
`;
const task = `
console.log('counting in ' + process.env.MODE);
console.log('the token is ' + process.env.TOKEN);
if (process.argv[2] === 'fail') { console.error('no such table'); process.exit(3); }
if (process.argv[2] === 'wait') setTimeout(() => {}, 600_000);
`;

/** Jobs of an app through the whole installation: by hand and by the schedule. */
describe.each(forms)('jobs, $form', ({ missing, start }) => {
  const it = missing ? globalThis.it.skip : globalThis.it;
  let nebo: Installation;
  let api: Api;
  let folder: string;
  let app: string;
  let host: string;
  /** A job of every minute, made early: its tick comes while the others run. */
  let tick: string;
  const contract = new ContractCheck(readContract('v1'));

  beforeAll(async () => {
    if (missing) return;
    folder = await mkdtemp(join(tmpdir(), 'nebo-jobs-'));
    // A plan that includes no CPU, and hours of twenty seconds: what is used is charged while somebody looks.
    const prices = await readFile(join(root, 'deploy/config/prices.yaml'), 'utf8');
    const NEBO_PRICES_FILE = join(folder, 'prices.yaml');
    await writeFile(NEBO_PRICES_FILE, prices.replace('active_cpu_hours: 4,', 'active_cpu_hours: 0,'));
    nebo = await start({ NEBO_PRICES_FILE, NEBO_USAGE_BUCKET: '20', NEBO_IDLE_TIMEOUT: '1' });
    api = new Api(nebo.baseUrl, nebo.key, contract);
    await writeFile(join(folder, 'server.js'), server);
    await writeFile(join(folder, 'task.js'), task);
    await writeFile(join(folder, 'package.json'), JSON.stringify({ scripts: { start: 'node server.js' } }));
    const name = `jobs-${randomUUID().slice(0, 8)}`;
    host = `${name}.apps.localhost`;
    app = (
      await api.post(`/projects/${nebo.project}/apps`, {
        name,
        source_type: 'upload',
        app_type: 'backend',
      })
    ).body.id;
  });
  afterAll(async () => {
    await nebo?.stop();
    if (folder) await rm(folder, { recursive: true, force: true });
  });

  const create = async (name: string, command: string, more: object = {}): Promise<string> => {
    const answer = await api.post(`/apps/${app}/jobs`, { name, command, ...more });
    expect(answer.status).toBe(201);
    return answer.body.id;
  };
  const ended = async (id: string) => {
    let run = (await api.get(`/apps/${app}/job-runs/${id}`)).body;
    await until(async () => {
      run = (await api.get(`/apps/${app}/job-runs/${id}`)).body;
      return !['queued', 'running'].includes(run.status);
    });
    return run;
  };

  it('409 before anything is deployed; then a run succeeds with its log, the secret masked', async () => {
    const job = await create('count', 'node task.js');
    expect(await api.post(`/apps/${app}/jobs/${job}/run`)).toMatchObject({
      status: 409,
      body: { error: { code: 'no_revision' } },
    });
    await api.post(`/apps/${app}/env`, { name: 'MODE', value: 'numbers' });
    await api.post(`/apps/${app}/env`, { name: 'TOKEN', value: 'canary-of-a-job', is_secret: true });
    const raw = await buffer((await packFolder(folder)).stream);
    const headers = { 'content-type': 'application/gzip' };
    const build = (await api.call('POST', `/apps/${app}/deployments`, { raw, headers })).body.id;
    await until(async () => {
      const { body } = await api.get(`/apps/${app}/builds/${build}?wait=live&timeout=20`);
      if (body.status === 'error' || body.boot_error) throw new Error(body.error ?? body.boot_error);
      return body.deploy_state === 'live';
    });
    tick = await create('tick', 'node task.js', { schedule: '* * * * *' });
    const begun = await api.post(`/apps/${app}/jobs/${job}/run`);
    expect(begun).toMatchObject({ status: 202, body: { status: 'queued', build_id: build, kind: 'manual' } });
    const run = await ended(begun.body.id);
    expect(run).toMatchObject({
      ...{ status: 'success', exit_code: 0, error: null },
      log_tail: 'counting in numbers\nthe token is ********',
    });
    expect((await api.get(`/apps/${app}/jobs/${job}`)).body.last_run).toEqual(run);
  });

  it('a failing one says its exit code and last line; one that is deleted is cancelled', async () => {
    const job = await create('fail', 'node task.js fail');
    const run = await ended((await api.post(`/apps/${app}/jobs/${job}/run`)).body.id);
    expect(run).toMatchObject({
      ...{ status: 'error', exit_code: 3 },
      error: 'the command exited with code 3: no such table',
    });
    const waiting = await create('wait', 'node task.js wait');
    const { id } = (await api.post(`/apps/${app}/jobs/${waiting}/run`)).body;
    await until(async () => (await api.get(`/apps/${app}/job-runs/${id}`)).body.status === 'running');
    expect((await api.call('DELETE', `/apps/${app}/jobs/${waiting}`)).status).toBe(204);
    expect(await ended(id)).toMatchObject({
      status: 'cancelled',
      job_id: null,
      error: 'the job was deleted',
    });
  });

  it('a job of every minute runs by itself', async () => {
    // Meanwhile the app wakes and works.
    expect(await new SleepyClient(nebo.edgeUrl, host).send('GET', '/1500')).toMatchObject({
      status: 200,
      text: 'here',
    });
    let runs: { id: string; kind: string; scheduled_for: string }[] = [];
    await until(async () => {
      runs = (await api.get(`/apps/${app}/job-runs?job_id=${tick}`)).body.data;
      return runs.length > 0;
    }, 90_000);
    expect(runs[0]).toMatchObject({ kind: 'scheduled', triggered_by: 'schedule' });
    expect(await ended(runs[0]!.id)).toMatchObject({ status: 'success' });
  }, 120_000);

  it('what its runs and the app on demand used is in usage, and beyond the plan in the ledger', async () => {
    const { findings } = (await nebo.admin('doctor')) as { findings: { area: string; in_use: string }[] };
    const real = findings.find(({ area }) => area === 'replicas')!.in_use === 'local';
    let report!: V1Usage;
    const rowOf = (kind: string) => report.apps.rows.find((row) => row.app_id === app && row.kind === kind);
    const worked = (kind: string) => Number(rowOf(kind)?.active_cpu_seconds ?? -1);
    await until(async () => {
      report = (await api.get('/usage')).body;
      return worked('replica') >= (real ? 1.5 : 0) && worked('run') >= (real ? 0.01 : 0);
    }, 60_000);
    const { totals } = report.apps;
    // Plain processes cost nothing, and the report says so.
    if (!real) return expect([totals.amount, totals.free_hours > 0]).toEqual(['0.00', true]);
    expect(totals).toMatchObject({
      ...{ included_cpu_seconds: '0', free_hours: 0 },
      included_memory_gb_hours: totals.memory_gb_hours,
    });
    expect(report.allowance).toMatchObject({ plan: 'free', active_cpu_hours: { included: '0', left: '0' } });
    const { data } = (await api.get('/account/ledger?limit=200')).body as {
      data: { description: string; amount: string }[];
    };
    const lines = data.filter(({ description }) =>
      description.endsWith(' s of Active CPU and 0 GB-hours beyond the plan'),
    );
    for (const words of [', on demand, ', ', job runs, '])
      expect(lines.some(({ description }) => description.includes(words))).toBe(true);
    const paid = lines.reduce((sum, { amount }) => sum - parseRubles(amount), 0n);
    expect(paid >= parseRubles(totals.amount)).toBe(true);
  }, 90_000);
});
