import { testSchema, type TestSchema } from '../test/database.js';
import {
  gate,
  makeThings,
  note,
  pause,
  type Thing,
  ThingLifecycle,
  untilRows,
  words,
} from '../test/things.js';
import { type Lifecycle, State, type StepContext } from './lifecycle.js';
import { claim, LeaseLost, look, renew, wake, writeEnd, writeGo, writeWait } from './table.js';
import { LifecycleWorker, type LifecycleWorkerOptions } from './worker.js';

describe('races', () => {
  let schema: TestSchema;
  const workers: LifecycleWorker[] = [];
  const work = async (lifecycle: Lifecycle<unknown>, options: LifecycleWorkerOptions = {}) => {
    const worker = new LifecycleWorker(schema.open(), [lifecycle], {
      leaseMs: 2_000,
      pollMs: 60_000,
      backoff: { baseMs: 5, maxMs: 20 },
      stopMs: 1_000,
      ...options,
    });
    workers.push(worker);
    await worker.start();
    return worker;
  };

  beforeAll(async () => {
    schema = await testSchema('races_test');
  }, 60_000);
  afterEach(async () => {
    await Promise.all(workers.splice(0).map((worker) => worker.stop()));
    await schema.admin('truncate lifecycle, thing, journal');
  });
  afterAll(() => schema.close());

  it('a wake between reading the subject and the wait is not lost', async () => {
    const [read, decide] = [gate(), gate()];
    class Late extends ThingLifecycle {
      @State()
      async watching(thing: Thing) {
        if (thing.wanted === 'gone') return this.end();
        read.open();
        await decide.opened;
        return this.wait();
      }
    }
    await work(new Late());
    const [id] = await makeThings(schema.db, 1, 'watching');
    await read.opened;
    await schema.db.transaction(async (tx) => {
      await tx.query("update thing set wanted = 'gone' where id = $1::uuid", [id!]);
      await wake(tx, 'thing', id!);
    });
    decide.open();
    await untilRows(schema.db, [id!], 'the end', (row) => row.endedAt !== null, 5_000);
  });

  it('a wake whose transaction is still open when the wait is written is not lost', async () => {
    const [read, decide, commit] = [gate(), gate(), gate()];
    class Late extends ThingLifecycle {
      @State()
      async watching(thing: Thing) {
        if (thing.wanted === 'gone') return this.end();
        read.open();
        await decide.opened;
        return this.wait();
      }
    }
    await work(new Late());
    const [id] = await makeThings(schema.db, 1, 'watching');
    await read.opened;
    const call = schema.db.transaction(async (tx) => {
      await tx.query("update thing set wanted = 'gone' where id = $1::uuid", [id!]);
      await wake(tx, 'thing', id!);
      decide.open();
      await commit.opened;
    });
    await pause(150);
    commit.open();
    await call;
    await untilRows(schema.db, [id!], 'the end', (row) => row.endedAt !== null, 5_000);
  });

  it('thousands of wakes against waiting steps: the last one is always seen, without any poll', async () => {
    class Counting extends ThingLifecycle {
      @State()
      async counting(thing: Thing) {
        if (Math.random() < 0.1) throw new Error('now and then');
        if (thing.n < 0) return this.end();
        if (Math.random() < 0.3) await pause(Math.random() * 4);
        return Math.random() < 0.2 ? this.go('counting') : this.wait();
      }
    }
    await work(new Counting());
    await work(new Counting());
    const ids = await makeThings(schema.db, 20, 'counting');
    await Promise.all(
      ids.map(async (id) => {
        for (let n = 0; n < 60; n += 1) {
          await schema.db.transaction(async (tx) => {
            await tx.query('update thing set n = $2::int where id = $1::uuid', [id, n === 59 ? -1 : n]);
            await wake(tx, 'thing', id);
          });
          if (Math.random() < 0.3) await pause(Math.random() * 5);
        }
      }),
    );
    await untilRows(schema.db, ids, 'the last wake', (row) => row.endedAt !== null, 10_000);
  }, 60_000);

  it('two workers never run the same step at once', async () => {
    const running = new Set<string>();
    const overlaps: string[] = [];
    let steps = 0;
    class Exclusive extends ThingLifecycle {
      @State()
      async working(thing: Thing, { id }: StepContext) {
        if (running.has(id)) overlaps.push(id);
        running.add(id);
        await pause(Math.random() * 8);
        running.delete(id);
        steps += 1;
        if (thing.n >= 8) return this.end((tx) => note(tx, id, 'ended'));
        const count = (tx: { query: typeof schema.db.query }) =>
          tx.query('update thing set n = n + 1 where id = $1::uuid', [id]);
        if (thing.n % 2 === 0) return this.go('working', count);
        await count(schema.db);
        return this.wait(Math.random() * 5);
      }
    }
    for (let n = 0; n < 4; n += 1) await work(new Exclusive(), { pollMs: 50, concurrency: 10 });
    const ids = await makeThings(schema.db, 60, 'working');
    const waking = setInterval(() => {
      for (const id of ids.slice(0, 20)) void wake(schema.db, 'thing', id).catch(() => undefined);
    }, 20);
    await untilRows(schema.db, ids, 'the end', (row) => row.endedAt !== null, 40_000);
    clearInterval(waking);
    expect(overlaps).toEqual([]);
    expect(steps).toBeGreaterThanOrEqual(60 * 9);
    for (const id of ids) expect(await words(schema.db, id)).toEqual(['ended']);
  }, 60_000);

  it('an API call that changes the thing and wakes it never deadlocks with a step that writes both', async () => {
    class Busy extends ThingLifecycle {
      @State()
      async busy(thing: Thing) {
        if (thing.wanted === 'gone') return this.end();
        return this.go('busy', async (tx) => {
          await tx.query('update thing set n = n + 1 where id = $1::uuid', [thing.id]);
          await pause(1);
        });
      }
    }
    const trouble: Error[] = [];
    await work(new Busy(), {
      observer: { trouble: (error) => trouble.push(error), threw: (_s, e) => trouble.push(e) },
    });
    const ids = await makeThings(schema.db, 4, 'busy');
    for (let n = 0; n < 40; n += 1) {
      await Promise.all(
        ids.map((id) =>
          schema.db.transaction(async (tx) => {
            await tx.query('update thing set wanted = $2 where id = $1::uuid', [
              id,
              n === 39 ? 'gone' : 'there',
            ]);
            await wake(tx, 'thing', id);
          }),
        ),
      );
    }
    await untilRows(schema.db, ids, 'the end', (row) => row.endedAt !== null);
    expect(trouble).toEqual([]);
  }, 60_000);

  it('a stale fence is refused by every write', async () => {
    const [id] = await makeThings(schema.db, 1, 'working');
    const {
      claims: [old],
    } = await claim(schema.db, ['thing'], 1, 'old', 1);
    await pause(20);
    const {
      claims: [young],
      leftMs,
    } = await claim(schema.db, ['thing'], 1, 'young', 10_000);
    expect(leftMs).toBe(Infinity);
    expect(young!.fence).toBeGreaterThan(old!.fence);
    expect(young!.attempt).toBe(2);
    const go = { state: 'x', deadlineMs: null, reason: null, leaseMs: 1_000, newFence: false };
    const wait = { waitMs: 5, deadlineMs: null, reason: null, attempt: 0 };
    await expect(writeGo(schema.db, old!, go)).rejects.toThrow(LeaseLost);
    await expect(writeWait(schema.db, old!, wait)).rejects.toThrow(LeaseLost);
    await expect(writeEnd(schema.db, old!, null)).rejects.toThrow(LeaseLost);
    expect(await renew(schema.db, [old!], 1_000)).toEqual([]);
    expect(await renew(schema.db, [young!], 1_000)).toHaveLength(1);
    await writeEnd(schema.db, young!, null);
    expect((await look(schema.db, 'thing', id!))!.endedAt).not.toBeNull();
  });

  it('a renewal does not wait for a row that is locked, nor lose it', async () => {
    await makeThings(schema.db, 2, 'working');
    const { claims } = await claim(schema.db, ['thing'], 2, 'me', 10_000);
    const held = gate();
    const locked = gate();
    const lock = schema.db.transaction(async (tx) => {
      await tx.query('select 1 from lifecycle where id = $1::uuid for update', [claims[0]!.id]);
      locked.open();
      await held.opened;
    });
    await locked.opened;
    const begun = Date.now();
    expect(await renew(schema.db, claims, 10_000)).toHaveLength(2);
    expect(Date.now() - begun).toBeLessThan(1_000);
    held.open();
    await lock;
  });

  it('goes on after all its connections to PostgreSQL were cut', async () => {
    class Two extends ThingLifecycle {
      @State()
      async first(thing: Thing) {
        await note(schema.db, thing.id, 'first');
        await pause(150);
        return this.go('second');
      }
      @State()
      second() {
        return this.end();
      }
    }
    await work(new Two(), { leaseMs: 600, pollMs: 100 });
    const ids = await makeThings(schema.db, 5, 'first');
    await pause(80);
    await schema.admin(
      `select pg_terminate_backend(pid) from pg_stat_activity where usename = 'nebo_races_test'`,
    );
    await untilRows(schema.open(), ids, 'the end', (row) => row.endedAt !== null);
  }, 60_000);
});
