import { randomUUID } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { packFolder } from '@nebo/archive';
import { Api, ContractCheck, readContract } from '../harness/api.js';
import { forms, type Installation } from '../harness/forms.js';
import { until } from '../harness/nebo.js';

const server = `
require('node:http').createServer((req, res) => res.end('here')).listen(process.env.PORT, process.env.HOST);
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
  /** A job of every minute, made early: its tick comes while the others run. */
  let tick: string;
  const contract = new ContractCheck(readContract('v1'));

  beforeAll(async () => {
    if (missing) return;
    nebo = await start({});
    api = new Api(nebo.baseUrl, nebo.key, contract);
    folder = await mkdtemp(join(tmpdir(), 'nebo-jobs-'));
    await writeFile(join(folder, 'server.js'), server);
    await writeFile(join(folder, 'task.js'), task);
    await writeFile(join(folder, 'package.json'), JSON.stringify({ scripts: { start: 'node server.js' } }));
    app = (
      await api.post(`/projects/${nebo.project}/apps`, {
        name: `jobs-${randomUUID().slice(0, 8)}`,
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
    let runs: { id: string; kind: string; scheduled_for: string }[] = [];
    await until(async () => {
      runs = (await api.get(`/apps/${app}/job-runs?job_id=${tick}`)).body.data;
      return runs.length > 0;
    }, 90_000);
    expect(runs[0]).toMatchObject({ kind: 'scheduled', triggered_by: 'schedule' });
    expect(await ended(runs[0]!.id)).toMatchObject({ status: 'success' });
  }, 120_000);
});
