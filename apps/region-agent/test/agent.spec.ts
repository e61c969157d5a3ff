import { readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type ReplicaFacts } from '@nebo/contracts';
import { marked } from '../src/system/processes.js';
import { homeTag } from '../src/system/runs.js';
import { FakeControlPlane } from './fake-control-plane.js';
import { eventually, later, stage, startAgent, type Stage } from './agent-kit.js';
import { buildOf, helloServer, replicaOf } from './sources.js';

describe('the agent and its control plane', () => {
  let on: Stage;
  beforeEach(async () => {
    on = await stage('simulated');
  });
  afterEach(() => on.end());
  const leftOver = () => marked((mark) => mark.startsWith(`${homeTag(on.home)}:`));
  const address = (id: string) => {
    const facts = on.plane.latest(id)!.facts as unknown as ReplicaFacts;
    return `http://${facts.host}:${facts.port}/`;
  };

  it('an older epoch stops acting: its replicas end, it asks nothing more', async () => {
    on.plane.want('web', 1, await replicaOf(on.plane, 'web', helloServer));
    await on.plane.see('web', 'ready');
    const url = address('web');
    on.plane.epoch++;
    await eventually(() => on.agent.status().state === 'superseded');
    await eventually(() =>
      fetch(url).then(
        () => false,
        () => true,
      ),
    );
    const told = on.plane.observed.length;
    await later(300);
    expect(on.plane.observed).toHaveLength(told);
    expect(await leftOver()).toEqual([]);
  });

  it('survives a lost control plane: what runs goes on, everything is told again afterwards', async () => {
    on.plane.want('web', 1, await replicaOf(on.plane, 'web', helloServer));
    await on.plane.see('web', 'ready');
    on.plane.refuse = true;
    on.plane.cut();
    await eventually(() => on.agent.status().state === 'connecting');
    expect(await (await fetch(address('web'))).json()).toMatchObject({ hello: 'world' });
    on.plane.observed.length = 0;
    on.plane.refuse = false;
    await on.plane.see('web', 'ready');
    // The report is taken before its answer is read.
    await eventually(() => on.agent.status().state === 'connected');
    expect(on.agent.status()).toMatchObject({ epoch: 1 });
  });

  it('sends every log line once and in order, though connections break and answers are lost', async () => {
    const lines = `let i = 0; const t = setInterval(() => { for (let k = 0; k < 50; k++) console.log('line ' + i++); if (i >= 2000) clearInterval(t); }, 10);`;
    const build = await buildOf(
      on.plane,
      'log',
      { 'w.js': lines, 'index.html': '' },
      { build_command: 'node w.js' },
    );
    on.plane.want('log', 1, build);
    for (let i = 0; i < 4; i++) {
      await later(80);
      on.plane.loseAnswers = 1;
      await later(60);
      on.plane.cut();
    }
    await on.plane.see('log', 'success');
    const seen = on.plane.lines('build-log').filter((line) => line.startsWith('line '));
    expect(seen).toEqual(Array.from({ length: 2000 }, (_, i) => `line ${i}`));
    const numbers = [...on.plane.logs.get('build-log')!.keys()].sort((a, b) => a - b);
    expect(numbers).toEqual(numbers.map((_, i) => i));
    expect(on.plane.received.get('build-log')!.length).toBeGreaterThan(numbers.length);
    expect(on.plane.done.has('build-log')).toBe(true);
  });

  it('runs at most two builds at a time and cancels one that waits', async () => {
    for (const id of ['a', 'b', 'c'])
      on.plane.want(
        id,
        1,
        await buildOf(
          on.plane,
          id,
          { 'index.html': '' },
          { build_command: `echo begun; sleep ${id === 'c' ? 0 : 1000}` },
        ),
      );
    await eventually(
      () => on.plane.lines('build-a').includes('begun') && on.plane.lines('build-b').includes('begun'),
    );
    await later(100);
    expect(on.plane.latest('c')).toBeUndefined();
    on.plane.want('b', 2, await buildOf(on.plane, 'b', { 'index.html': '' }), true);
    await on.plane.see('b', 'cancelled');
    await on.plane.see('c', 'success');
    on.plane.want('a', 2, await buildOf(on.plane, 'a', { 'index.html': '' }), true);
    await on.plane.see('a', 'cancelled');
  });

  it('a newer generation with another source ends the older work', async () => {
    on.plane.want(
      'x',
      1,
      await buildOf(on.plane, 'x', { 'index.html': 'old' }, { build_command: 'echo begun; sleep 1000' }),
    );
    await eventually(() => on.plane.lines('build-x').includes('begun'));
    on.plane.want('x', 2, await buildOf(on.plane, 'x', { 'index.html': 'new' }, { log_stream: 'build-x2' }));
    expect(await on.plane.see('x', 'success')).toMatchObject({ generation: 2 });
  });

  it('stops at once: builds and replicas end, nobody is sent there any more', async () => {
    on.plane.want('web', 1, await replicaOf(on.plane, 'web', helloServer));
    on.plane.want(
      'slow',
      1,
      await buildOf(on.plane, 'slow', { 'index.html': '' }, { build_command: 'echo begun; sleep 1000' }),
    );
    await on.plane.see('web', 'ready');
    await eventually(() => on.plane.lines('build-slow').includes('begun'));
    const began = Date.now();
    await on.agent.stop();
    expect(Date.now() - began).toBeLessThan(10_000);
    expect(on.plane.latest('web')).toMatchObject({
      state: 'starting',
      reason: "The region's agent is stopping.",
    });
    expect(await leftOver()).toEqual([]);
  });

  it('a finished build is not made again by the next agent', async () => {
    const env = [{ name: 'TOKEN', value: 'tok-on-disk', secret: true }];
    on.plane.want('once', 1, await buildOf(on.plane, 'once', { 'index.html': '' }, { env }));
    const first = await on.plane.see('once', 'success');
    await on.agent.stop();
    // What is kept to know it again holds none of its secrets.
    const files = (await readdir(on.home, { recursive: true, withFileTypes: true })).filter((entry) =>
      entry.isFile(),
    );
    expect(files.some(({ parentPath }) => parentPath.endsWith('outcomes'))).toBe(true);
    for (const { parentPath, name } of files)
      expect([name, (await readFile(join(parentPath, name), 'latin1')).includes('tok-on-disk')]).toEqual([
        name,
        false,
      ]);
    on.plane.observed.length = 0;
    const next = await startAgent(on.plane, on.home, 'simulated');
    expect((await on.plane.see('once', 'success')).facts).toEqual(first.facts);
    await next.stop();
  });
});

describe('a control plane that comes late', () => {
  it('is waited for', async () => {
    const plane = await new FakeControlPlane().start();
    const port = Number(new URL(plane.url).port);
    await plane.stop();
    const on = { ...(await stage('simulated')) };
    const late = await startAgent(plane, `${on.home}-late`, 'simulated');
    await later(300);
    expect(late.status().state).toBe('connecting');
    const back = await new FakeControlPlane().start(port);
    await eventually(() => late.status().state === 'connected');
    await late.stop();
    await back.stop();
    await rm(`${on.home}-late`, { recursive: true, force: true });
    await on.end();
  });
});
