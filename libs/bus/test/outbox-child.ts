/**
 * The program that `outbox-kill.spec.ts` kills again and again: it writes events with their cause in one transaction,
 * relays the outbox, and consumes with the inbox, all at full speed, until it dies or is told to only finish.
 */
import { Database } from '@nebo/persistence';
import { EmbeddedBus } from '../src/embedded/embedded-bus.js';
import { defineEvent } from '../src/envelope.js';
import { type EventBus } from '../src/event-bus.js';
import { hear, on } from '../src/hear.js';
import { NatsBus } from '../src/nats/nats-bus.js';
import { OutboxRelay } from '../src/outbox-relay.js';
import { say } from '../src/outbox.js';

const { TEST_URL, TEST_SCHEMA, TEST_NATS, TEST_WRITE } = process.env;
const made = defineEvent<{ n: string }>('nebo.test.killed.made.v1');
const options = { redelivery: { baseMs: 20, maxMs: 200 }, ackWaitMs: 1_000 };

const db = new Database({ url: TEST_URL!, schema: TEST_SCHEMA!, max: 10 });
const bus: EventBus = TEST_NATS
  ? new NatsBus({ servers: TEST_NATS, ...options })
  : new EmbeddedBus({ ...options, graceMs: 200 });
const relay = new OutboxRelay(db, bus, { pollMs: 100, batch: 32 });

await hear(bus, db, [
  on(
    made,
    'test-killed',
    async (tx, event) => {
      await tx.query('insert into effect (event_id) values ($1::uuid)', [event.id]);
      // Some handlers fail after their effect, some die in the middle of it.
      if (Math.random() < 0.05) throw new Error('now and then');
    },
    { concurrency: 4 },
  ),
]);
await relay.start();
process.send?.('ready');

const write = async () => {
  while (TEST_WRITE === 'yes') {
    await db
      .transaction(async (tx) => {
        const [row] = await tx.query<{ n: bigint }>('insert into cause default values returning n');
        const event = made({ n: row!.n.toString() });
        await say(tx, event);
        await tx.query('update cause set event_id = $1::uuid where n = $2::bigint', [event.id, row!.n]);
        if (Math.random() < 0.05) throw new Error('rolled back');
      })
      .catch((error: Error) => {
        if (error.message !== 'rolled back') throw error;
      });
  }
};
await Promise.all([write(), write(), write()]);
