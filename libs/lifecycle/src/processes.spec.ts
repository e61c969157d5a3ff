import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { waitFor } from '@nebo/test-kit';
import { testSchema, type TestSchema } from '../test/database.js';
import { makeThings, untilRows, words } from '../test/things.js';

/** Things that live through each kind of interruption; more with NEBO_PROOF (`npm run proof -- lifecycle`). */
const things = Number(process.env['NEBO_PROOF'] || 100);
const sleeps = Math.max(1, Math.ceil(things / 20));
const kills = Math.max(1, Math.floor(things / 100));

/** A worker in a process of its own, and what it told. */
interface Child {
  process: ChildProcess;
  told: { word: string; id: string }[];
  count(word: string): number;
}

describe('workers in processes of their own', () => {
  let schema: TestSchema;
  const children: Child[] = [];

  const start = async (name: string, stepMs: number, leaseMs: number): Promise<Child> => {
    const test = fileURLToPath(new URL('../test/', import.meta.url));
    const forked = fork(`${test}worker-child.ts`, {
      execArgv: ['--conditions', 'nebo-src', '--import', `${test}../../../tools/test/run-ts.mjs`],
      env: {
        PATH: process.env['PATH'],
        TEST_URL: schema.url,
        TEST_SCHEMA: schema.schema,
        TEST_NAME: name,
        TEST_STEP_MS: String(stepMs),
        TEST_LEASE_MS: String(leaseMs),
      },
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
    const told: Child['told'] = [];
    forked.on('message', (message) => void told.push(message as { word: string; id: string }));
    const child = {
      process: forked,
      told,
      count: (word: string) => told.filter((each) => each.word === word).length,
    };
    children.push(child);
    await hears(child, 'ready', 1);
    return child;
  };
  const hears = (child: Child, word: string, count: number) =>
    waitFor(`${count} times "${word}"`, 20_000, async () => {
      if (child.process.exitCode !== null) throw new Error('the child ended');
      return child.count(word) >= count ? true : undefined;
    });
  const end = async (child: Child, signal: NodeJS.Signals) => {
    if (child.process.exitCode !== null || child.process.signalCode !== null) return;
    const gone = once(child.process, 'exit');
    child.process.kill('SIGCONT');
    child.process.kill(signal);
    await gone;
  };

  beforeAll(async () => {
    schema = await testSchema('processes_test');
  }, 60_000);
  afterEach(async () => {
    await Promise.all(children.splice(0).map((child) => end(child, 'SIGKILL')));
  });
  afterAll(() => schema.close());

  it(
    `after kill -9 in mid step another worker goes on within seconds (${kills} kills, ${kills * 10} things)`,
    async () => {
      for (let round = 0; round < kills; round += 1) {
        const first = await start('first', 60_000, 1_000);
        const ids = await makeThings(schema.db, 10, 'working');
        await hears(first, 'begun', 10);
        const second = await start('second', 10, 1_000);
        await end(first, 'SIGKILL');
        const killed = Date.now();
        await untilRows(schema.db, ids, 'the end', (row) => row.endedAt !== null);
        expect(Date.now() - killed).toBeLessThan(3_500);
        for (const id of ids) {
          expect(await words(schema.db, id)).toEqual([
            'begun by first',
            'begun by second',
            'written by second',
            'ended by second',
          ]);
        }
        await end(second, 'SIGKILL');
      }
    },
    60_000 * kills,
  );

  it('after SIGTERM another worker goes on at once, without waiting for the lease', async () => {
    const first = await start('first', 60_000, 20_000);
    const ids = await makeThings(schema.db, 5, 'working');
    await hears(first, 'begun', 5);
    await start('second', 10, 20_000);
    await end(first, 'SIGTERM');
    const stopped = Date.now();
    await untilRows(schema.db, ids, 'the end', (row) => row.endedAt !== null);
    expect(Date.now() - stopped).toBeLessThan(2_000);
  }, 60_000);

  const refusals = `${sleeps * 20} of ${sleeps * 20}`;
  it(
    `a worker that slept over its lease (SIGSTOP, SIGCONT) has its write refused, ${refusals}`,
    async () => {
      for (let round = 0; round < sleeps; round += 1) {
        const sleeper = await start('sleeper', 400, 300);
        const ids = await makeThings(schema.db, 20, 'working');
        await hears(sleeper, 'begun', 20);
        sleeper.process.kill('SIGSTOP');
        const heir = await start('heir', 10, 300);
        await untilRows(schema.db, ids, 'the end', (row) => row.endedAt !== null);
        sleeper.process.kill('SIGCONT');
        await hears(sleeper, 'refused', 20);
        for (const id of ids) {
          const journal = await words(schema.db, id);
          expect(journal).toEqual(['begun by sleeper', 'begun by heir', 'written by heir', 'ended by heir']);
        }
        await Promise.all([end(sleeper, 'SIGKILL'), end(heir, 'SIGKILL')]);
      }
    },
    60_000 + sleeps * 15_000,
  );
});
