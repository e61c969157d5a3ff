import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { marked } from '../src/system/processes.js';
import { homeTag } from '../src/system/runs.js';
import { eventually, later, localMissing, stage, startAgent, type Stage } from './agent-kit.js';
import { plain, runOf, secret } from './sources.js';

const missing = await localMissing();

for (const driver of ['simulated', 'local'] as const) {
  const suite = driver === 'local' && missing !== null ? describe.skip : describe;
  suite(`job runs, ${driver}`, () => {
    let on: Stage;
    beforeEach(async () => {
      on = await stage(driver);
    });
    afterEach(() => on.end());
    const leftOver = () => marked((mark) => mark.startsWith(`${homeTag(on.home)}:`));

    it('runs the command in the artifact with its variables, ships its lines, masks secrets, says success', async () => {
      const command = 'cat words.txt; echo; echo "$GREETING $TOKEN" >&2; echo last';
      const env = [plain('GREETING', 'hello'), secret('TOKEN', 'sesame-open')];
      on.plane.want('job', 1, await runOf(on.plane, 'job', command, { env }));
      const end = await on.plane.see('job', 'success');
      expect(end).toMatchObject({ kind: 'run', generation: 1, reason: null });
      expect(end.facts).toMatchObject({ exit_code: 0, isolated: driver === 'local' });
      expect(end.facts['duration_ms']).toEqual(expect.any(Number));
      const states = on.plane.observed.filter(({ id }) => id === 'job').map(({ state }) => state);
      expect(states).toEqual(['running', 'success']);
      expect(on.plane.lines('run-job').sort()).toEqual(['from the artifact', 'hello ********', 'last']);
      expect(on.plane.done.has('run-job')).toBe(true);
      expect(await leftOver()).toEqual([]);
    });

    it('says how it failed: the exit code and the last line', async () => {
      on.plane.want('job', 1, await runOf(on.plane, 'job', 'echo begun; echo "no such table" >&2; exit 3'));
      const end = await on.plane.see('job', 'error');
      expect(end.reason).toBe('the command exited with code 3: no such table');
      expect(end.facts).toMatchObject({ exit_code: 3 });
    });

    it('ends a command that takes too long, children included: timeout', async () => {
      const more = { timeout_ms: 700 };
      on.plane.want('job', 1, await runOf(on.plane, 'job', 'echo begun; sleep 8841 & sleep 8842', more));
      const end = await on.plane.see('job', 'timeout');
      expect(end.reason).toBe('the command did not end within 1 s: begun');
      expect(end.facts).toMatchObject({ exit_code: null });
      expect(await leftOver()).toEqual([]);
    });

    it('is cancelled when it shall go, and when nobody lists it any more', async () => {
      const spec = await runOf(on.plane, 'job', 'echo begun; sleep 8843');
      on.plane.want('job', 1, spec);
      on.plane.want('other', 1, { ...spec, spec: { ...spec.spec, log_stream: 'run-other' } });
      await eventually(
        () => on.plane.lines('run-job').length === 1 && on.plane.lines('run-other').length === 1,
      );
      on.plane.want('job', 2, spec, true);
      expect(await on.plane.see('job', 'cancelled')).toMatchObject({ generation: 2 });
      on.plane.forget('run', 'other');
      await on.plane.see('other', 'cancelled');
      expect(await leftOver()).toEqual([]);
    });
  });
}

describe('a job run is started once', () => {
  let on: Stage;
  beforeEach(async () => {
    process.env['NEBO_JOB_RUNS'] = '1';
    on = await stage('simulated');
  });
  afterEach(async () => {
    delete process.env['NEBO_JOB_RUNS'];
    await on.end();
  });

  it('not before the control plane has taken that it runs', async () => {
    on.plane.deaf = true;
    on.plane.want('job', 1, await runOf(on.plane, 'job', 'echo begun'));
    await later(1_000);
    expect(on.plane.lines('run-job')).toEqual([]);
    on.plane.deaf = false;
    await on.plane.see('job', 'success');
    expect(on.plane.lines('run-job')).toEqual(['begun']);
  });

  it('one that the control plane knows as begun and this agent does not is an error, not repeated', async () => {
    on.plane.want('job', 1, await runOf(on.plane, 'job', 'echo begun', { begun: true }));
    const end = await on.plane.see('job', 'error');
    expect(end.reason).toContain('the region was interrupted');
    expect(on.plane.lines('run-job')).toEqual([]);
  });

  it('an agent that stops in the middle says so, and the next one does not repeat it', async () => {
    on.plane.want('job', 1, await runOf(on.plane, 'job', 'echo begun; sleep 8844'));
    await eventually(() => on.plane.lines('run-job').length === 1);
    await on.agent.stop();
    expect(on.plane.latest('job')).toMatchObject({ state: 'error' });
    on.agent = await startAgent(on.plane, on.home, 'simulated');
    await later(1_000);
    expect(on.plane.latest('job')).toMatchObject({ state: 'error' });
    expect(on.plane.lines('run-job').filter((line) => line === 'begun')).toHaveLength(1);
  });

  it('what ended while the control plane did not hear is told by the next agent as it was', async () => {
    on.plane.want('job', 1, await runOf(on.plane, 'job', 'sleep 1; echo done'));
    await on.plane.see('job', 'running');
    on.plane.deaf = true;
    await eventually(async () =>
      (await readFile(join(on.home, 'job-runs'), 'utf8').catch(() => '')).includes('"success"'),
    );
    await on.agent.stop();
    expect(on.plane.latest('job')).toMatchObject({ state: 'running' });
    on.plane.deaf = false;
    on.agent = await startAgent(on.plane, on.home, 'simulated');
    expect((await on.plane.see('job', 'success')).facts).toMatchObject({ exit_code: 0 });
    expect(on.plane.lines('run-job')).toEqual(['done']);
  });

  it('waits while the region runs as many as it may; one that is called off meanwhile never starts', async () => {
    on.plane.want('a', 1, await runOf(on.plane, 'a', 'echo a; sleep 8845'));
    await eventually(() => on.plane.lines('run-a').length === 1);
    on.plane.want('b', 1, await runOf(on.plane, 'b', 'echo b'));
    const third = await runOf(on.plane, 'c', 'echo c');
    on.plane.want('c', 1, third);
    await later(500);
    on.plane.want('b', 2, await runOf(on.plane, 'b', 'echo b'), true);
    await on.plane.see('b', 'cancelled');
    expect(on.plane.latest('c')).toBeUndefined();
    on.plane.want('a', 2, await runOf(on.plane, 'a', ''), true);
    await on.plane.see('c', 'success');
    expect(on.plane.lines('run-b')).toEqual([]);
  });

  it('a command that only prints keeps its first and last lines', async () => {
    on.plane.want('job', 1, await runOf(on.plane, 'job', 'seq 1 20000'));
    await on.plane.see('job', 'success');
    const lines = on.plane.lines('run-job');
    expect(lines).toHaveLength(5_201);
    expect([lines[0], lines[4_999], lines[5_000], lines[5_200]]).toEqual([
      '1',
      '5000',
      'nebo: 14800 lines were left out here',
      '20000',
    ]);
  });

  it('a wrong setting stops the agent', async () => {
    process.env['NEBO_JOB_RUNS'] = 'many';
    await expect(startAgent(on.plane, on.home, 'simulated')).rejects.toThrow('NEBO_JOB_RUNS');
  });
});
