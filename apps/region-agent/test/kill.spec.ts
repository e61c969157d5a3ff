import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type ReplicaFacts, type ReplicaHold } from '@nebo/contracts';
import { Agent } from 'undici';
import { marked } from '../src/system/processes.js';
import { homeTag } from '../src/system/runs.js';
import { bundleAgent } from './agent-bundle.js';
import { eventually, localMissing } from './agent-kit.js';
import { FakeControlPlane } from './fake-control-plane.js';
import { buildOf, helloServer, replicaOf, runOf } from './sources.js';

const missing = await localMissing();

/** The agent as a process of its own (`src/main.ts`), killed without a word. */
describe('kill -9 of the agent', () => {
  let bundle: string;
  let work: string;
  let plane: FakeControlPlane;
  const agents: ChildProcess[] = [];
  beforeAll(async () => {
    work = await mkdtemp(join(tmpdir(), 'nebo-kill-'));
    bundle = join(work, 'agent.mjs');
    await bundleAgent(bundle);
  }, 60_000);
  beforeEach(async () => {
    plane = await new FakeControlPlane().start();
  });
  afterEach(async () => {
    // An orderly end, which leaves nothing on the host.
    for (const agent of agents.splice(0)) {
      if (agent.exitCode !== null || agent.signalCode !== null) continue;
      const late = setTimeout(() => agent.kill('SIGKILL'), 20_000);
      agent.kill('SIGTERM');
      await new Promise((resolve) => agent.once('exit', resolve));
      clearTimeout(late);
    }
    const namespaces = await readdir('/run/netns').catch(() => []);
    expect(namespaces.filter((name) => name.includes(homeTag(home())))).toEqual([]);
    await plane.stop();
  });
  afterAll(() => rm(work, { recursive: true, force: true }));

  const start = (driver: string): ChildProcess => {
    const env = {
      PATH: process.env['PATH'],
      NEBO_API_URL: plane.url,
      NEBO_REGION_TOKEN: plane.token,
      NEBO_HOME: work,
      NEBO_DRIVERS: `builds=${driver},replicas=${driver}`,
      NEBO_WAKE: `unix:${join(work, 'wake.sock')}`,
    };
    const child = spawn(process.execPath, [bundle], { env, stdio: ['ignore', 'ignore', 'inherit'] });
    agents.push(child);
    return child;
  };
  const home = () => join(work, 'region-agent');
  it('a closed terminal is a stop in order', async () => {
    const agent = start('simulated');
    await eventually(() => plane.epoch === 1);
    agent.kill('SIGHUP');
    expect(await new Promise((resolve) => agent.once('exit', resolve))).toBe(0);
  }, 60_000);

  const hello = async (id: string) => {
    const facts = plane.latest(id)!.facts as unknown as ReplicaFacts;
    return (await (await fetch(`http://${facts.host}:${facts.port}/`)).json()) as { pid: number };
  };
  /** Asks the agent for a hold, as an edge does. */
  const hold = async (id: string) => {
    const agent = new Agent({ connect: { socketPath: join(work, 'wake.sock') } });
    try {
      const path = `/wake/v1/replicas/${id}/hold`;
      const query = { holder: 'edge.1' };
      const answer = await agent.request({ origin: 'http://agent', method: 'POST', path, query });
      return { status: answer.statusCode, ...((await answer.body.json()) as { hold?: ReplicaHold }) };
    } finally {
      await agent.destroy();
    }
  };
  /** Seconds that a process of this run sleeps: others of this host may run the same tests. */
  const sleeps = (number: number) => `${number}.${process.pid}`;
  /** Command lines with the words by which the tests' processes are known. */
  const running = async (word: string) => {
    const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
    const lines = await Promise.all(
      pids.map((pid) => readFile(`/proc/${pid}/cmdline`, 'latin1').catch(() => '')),
    );
    return lines.filter((line) => line.includes(word)).length;
  };

  for (const driver of ['simulated', 'local']) {
    const run = driver === 'local' && missing !== null ? it.skip : it;
    run(
      `${driver}: killed while a replica sleeps and while it starts: the next agent wakes it`,
      async () => {
        const slow = `setTimeout(() => { ${helloServer} }, Number(process.env.SLOW))`;
        const spec = async (proven: boolean) =>
          replicaOf(plane, 'nap', slow, {
            on_demand: { idle_ms: 500, proven },
            env: [{ name: 'SLOW', value: '1500', secret: false }],
          });
        const first = start(driver);
        plane.want('nap', 1, await spec(false));
        await plane.see('nap', 'sleeping', 30_000);
        // It is known to come up, so the next agent begins with it asleep.
        plane.want('nap', 1, await spec(true));
        first.kill('SIGKILL');
        plane.observed.length = 0;

        const second = start(driver);
        await plane.see('nap', 'sleeping', 30_000);
        expect(plane.observed.filter((item) => item.id === 'nap' && item.state === 'ready')).toEqual([]);
        const broken = hold('nap').then(
          () => 'answered',
          () => 'broken',
        );
        await eventually(() => plane.latest('nap')?.state === 'starting');
        await eventually(async () => (await running('process.env.SLOW')) + (await running('server.js')) > 0);
        second.kill('SIGKILL');
        expect(await broken).toBe('broken');
        plane.observed.length = 0;

        start(driver);
        await plane.see('nap', 'sleeping', 30_000);
        const woken = await hold('nap');
        expect(woken).toMatchObject({ status: 200, hold: { started: true } });
        const { host, port } = woken.hold!;
        expect(await (await fetch(`http://${host}:${port}/`)).json()).toMatchObject({ hello: 'world' });

        const last = agents.at(-1)!;
        last.kill('SIGTERM');
        await new Promise((resolve) => last.once('exit', resolve));
        expect(await marked((mark) => mark.startsWith(`${homeTag(home())}:`))).toEqual([]);
      },
      120_000,
    );
    run(
      `${driver}: the next agent ends what was left and makes it anew; SIGTERM leaves nothing`,
      async () => {
        const first = start(driver);
        // One that leaves its process group and its parent.
        const stray = helloServer.replace(
          'const http',
          `require('child_process').spawn('setsid', ['sleep', '${sleeps(8831)}'], { detached: true, stdio: 'ignore' }).unref(); const http`,
        );
        plane.want('web', 1, await replicaOf(plane, 'web', stray));
        plane.want(
          'slow',
          1,
          await buildOf(
            plane,
            'slow',
            { 'index.html': '' },
            { build_command: `echo begun; setsid sleep ${sleeps(8832)} & sleep ${sleeps(8833)}` },
          ),
        );
        // The home is the same for both drivers: what it knows of a run it never forgets before it is told to.
        const job = `job-${driver}`;
        plane.want(job, 1, await runOf(plane, job, `echo begun; sleep ${sleeps(8834)}`));
        await plane.see('web', 'ready');
        await eventually(() => plane.lines('build-slow').includes('begun'));
        await eventually(() => plane.lines(`run-${job}`).length === 1);
        first.kill('SIGKILL');
        plane.observed.length = 0;

        start(driver);
        await plane.see('web', 'ready', 30_000);
        await eventually(() => plane.latest('slow')?.state === 'building');
        // What a run has done it may not do twice.
        expect((await plane.see(job, 'error')).reason).toContain('the region was interrupted');
        expect([plane.lines(`run-${job}`), await running(sleeps(8834))]).toEqual([['begun'], 0]);
        // What it used until then is told: nothing had read its counter but the agent that came after.
        if (driver === 'local') {
          const used = () => [...plane.usage.values()].find(({ id, final }) => id === job && final);
          expect((await eventually(used)).cpu_us).toBeGreaterThan(1_000);
        }
        expect(await hello('web')).toMatchObject({ hello: 'world' });
        await eventually(async () => (await running(sleeps(8831))) === 1);
        expect(plane.epoch).toBe(2);
        // The second build's log goes on behind the first one's.
        await eventually(() => plane.lines('build-slow').filter((line) => line === 'begun').length === 2);

        const last = agents.at(-1)!;
        const began = Date.now();
        last.kill('SIGTERM');
        await new Promise((resolve) => last.once('exit', resolve));
        expect(Date.now() - began).toBeLessThan(10_000);
        expect(await marked((mark) => mark.startsWith(`${homeTag(home())}:`))).toEqual([]);
        for (const word of [8831, 8832, 8833].map(sleeps))
          expect([word, await running(word)]).toEqual([word, 0]);
        expect(await readdir(join(home(), 'runs'))).toEqual([]);
        const spaces = await readdir('/run/netns').catch(() => []);
        expect(spaces.filter((name) => name.includes(homeTag(home())))).toEqual([]);
      },
      90_000,
    );
    run(
      `${driver}: killed in the middle of a build: the cache is that of the build before; it goes with the app`,
      async () => {
        const files = { 'package.json': JSON.stringify({ dependencies: { next: '16.0.0' } }) };
        const app_id =
          driver === 'local'
            ? '0aa55f5b-4b5d-4b07-8d5a-6c2a3f1f5e01'
            : '0aa55f5b-4b5d-4b07-8d5a-6c2a3f1f5e02';
        const command = (mark: string, end: string) =>
          `echo "had $(cat .next/cache/mark)"; mkdir -p .next/cache dist; echo ${mark} > .next/cache/mark; echo > dist/a; ${end}`;
        const build = async (id: string, mark: string, end: string) => {
          const more = {
            app_id,
            install_command: 'true',
            output_directory: 'dist',
            build_command: command(mark, end),
          };
          const name = `${driver}-${id}`;
          plane.want(name, 1, await buildOf(plane, name, files, more));
          return name;
        };
        const first = start(driver);
        await plane.see(await build('one', 'first', 'true'), 'success', 30_000);
        const cut = await build('cut', 'second', 'sleep 8835');
        await eventually(() => plane.lines(`build-${cut}`).includes('had first'));
        first.kill('SIGKILL');
        plane.forget('build', cut);

        const second = start(driver);
        const next = await build('next', 'third', 'true');
        await plane.see(next, 'success', 30_000);
        expect(plane.lines(`build-${next}`)).toContain('had first');
        second.kill('SIGKILL');
        const caches = () => readdir(join(home(), 'build-cache')).then((names) => names.length);
        const before = await caches();
        plane.goneApps.add(app_id);
        start(driver);
        await eventually(async () => (await caches()) === before - 1);
      },
      90_000,
    );
  }
});
