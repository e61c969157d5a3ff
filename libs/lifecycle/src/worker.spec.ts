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
import { countStates, look, pruneEnded, start, wake } from './table.js';
import { LifecycleWorker, type LifecycleObserver, type LifecycleWorkerOptions } from './worker.js';

const fast = { leaseMs: 2_000, pollMs: 200, backoff: { baseMs: 20, maxMs: 200 }, stopMs: 2_000 };

describe('lifecycle worker', () => {
  let schema: TestSchema;
  const workers: LifecycleWorker[] = [];
  const work = async (
    lifecycle: Lifecycle<unknown> | Lifecycle<unknown>[],
    options: LifecycleWorkerOptions = {},
  ) => {
    const worker = new LifecycleWorker(schema.db, [lifecycle].flat(), { ...fast, ...options });
    workers.push(worker);
    await worker.start();
    return worker;
  };
  const shown = async (id: string) =>
    (await schema.db.query<{ shown: string }>('select shown from thing where id = $1::uuid', [id]))[0]!.shown;

  beforeAll(async () => {
    schema = await testSchema();
  }, 60_000);
  afterEach(async () => {
    await Promise.all(workers.splice(0).map((worker) => worker.stop()));
    await schema.admin('truncate lifecycle, thing, journal');
  });
  afterAll(() => schema.close());

  it('lives a whole life: goes on, waits, is deleted, ends, each with its effect', async () => {
    class Life extends ThingLifecycle {
      @State({ deadline: 60_000, onMissed: 'error' })
      async provisioning(thing: Thing) {
        await note(schema.db, thing.id, `provisioning ${thing.n}`);
        if (thing.wanted === 'gone') return this.go('deleting');
        if (thing.n === 0) {
          await schema.db.query('update thing set n = 1 where id = $1::uuid', [thing.id]);
          return this.wait(30);
        }
        return this.go('active', (tx) => note(tx, thing.id, 'activated'));
      }
      @State()
      active(thing: Thing) {
        return thing.wanted === 'gone' ? this.go('deleting') : this.wait();
      }
      @State()
      async deleting(thing: Thing) {
        return this.end((tx) => note(tx, thing.id, 'closed'));
      }
      @State()
      error() {
        return this.wait();
      }
    }
    const steps: string[] = [];
    await work(new Life(), { observer: { stepped: (step, how) => steps.push(`${step.state}:${how}`) } });
    const [id] = await makeThings(schema.db, 1, 'provisioning');
    await untilRows(schema.db, [id!], 'active', (row) => row.state === 'active' && row.attempt === 0);
    expect(await shown(id!)).toBe('active');
    expect(await countStates(schema.db)).toEqual([{ kind: 'thing', state: 'active', count: 1, failing: 0 }]);
    await schema.db.transaction(async (tx) => {
      await tx.query("update thing set wanted = 'gone' where id = $1::uuid", [id!]);
      expect(await wake(tx, 'thing', id!)).toBe(true);
    });
    const [row] = await untilRows(schema.db, [id!], 'the end', (each) => each.endedAt !== null);
    expect(row).toMatchObject({ state: 'deleting', reason: null, deadlineAt: null });
    expect(await shown(id!)).toBe('ended');
    expect(await words(schema.db, id!)).toEqual(['provisioning 0', 'provisioning 1', 'activated', 'closed']);
    expect(steps).toEqual([
      'provisioning:wait',
      'provisioning:go',
      'active:wait',
      'active:go',
      'deleting:end',
    ]);
    expect(await wake(schema.db, 'thing', id!)).toBe(false);
  });

  it('takes the first step at once and wakes without waiting for the poll', async () => {
    class Life extends ThingLifecycle {
      @State()
      async resting(thing: Thing) {
        await note(schema.db, thing.id, 'looked');
        return this.wait();
      }
    }
    await work(new Life(), { pollMs: 60_000 });
    await pause(50);
    const begun = Date.now();
    const [id] = await makeThings(schema.db, 1, 'resting');
    while ((await words(schema.db, id!)).length < 1) await pause(5);
    await untilRows(schema.db, [id!], 'rest', (row) => row.attempt === 0);
    await wake(schema.db, 'thing', id!);
    while ((await words(schema.db, id!)).length < 2) await pause(5);
    expect(Date.now() - begun).toBeLessThan(2_000);
  });

  it('a thrown error is tried again, later each time, with its reason shown', async () => {
    class Flaky extends ThingLifecycle {
      @State()
      async trying(thing: Thing, { attempt, reason }: StepContext) {
        await note(schema.db, thing.id, `${attempt} ${reason}`);
        if (attempt < 5) throw new Error(`failed ${attempt}`);
        return this.end();
      }
    }
    const waits: number[] = [];
    await work(new Flaky(), {
      backoff: { baseMs: 40, maxMs: 160 },
      observer: { threw: (_step, _error, _attempt, retryMs) => waits.push(retryMs) },
    });
    const [id] = await makeThings(schema.db, 1, 'trying');
    await untilRows(schema.db, [id!], 'the end', (row) => row.endedAt !== null);
    expect(await words(schema.db, id!)).toEqual([
      '1 null',
      '2 failed 1',
      '3 failed 2',
      '4 failed 3',
      '5 failed 4',
    ]);
    for (const [index, full] of [40, 80, 160, 160].entries()) {
      expect(waits[index]).toBeGreaterThanOrEqual(full / 2);
      expect(waits[index]).toBeLessThanOrEqual(full);
    }
  });

  it('what fails again and again is counted apart', async () => {
    let mended = false;
    class Stuck extends ThingLifecycle {
      @State()
      refused() {
        if (!mended) throw new Error('never');
        return this.wait();
      }
    }
    await work(new Stuck(), { backoff: { baseMs: 1, maxMs: 20 } });
    const [id] = await makeThings(schema.db, 1, 'refused');
    await untilRows(schema.db, [id!], 'many failures', (row) => row.attempt >= 5);
    expect(await countStates(schema.db)).toEqual([{ kind: 'thing', state: 'refused', count: 1, failing: 1 }]);
    mended = true;
    await untilRows(schema.db, [id!], 'rest', (row) => row.attempt === 0);
    expect(await countStates(schema.db)).toEqual([{ kind: 'thing', state: 'refused', count: 1, failing: 0 }]);
  });

  it('an effect that fails is undone with the state change and tried again', async () => {
    let failures = 2;
    class Effects extends ThingLifecycle {
      @State()
      async first(thing: Thing) {
        return this.go('second', async (tx) => {
          await note(tx, thing.id, 'effect');
          if (failures > 0) {
            failures -= 1;
            throw new Error('the database said no');
          }
        });
      }
      @State()
      second() {
        return this.wait();
      }
    }
    await work(new Effects());
    const [id] = await makeThings(schema.db, 1, 'first');
    await untilRows(schema.db, [id!], 'second', (row) => row.state === 'second');
    expect(failures).toBe(0);
    expect(await words(schema.db, id!)).toEqual(['effect']);
  });

  it('fail goes to the named state, to onMissed, to error, or ends with the reason', async () => {
    class Failing extends ThingLifecycle {
      @State()
      named(thing: Thing) {
        return this.fail('quota', 'parked', (tx) => note(tx, thing.id, 'refunded'));
      }
      @State({ deadline: 60_000, onMissed: 'parked' })
      missing() {
        return this.fail('no host');
      }
      @State()
      parked() {
        return this.wait();
      }
    }
    class Ending extends ThingLifecycle {
      override readonly kind = 'ending';
      @State()
      only() {
        return this.fail('nowhere to go');
      }
    }
    await work([new Failing(), new Ending()]);
    const [named] = await makeThings(schema.db, 1, 'named');
    const [missing] = await makeThings(schema.db, 1, 'missing');
    const [ending] = await makeThings(schema.db, 1, 'only', 'ending');
    const rows = await untilRows(schema.db, [named!, missing!], 'parked', (row) => row.state === 'parked');
    expect(rows.map((row) => row.reason)).toEqual(['quota', 'no host']);
    expect(await words(schema.db, named!)).toEqual(['refunded']);
    const [ended] = await untilRows(
      schema.db,
      [ending!],
      'the end',
      (row) => row.endedAt !== null,
      20_000,
      'ending',
    );
    expect(ended!.reason).toBe('nowhere to go');
  });

  it('runs each step inside `around`, with what it is told before and after', async () => {
    const told: string[] = [];
    class Life extends ThingLifecycle {
      @State()
      first() {
        told.push('first runs');
        return this.go('second');
      }
      @State()
      second() {
        told.push('second runs');
        return this.end();
      }
    }
    await work(new Life(), {
      observer: {
        around: async ({ state }, run) => {
          told.push(`before ${state}`);
          const result = await run();
          told.push(`after ${state}`);
          return result;
        },
      },
    });
    const ids = await makeThings(schema.db, 1, 'first');
    await untilRows(schema.db, ids, 'the end', (row) => row.endedAt !== null);
    expect(told.slice(0, 5)).toEqual([
      'before first',
      'first runs',
      'after first',
      'before second',
      'second runs',
    ]);
  });

  it('one thing in trouble disturbs no other, and neither does a broken observer', async () => {
    class Mixed extends ThingLifecycle {
      @State()
      async mixed(thing: Thing) {
        if (thing.wanted === 'trouble') throw new Error('always');
        if (thing.wanted === 'nothing') return undefined as never;
        if (thing.wanted === 'typo') return this.go('nowhere' as 'mixed');
        return this.end();
      }
    }
    const broken = () => {
      throw new Error('broken');
    };
    const observer: LifecycleObserver = { stepped: broken, threw: broken };
    const ids = await makeThings(schema.db, 23, 'mixed');
    const wanted = ['trouble', 'nothing', 'typo'];
    for (const [index, word] of wanted.entries()) {
      await schema.db.query('update thing set wanted = $2 where id = $1::uuid', [ids[index]!, word]);
    }
    await schema.db.query(
      "insert into lifecycle (kind, id, state) values ('thing', gen_random_uuid(), 'unknown')",
    );
    await work(new Mixed(), { concurrency: 3, observer });
    await untilRows(schema.db, ids.slice(3), 'the end', (row) => row.endedAt !== null);
    const rows = await untilRows(schema.db, ids.slice(0, 3), 'a reason', (row) => row.reason !== null);
    expect(rows.map((row) => row.reason)).toEqual([
      'always',
      'thing.mixed ended without an outcome: go, rest, wait, fail, end or within',
      'thing has no state "nowhere"',
    ]);
  });

  it('ends the life of a thing that is gone, and a life that ended may begin again', async () => {
    class Short extends ThingLifecycle {
      @State()
      only() {
        return this.end();
      }
      @State()
      resting() {
        return this.wait();
      }
    }
    await work(new Short());
    const [id] = await makeThings(schema.db, 1, 'resting');
    await expect(start(schema.db, 'thing', id!, 'only')).rejects.toThrow(/already has a life/);
    await untilRows(schema.db, [id!], 'rest', (row) => row.attempt === 0);
    await schema.db.query('delete from thing where id = $1::uuid', [id!]);
    await wake(schema.db, 'thing', id!);
    const [gone] = await untilRows(schema.db, [id!], 'the end', (row) => row.endedAt !== null);
    expect(gone!.reason).toBe('the thing itself is gone');
    await schema.db.query('insert into thing (id) values ($1::uuid)', [id!]);
    await start(schema.db, 'thing', id!, 'only');
    await untilRows(
      schema.db,
      [id!],
      'the second end',
      (row) => row.state === 'only' && row.endedAt !== null,
    );
    expect(await pruneEnded(schema.db, 3_600_000)).toBe(0);
    expect(await pruneEnded(schema.db, -1_000)).toBe(1);
    expect(await look(schema.db, 'thing', id!)).toBeNull();
  });

  it('runs no more steps at a time than allowed', async () => {
    let now = 0;
    let most = 0;
    class Counted extends ThingLifecycle {
      @State()
      async counted() {
        now += 1;
        most = Math.max(most, now);
        await pause(60);
        now -= 1;
        return this.end();
      }
    }
    await work(new Counted(), { concurrency: 4 });
    const ids = await makeThings(schema.db, 40, 'counted');
    await untilRows(schema.db, ids, 'the end', (row) => row.endedAt !== null);
    expect(most).toBe(4);
  });

  it('leaves other kinds alone', async () => {
    class Mine extends ThingLifecycle {
      @State()
      only() {
        return this.end();
      }
    }
    const [other] = await makeThings(schema.db, 1, 'only', 'other');
    await work(new Mine());
    const [mine] = await makeThings(schema.db, 1, 'only');
    await untilRows(schema.db, [mine!], 'the end', (row) => row.endedAt !== null);
    expect(await look(schema.db, 'other', other!)).toMatchObject({ endedAt: null, attempt: 0 });
  });

  it('a long step hears that it was woken, and its lease is renewed meanwhile', async () => {
    const begun = gate();
    class Long extends ThingLifecycle {
      @State()
      async building(thing: Thing, { woken, signal }: StepContext) {
        if (thing.wanted === 'gone') return this.end();
        begun.open();
        await new Promise((resolve) => {
          woken.addEventListener('abort', resolve);
          signal.addEventListener('abort', resolve);
        });
        await note(schema.db, thing.id, `woken ${woken.aborted}, aborted ${signal.aborted}`);
        return this.wait();
      }
    }
    await work(new Long(), { leaseMs: 400 });
    await work(new Long(), { leaseMs: 400 });
    const [id] = await makeThings(schema.db, 1, 'building');
    await begun.opened;
    await pause(1_500);
    expect(await words(schema.db, id!)).toEqual([]);
    await schema.db.query("update thing set wanted = 'gone' where id = $1::uuid", [id!]);
    await wake(schema.db, 'thing', id!);
    await untilRows(schema.db, [id!], 'the end', (row) => row.endedAt !== null);
    expect(await words(schema.db, id!)).toEqual(['woken true, aborted false']);
  });

  it('refuses a lifecycle that cannot be lived', () => {
    class Nowhere extends ThingLifecycle {
      @State({ deadline: 5 })
      only() {
        return this.end();
      }
    }
    class Typo extends ThingLifecycle {
      @State({ onMissed: 'eror' })
      only() {
        return this.end();
      }
    }
    class Empty extends ThingLifecycle {}
    const make = (...lifecycles: Lifecycle<unknown>[]) => new LifecycleWorker(schema.db, lifecycles);
    class Good extends ThingLifecycle {
      @State()
      only() {
        return this.end();
      }
    }
    expect(() => make(new Nowhere())).toThrow(/no state to go to/);
    expect(() => make(new Typo())).toThrow(/"eror" is not another state/);
    expect(() => make(new Empty())).toThrow(/no states/);
    expect(() => make(new Good(), new Good())).toThrow(/two lifecycles/);
    expect(() => new LifecycleWorker(schema.db, [], { leaseMs: 31_000 })).toThrow(RangeError);
  });
});
