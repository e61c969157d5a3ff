/**
 * A worker process that `processes.spec.ts` kills, stops and continues. Its state `working` tells the parent that it has
 * begun, takes TEST_STEP_MS, and would then write; every refused write is told as well.
 */
import { Database } from '@nebo/persistence';
import { State } from '../src/lifecycle.js';
import { LifecycleWorker } from '../src/worker.js';
import { note, pause, type Thing, ThingLifecycle } from './things.js';

const { TEST_URL, TEST_SCHEMA, TEST_NAME, TEST_STEP_MS, TEST_LEASE_MS } = process.env;
const tell = (word: string, id: string) => process.send?.({ word, id });
const db = new Database({ url: TEST_URL!, schema: TEST_SCHEMA!, max: 12 });

export class Working extends ThingLifecycle {
  @State()
  async working(thing: Thing) {
    await note(db, thing.id, `begun by ${TEST_NAME}`);
    tell('begun', thing.id);
    await pause(Number(TEST_STEP_MS));
    return this.go('done', (tx) => note(tx, thing.id, `written by ${TEST_NAME}`));
  }
  @State()
  async done(thing: Thing) {
    return this.end((tx) => note(tx, thing.id, `ended by ${TEST_NAME}`));
  }
}

const worker = new LifecycleWorker(db, [new Working()], {
  leaseMs: Number(TEST_LEASE_MS),
  pollMs: 100,
  concurrency: 20,
  stopMs: 1_000,
  observer: { leaseLost: (step) => tell('refused', step.id) },
});
await worker.start();
tell('ready', '');
process.on('SIGTERM', () => void worker.stop().then(() => process.exit(0)));
