import { randomUUID } from 'node:crypto';
import type { Sql } from '@nebo/persistence';
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
import { type Change, type Lifecycle, State } from './lifecycle.js';
import { look, start, wake, wakeAll } from './table.js';
import { LifecycleWorker } from './worker.js';

/** Writes of a life that spare a commit: they must mean the same as the steps that they stand for. */
describe('lives with fewer commits', () => {
  let schema: TestSchema;
  const workers: LifecycleWorker[] = [];
  const work = async (lifecycle: Lifecycle<unknown>) => {
    const worker = new LifecycleWorker(schema.db, [lifecycle], { pollMs: 60_000, leaseMs: 5_000 });
    workers.push(worker);
    await worker.start();
  };
  beforeAll(async () => {
    schema = await testSchema();
  }, 60_000);
  afterEach(async () => {
    await Promise.all(workers.splice(0).map((worker) => worker.stop()));
    await schema.admin('truncate lifecycle, thing, journal');
  });
  afterAll(() => schema.close());

  it('rests in a state without looking, until it is woken', async () => {
    class Life extends ThingLifecycle {
      @State()
      first() {
        return this.rest('second', (tx) => tx.query('update thing set n = 7'), 'nobody has said anything');
      }
      @State({ deadline: 60_000, onMissed: 'error' })
      async second(thing: Thing) {
        await note(schema.db, thing.id, 'looked');
        return this.end();
      }
      @State()
      error() {
        return this.end();
      }
    }
    await work(new Life());
    const [id] = await makeThings(schema.db, 1, 'first');
    const [row] = await untilRows(
      schema.db,
      [id!],
      'rest',
      ({ state, attempt }) => state === 'second' && attempt === 0,
    );
    expect(row).toMatchObject({ reason: 'nobody has said anything', endedAt: null });
    expect(row!.deadlineAt!.getTime()).toBeGreaterThan(Date.now() + 30_000);
    await pause(100);
    expect(await words(schema.db, id!)).toEqual([]);
    expect(await schema.db.query('select n, shown from thing')).toEqual([{ n: 7, shown: 'second' }]);
    await schema.db.transaction((tx) => wakeAll(tx, 'thing', [id!]));
    await untilRows(schema.db, [id!], 'the end', ({ endedAt }) => endedAt !== null);
    expect(await words(schema.db, id!)).toEqual(['looked']);
  });

  it('a wake during the step that then rests is not lost', async () => {
    const inside = gate();
    const go = gate();
    class Life extends ThingLifecycle {
      @State()
      async first() {
        inside.open();
        await go.opened;
        return this.rest('second');
      }
      @State()
      async second(thing: Thing) {
        await note(schema.db, thing.id, 'looked');
        return this.end();
      }
    }
    await work(new Life());
    const [id] = await makeThings(schema.db, 1, 'first');
    await inside.opened;
    await wake(schema.db, 'thing', id!);
    go.open();
    await untilRows(schema.db, [id!], 'the end', ({ endedAt }) => endedAt !== null);
    expect(await words(schema.db, id!)).toEqual(['looked']);
  });

  it('chooses its state in the transaction that writes it, and hands on what the effect answered', async () => {
    const told: unknown[] = [];
    class Life extends ThingLifecycle {
      override async changed(tx: Sql, id: string, change: Change, ofEffect?: unknown) {
        await super.changed(tx, id, change);
        told.push([change.to, ofEffect]);
      }
      @State()
      first(thing: Thing) {
        return this.within(async (tx) => {
          await note(tx, thing.id, 'chosen');
          return thing.n > 0
            ? this.go('second', () => Promise.resolve('taken'))
            : this.fail('no room', 'full');
        });
      }
      @State()
      second() {
        return this.end();
      }
      @State()
      full() {
        return this.wait();
      }
    }
    const ids = await makeThings(schema.db, 2, 'first');
    await schema.db.query('update thing set n = 1 where id = $1::uuid', [ids[0]!]);
    await work(new Life());
    await untilRows(schema.db, [ids[0]!], 'the end', ({ endedAt }) => endedAt !== null);
    const [full] = await untilRows(
      schema.db,
      [ids[1]!],
      'full',
      ({ state, attempt }) => state === 'full' && attempt === 0,
    );
    expect(full!.reason).toBe('no room');
    expect(told).toContainEqual(['second', 'taken']);
    expect(told).toContainEqual(['full', undefined]);
    for (const id of ids) expect(await words(schema.db, id)).toEqual(['chosen']);
  });

  it('within a transaction it may only go or fail to a state: anything else writes nothing and says so', async () => {
    class Life extends ThingLifecycle {
      @State()
      first(thing: Thing) {
        return this.within(async (tx) => {
          await note(tx, thing.id, 'undone');
          return this.end();
        });
      }
    }
    await work(new Life());
    const [id] = await makeThings(schema.db, 1, 'first');
    const [row] = await untilRows(schema.db, [id!], 'a reason', ({ reason }) => reason !== null);
    expect(row!.reason).toBe('thing.first may only go or fail to a state within');
    expect(await words(schema.db, id!)).toEqual([]);
  });

  it('a life that begins later is not looked at before, unless it is woken', async () => {
    class Life extends ThingLifecycle {
      @State()
      async first(thing: Thing) {
        await note(schema.db, thing.id, 'looked');
        return this.end();
      }
    }
    await work(new Life());
    const ids = [randomUUID(), randomUUID()];
    await schema.db.query('insert into thing (id) select unnest($1::uuid[])', [ids]);
    for (const id of ids) await start(schema.db, 'thing', id, 'first', new Date(Date.now() + 3_600_000));
    await wake(schema.db, 'thing', ids[1]!);
    await untilRows(schema.db, [ids[1]!], 'the end', ({ endedAt }) => endedAt !== null);
    expect(await words(schema.db, ids[0]!)).toEqual([]);
    expect(await look(schema.db, 'thing', ids[0]!)).toMatchObject({ state: 'first', attempt: 0 });
  });
});
