import { randomUUID } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { packFolder } from '@nebo/archive';
import { Api, ContractCheck, readContract } from '../harness/api.js';
import { followDeploy } from '../harness/deploy-events.js';
import { Nebo, until } from '../harness/nebo.js';
import { SleepyClient } from '../harness/sleepy.js';

const readySeconds = 6;

/** Serves its version under every path; ready unless it is told not to be. */
const server = (version: string) => `
require('node:http').createServer((request, response) => {
  response.statusCode = request.url === '/ready' && process.env.UNREADY ? 503 : 200;
  response.end('version ${version}');
}).listen(process.env.PORT, process.env.HOST);
`;

/** The end of every kind of deploy as its event stream tells it, of real builds and replicas. */
describe('the events of a deploy', () => {
  let nebo: Nebo;
  let api: Api;
  let project: string;
  let folder: string;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'nebo-deploys-'));
    nebo = await Nebo.start({
      NEBO_READY_TIMEOUT: `${readySeconds}`,
      NEBO_RESTART_DELAY_MS: '100',
      NEBO_DRAIN_MS: '500',
    });
    const [demo] = nebo.credentials.accounts;
    api = new Api(nebo.credentials.base_url, demo!.api_key, new ContractCheck(readContract('v1')));
    project = demo!.project_id;
  });
  afterAll(async () => {
    await nebo?.dispose();
    await rm(folder, { recursive: true, force: true });
  });

  const create = async (more: object = {}): Promise<{ id: string; host: string }> => {
    const name = `deploy-${randomUUID().slice(0, 8)}`;
    const { body } = await api.post(`/projects/${project}/apps`, {
      ...{
        name,
        source_type: 'upload',
        app_type: 'backend',
        readiness_path: '/ready',
        start_command: 'node server.js',
      },
      ...more,
    });
    return { id: body.id, host: `${name}.apps.localhost` };
  };
  const upload = async (app: string, files: Record<string, string>): Promise<string> => {
    const dir = await mkdtemp(join(folder, 'source-'));
    for (const [path, text] of Object.entries(files)) await writeFile(join(dir, path), text);
    const raw = await buffer((await packFolder(dir)).stream);
    const headers = { 'content-type': 'application/gzip' };
    return (await api.call('POST', `/apps/${app}/deployments`, { raw, headers })).body.id;
  };
  const files = (version: string, build = 'true') => ({
    'server.js': server(version),
    'package.json': JSON.stringify({ scripts: { build, start: 'node server.js' } }),
  });
  const page = async (host: string) =>
    (await new SleepyClient(nebo.credentials.edge_url, host).send('GET', '/')).text;
  const order = ['queued', 'building', 'built', 'rolling', 'end'];
  /** Each state once, in its order, the last one the end; ids count them. */
  const follow = async (app: string, build: string) => {
    const { events, ids, done } = await followDeploy(api, app, build);
    const end = events.at(-1)!;
    expect(done).toEqual(end);
    const places = events.map(({ state }, at) => (at === events.length - 1 ? 4 : order.indexOf(state)));
    expect(places).toEqual([...new Set(places)].sort());
    expect(ids).toEqual(places.map((place) => `${build}:${place}`));
    expect(events.slice(0, -1).map(({ reason }) => reason)).toEqual(places.slice(1).map(() => null));
    return { events, end };
  };

  it('live, then a version that is never ready, then a variable that breaks it: the old one goes on serving', async () => {
    const app = await create();
    const first = await upload(app.id, files('one'));
    const good = await follow(app.id, first);
    expect(good.end).toMatchObject({ state: 'live', reason: null, deploy_state: 'live' });
    // Cut after every event, none was lost: whoever heard the first heard all.
    if (good.events[0]!.state === 'queued') expect(good.events.length).toBe(order.length);
    expect(await page(app.host)).toBe('version one');

    const unready = await upload(app.id, {
      ...files('two'),
      'server.js': server('two').replace('process.env.UNREADY', 'true'),
    });
    const bad = await follow(app.id, unready);
    expect(bad.end).toMatchObject({
      state: 'never_booted',
      status: 'success',
      reason: expect.stringMatching(
        `^The app was not ready within ${readySeconds} s: GET /ready answered 503`,
      ),
    });
    expect(await page(app.host)).toBe('version one');
    expect((await api.get(`/apps/${app.id}`)).body).toMatchObject({ current_build_id: first });

    await api.post(`/apps/${app.id}/env`, { name: 'UNREADY', value: 'yes' });
    await until(
      async () => (await api.get(`/apps/${app.id}/builds/${first}`)).body.deploy_state !== 'live',
      60_000,
    );
    expect((await follow(app.id, first)).end).toMatchObject({
      state: 'stale_serving',
      reason: expect.stringContaining('GET /ready answered 503'),
    });
    expect(await page(app.host)).toBe('version one');
  }, 120_000);

  it('a build that fails, one that is cancelled, one that crashes at once: each with its reason', async () => {
    const app = await create();
    const failed = await upload(app.id, files('one', 'echo no such module; exit 3'));
    expect((await follow(app.id, failed)).end).toMatchObject({
      state: 'build_failed',
      status: 'error',
      reason: expect.stringMatching(/^build: .*3/),
    });
    const long = await upload(app.id, files('two', 'sleep 600'));
    await until(
      async () => (await api.get(`/apps/${app.id}/builds/${long}`)).body.status === 'building',
      60_000,
    );
    const following = follow(app.id, long);
    expect((await api.post(`/apps/${app.id}/builds/${long}/cancel`)).status).toBe(200);
    expect((await following).end).toMatchObject({
      state: 'cancelled',
      reason: expect.stringMatching(/cancel/i),
    });
    const crashing = await upload(app.id, {
      ...files('three'),
      'server.js': "console.error('no database'); process.exit(7)",
    });
    expect((await follow(app.id, crashing)).end).toMatchObject({
      state: 'never_booted',
      reason: expect.stringMatching(/exited with code 7: no database/),
    });
  }, 120_000);

  it('the command before a deploy runs in the new version, once; one that fails keeps it away; an earlier build serves again', async () => {
    const command = 'echo "to version $(cat version.txt)" && exit $(cat code.txt)';
    const app = await create({ predeploy_command: command });
    const of = (version: string, code: string) => ({
      ...files(version),
      'version.txt': version,
      'code.txt': code,
    });
    const runs = async () => (await api.get(`/apps/${app.id}/job-runs`)).body.data;
    const one = await upload(app.id, of('one', '0'));
    expect((await follow(app.id, one)).end.state).toBe('live');
    expect(await runs()).toMatchObject([
      { kind: 'predeploy', job_id: null, build_id: one, status: 'success', log_tail: 'to version one' },
    ]);
    const two = await upload(app.id, of('two', '0'));
    expect((await follow(app.id, two)).end.state).toBe('live');
    expect(await page(app.host)).toBe('version two');
    const three = await upload(app.id, of('three', '5'));
    expect((await follow(app.id, three)).end).toMatchObject({
      state: 'never_booted',
      reason: expect.stringMatching(
        /^the pre-deploy command failed: the command exited with code 5: to version three/,
      ),
    });
    expect(await page(app.host)).toBe('version two');
    expect(await api.post(`/apps/${app.id}/builds/${three}/rollback`)).toMatchObject({
      status: 409,
      body: { error: { code: 'predeploy_failed' } },
    });
    expect((await api.post(`/apps/${app.id}/builds/${one}/rollback`)).status).toBe(200);
    expect((await follow(app.id, one)).end.state).toBe('live');
    await until(async () => (await page(app.host)) === 'version one', 60_000);
    expect(await runs()).toHaveLength(3);
  }, 120_000);

  it('a secret that is printed in every way is in no log, and on no disk of the installation as it is', async () => {
    const secret = `canary/${randomUUID()}+"quoted"`;
    const forms = [
      secret,
      JSON.stringify(secret).slice(1, -1),
      encodeURIComponent(secret),
      Buffer.from(secret).toString('base64'),
      Buffer.from(secret).toString('hex'),
    ];
    const print =
      "const s = process.env.SECRET; console.log('raw ' + s, JSON.stringify({ s }), encodeURIComponent(s), Buffer.from(s).toString('base64'), Buffer.from(s).toString('hex')); process.stdout.write(s.slice(0, 9)); setTimeout(() => process.stdout.write(s.slice(9) + '\\n'), 200)";
    const app = await create({ replica_count: 1 });
    expect(
      (await api.post(`/apps/${app.id}/env`, { name: 'SECRET', value: secret, is_secret: true })).status,
    ).toBe(201);
    const build = await upload(app.id, {
      ...files('one', 'node print.js'),
      'print.js': print,
      'server.js': `${print};${server('one')}`,
    });
    expect((await follow(app.id, build)).end.state).toBe('live');
    const job = (
      await api.post(`/apps/${app.id}/jobs`, { name: 'print', command: 'node print.js && exit 4' })
    ).body.id;
    const run = (await api.post(`/apps/${app.id}/jobs/${job}/run`)).body.id;
    await until(
      async () => (await api.get(`/apps/${app.id}/job-runs/${run}`)).body.status === 'error',
      60_000,
    );
    const told = await Promise.all(
      [
        `/apps/${app.id}/builds/${build}/logs`,
        `/apps/${app.id}/logs?follow=false`,
        `/apps/${app.id}/job-runs/${run}`,
        `/apps/${app.id}/env`,
        `/apps/${app.id}/events`,
        `/audit-log?limit=200`,
      ].map(async (path) => (await api.get(path)).text),
    );
    for (const log of told.slice(0, 3)) expect(log).toContain('raw ********');
    for (const form of forms) for (const text of [...told, nebo.output]) expect(text).not.toContain(form);
    const holding: string[] = [];
    for (const entry of await readdir(nebo.home, { recursive: true, withFileTypes: true })) {
      const path = join(entry.parentPath, entry.name);
      // What is there for a moment only may be gone by now.
      if (!entry.isFile() || !(await readFile(path).catch(() => Buffer.of())).includes(secret)) continue;
      holding.push(`${entry.name} ${((await stat(path)).mode & 0o777).toString(8)}`);
    }
    // The running replica's own variables, which its user alone may read; a plain process has them in no file.
    expect(holding.filter((one) => one !== 'env 400')).toEqual([]);
  }, 120_000);
});
