import { testSchema, type TestSchema } from '../test/database.js';
import { makeThings, note, pause, type Thing, ThingLifecycle, untilRows, words } from '../test/things.js';
import { humanDuration, hours, minutes, seconds } from './duration.js';
import { type Lifecycle, State, type StepContext } from './lifecycle.js';
import { look } from './table.js';
import { LifecycleWorker, type LifecycleWorkerOptions } from './worker.js';

const fast = { leaseMs: 2_000, pollMs: 200, backoff: { baseMs: 20, maxMs: 200 }, stopMs: 2_000 };

describe('deadlines', () => {
  let schema: TestSchema;
  const workers: LifecycleWorker[] = [];
  const work = async (lifecycle: Lifecycle<unknown>, options: LifecycleWorkerOptions = {}) => {
    const worker = new LifecycleWorker(schema.db, [lifecycle], { ...fast, ...options });
    workers.push(worker);
    await worker.start();
  };
  const shown = async (id: string) =>
    (await schema.db.query<{ shown: string }>('select shown from thing where id = $1::uuid', [id]))[0]!.shown;

  beforeAll(async () => {
    schema = await testSchema('deadline_test');
  }, 60_000);
  afterEach(async () => {
    await Promise.all(workers.splice(0).map((worker) => worker.stop()));
    await schema.admin('truncate lifecycle, thing, journal');
  });
  afterAll(() => schema.close());

  class Slow extends ThingLifecycle {
    override readonly saysAtOnce = false;
    @State({ deadline: 300, onMissed: 'error' })
    async provisioning(_thing: Thing) {
      return this.wait(50, 'the region has not reported it');
    }
    @State({ deadline: 300 })
    async hanging(_thing: Thing, { signal }: StepContext) {
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      await pause(50);
      return this.go('active');
    }
    @State({ deadline: 300, onMissed: 'error' })
    async deaf(thing: Thing) {
      await pause(3_000);
      return this.go('active', (tx) => note(tx, thing.id, 'too late'));
    }
    @State({ deadline: 300, onMissed: 'error' })
    async throwing(_thing: Thing): Promise<never> {
      throw new Error('no capacity');
    }
    @State({ deadline: 300, onMissed: 'error' })
    async resting(_thing: Thing) {
      return this.wait();
    }
    @State()
    active() {
      return this.wait();
    }
    @State()
    error() {
      return this.wait();
    }
  }

  it.each([
    ['provisioning', 'provisioning did not finish in 300 ms: the region has not reported it'],
    ['throwing', 'throwing did not finish in 300 ms: no capacity'],
    ['resting', 'resting did not finish in 300 ms'],
    ['deaf', 'deaf did not finish in 300 ms'],
  ])('a missed deadline of %s is a state with a reason and a metric', async (state, reason) => {
    const missed: string[] = [];
    await work(new Slow(), { observer: { missed: (step, why) => missed.push(`${step.state}: ${why}`) } });
    const begun = Date.now();
    const [id] = await makeThings(schema.db, 1, state);
    const [row] = await untilRows(schema.db, [id!], 'error', (each) => each.state === 'error');
    expect(Date.now() - begun).toBeGreaterThanOrEqual(295);
    expect(row!.reason).toBe(reason);
    expect(await shown(id!)).toBe(`error (${reason})`);
    expect(missed).toEqual([`${state}: ${reason}`]);
    if (state === 'deaf') {
      // Its method goes on for a while; what it decides then is refused.
      await pause(1_500);
      expect((await look(schema.db, 'thing', id!))!.state).toBe('error');
      expect(await words(schema.db, id!)).toEqual([]);
    }
  });

  it('a method that ends when its signal says so has its word', async () => {
    await work(new Slow());
    const [id] = await makeThings(schema.db, 1, 'hanging');
    await untilRows(schema.db, [id!], 'active', (row) => row.state === 'active');
  });

  it('a state that waited gets a last look when its workers were away over the deadline', async () => {
    class Late extends ThingLifecycle {
      @State({ deadline: 100, onMissed: 'error' })
      async provisioning(thing: Thing) {
        return thing.n > 0 ? this.go('active') : this.wait();
      }
      @State()
      active() {
        return this.wait();
      }
      @State()
      error() {
        return this.wait();
      }
    }
    const [id, other] = await makeThings(schema.db, 2, 'provisioning');
    await pause(150);
    await schema.db.query('update thing set n = 1 where id = $1::uuid', [id!]);
    await work(new Late());
    await untilRows(schema.db, [id!], 'active', (row) => row.state === 'active');
    await untilRows(schema.db, [other!], 'error', (row) => row.state === 'error');
  });

  it('a worker that was killed in the first step leaves a last look, but not one after the other', async () => {
    class Killed extends ThingLifecycle {
      @State({ deadline: 100, onMissed: 'error' })
      async provisioning() {
        return this.go('active');
      }
      @State()
      active() {
        return this.wait();
      }
      @State()
      error() {
        return this.wait();
      }
    }
    const [once, twice] = await makeThings(schema.db, 2, 'provisioning');
    for (const [id, attempt] of [
      [once!, 1],
      [twice!, 2],
    ] as const)
      await schema.db.query(
        `update lifecycle set attempt = $2::int, lease_owner = 'killed', lease_until = now() - interval '1 second'
         where id = $1::uuid`,
        [id, attempt],
      );
    await pause(150);
    await work(new Killed());
    await untilRows(schema.db, [once!], 'active', (row) => row.state === 'active');
    await untilRows(schema.db, [twice!], 'error', (row) => row.state === 'error');
  });

  it.each([
    [minutes(20), '20 min'],
    [hours(2), '2 h'],
    [seconds(90), '90 s'],
    [1_500, '1.5 s'],
    [300, '300 ms'],
  ])('%d ms reads %s', (ms, text) => expect(humanDuration(ms)).toBe(text));
});
