import { fork, type ChildProcess } from 'node:child_process';
import { once as onceEmitted } from 'node:events';
import { fileURLToPath } from 'node:url';
import { findNats, startNats } from '@nebo/test-kit';
import { pause } from '../test/bus.contract.js';
import { testSchema, type TestSchema } from '../test/database.js';

const { found, reason } = findNats();
/** Kills on each transport; more with NEBO_PROOF (`npm run proof -- outbox`). */
const kills = Number(process.env['NEBO_PROOF'] || 6);
const limitMs = 90_000 + kills * 10_000;
const tables = `
  create table cause (n bigint generated always as identity primary key, event_id uuid);
  create table effect (event_id uuid not null);`;

/** Nothing may be lost or doubled in effect although writer, relay and consumer die together in mid work. */
describe('kill -9 of a process that writes, relays and consumes', () => {
  const children: ChildProcess[] = [];
  const schemas: TestSchema[] = [];
  // Also after a failed test nothing may be left running: it would keep Jest waiting.
  afterEach(async () => {
    await Promise.all(children.splice(0).map(kill));
    await Promise.all(schemas.splice(0).map((schema) => schema.close()));
  });

  const start = async (
    schema: TestSchema,
    natsUrl: string | undefined,
    write: boolean,
  ): Promise<ChildProcess> => {
    const test = fileURLToPath(new URL('../test/', import.meta.url));
    const child = fork(`${test}outbox-child.ts`, {
      execArgv: ['--conditions', 'nebo-src', '--import', `${test}../../../tools/test/run-ts.mjs`],
      env: {
        PATH: process.env['PATH'],
        TEST_URL: schema.url,
        TEST_SCHEMA: schema.schema,
        TEST_WRITE: write ? 'yes' : 'no',
        ...(natsUrl !== undefined && { TEST_NATS: natsUrl }),
      },
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
    children.push(child);
    await Promise.race([
      onceEmitted(child, 'message'),
      onceEmitted(child, 'exit').then(() => Promise.reject(new Error('the child ended at its start'))),
    ]);
    return child;
  };
  const kill = async (child: ChildProcess) => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const gone = onceEmitted(child, 'exit');
    child.kill('SIGKILL');
    await gone;
  };

  const proof = async (natsUrl: string | undefined) => {
    const schema = await testSchema(natsUrl === undefined ? 'kill_embedded' : 'kill_nats', tables);
    schemas.push(schema);
    const count = async (table: string) =>
      Number((await schema.db.query<{ n: bigint }>(`select count(*) as n from ${table}`))[0]!.n);
    for (let round = 0; round < kills; round += 1) {
      const child = await start(schema, natsUrl, true);
      // In mid work, however slow the machine is: some events are committed, then at a random moment.
      const enough = (await count('cause')) + 25;
      const limit = Date.now() + 15_000;
      while ((await count('cause')) < enough && Date.now() < limit) await pause(10);
      await pause(Math.random() * 400);
      await kill(child);
    }
    const last = await start(schema, natsUrl, false);
    const committed = await count('cause');
    const end = Date.now() + 40_000 + kills * 1_000;
    while ((await count('effect')) < committed && Date.now() < end) await pause(50);
    // Doubles would come late: leave them the time to.
    await pause(300);
    await kill(last);

    const lost = await schema.db.query(
      'select n from cause where event_id not in (select event_id from effect)',
    );
    const doubled = await schema.db.query('select event_id from effect group by 1 having count(*) > 1');
    const invented = await schema.db.query(
      'select event_id from effect where event_id not in (select event_id from cause)',
    );
    expect({ lost, doubled, invented }).toEqual({ lost: [], doubled: [], invented: [] });
    expect(committed).toBeGreaterThan(kills * 20);
  };

  it('loses and doubles nothing with the embedded bus', () => proof(undefined), limitMs);

  (found === null ? it.skip : it)(
    `loses and doubles nothing with NATS${found === null ? ` (skipped: ${reason})` : ''}`,
    async () => {
      const nats = await startNats();
      try {
        await proof(nats.url);
      } finally {
        await nats.stop();
      }
    },
    limitMs,
  );
});
