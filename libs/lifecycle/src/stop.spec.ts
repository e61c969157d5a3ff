import { testSchema, type TestSchema } from '../test/database.js';
import { gate, makeThings, note, pause, type Thing, ThingLifecycle, words } from '../test/things.js';
import { State, type StepContext } from './lifecycle.js';
import { look } from './table.js';
import { LifecycleWorker } from './worker.js';

describe('stop', () => {
  let schema: TestSchema;
  beforeAll(async () => {
    schema = await testSchema('stop_test');
  }, 60_000);
  afterAll(() => schema.close());

  it('stop lets short steps finish, ends those that listen, and gives back the lease of the deaf', async () => {
    const begun = gate();
    let count = 0;
    const release = gate();
    class Stopping extends ThingLifecycle {
      private async begin() {
        count += 1;
        if (count === 3) begun.open();
        await begun.opened;
      }
      @State()
      async short(_thing: Thing) {
        await this.begin();
        await pause(100);
        return this.end();
      }
      @State()
      async listening(_thing: Thing, { signal }: StepContext) {
        await this.begin();
        await new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
        return this.end();
      }
      @State()
      async deaf(thing: Thing) {
        await this.begin();
        await release.opened;
        return this.end((tx) => note(tx, thing.id, 'late'));
      }
    }
    const lost: string[] = [];
    const worker = new LifecycleWorker(schema.db, [new Stopping()], {
      stopMs: 400,
      leaseMs: 10_000,
      observer: { leaseLost: (step) => lost.push(step.state) },
    });
    await worker.start();
    const [short] = await makeThings(schema.db, 1, 'short');
    const [listening] = await makeThings(schema.db, 1, 'listening');
    const [deaf] = await makeThings(schema.db, 1, 'deaf');
    await begun.opened;
    const started = Date.now();
    await worker.stop();
    expect(Date.now() - started).toBeLessThan(1_500);
    expect((await look(schema.db, 'thing', short!))!.endedAt).not.toBeNull();
    const open = await schema.db.query(
      `select state, attempt, reason, lease_until is null as free, run_at <= now() as due
       from lifecycle where ended_at is null order by state`,
    );
    expect(open).toEqual(
      ['deaf', 'listening'].map((state) => ({ state, attempt: 0, reason: null, free: true, due: true })),
    );
    release.open();
    await pause(200);
    expect(lost).toEqual(['deaf']);
    expect(await words(schema.db, deaf!)).toEqual([]);
    expect((await look(schema.db, 'thing', listening!))!.endedAt).toBeNull();
  });

  it('a second stop and a stop before start do no harm', async () => {
    class Idle extends ThingLifecycle {
      @State()
      only() {
        return this.end();
      }
    }
    const worker = new LifecycleWorker(schema.db, [new Idle()]);
    await worker.stop();
    await worker.stop();
    expect(worker.busy).toBe(0);
  });
});
