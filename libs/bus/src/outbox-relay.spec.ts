import { testSchema, type TestSchema } from '../test/database.js';
import { pause, until } from '../test/bus.contract.js';
import { EmbeddedBus, type EmbeddedBusOptions } from './embedded/embedded-bus.js';
import { defineEvent, maxEventBytes, type Envelope } from './envelope.js';
import { BusUnavailable, type EventBus } from './event-bus.js';
import { pruneInbox, receiveOnce } from './inbox.js';
import { OutboxRelay } from './outbox-relay.js';
import { say } from './outbox.js';

const thing = defineEvent<number>('nebo.test.thing.changed.v1');

/** A bus with a durable store that a test can switch off and replace. */
class FakeBus implements EventBus {
  storeName: string | null = 'store-1';
  failures = 0;
  sent: Envelope[] = [];
  async publish(envelopes: readonly Envelope[]): Promise<void> {
    await pause(2);
    if (this.failures > 0) {
      this.failures -= 1;
      throw new BusUnavailable('away');
    }
    this.sent.push(...envelopes);
  }
  subscribe = () => Promise.reject(new Error('not here'));
  subscribeAll = () => Promise.reject(new Error('not here'));
  status = () => ({ connected: this.storeName !== null, detail: 'fake' });
  store = () => this.storeName;
  close = async () => undefined;
  numbers(): number[] {
    return this.sent.map((event) => event.data as number);
  }
}

describe('outbox', () => {
  let schema: TestSchema;
  const running: OutboxRelay[] = [];
  const buses: EmbeddedBus[] = [];
  const embedded = (options: EmbeddedBusOptions) => {
    const bus = new EmbeddedBus(options);
    buses.push(bus);
    return bus;
  };
  const relay = async (bus: EventBus, options = {}) => {
    const made = new OutboxRelay(schema.open(), bus, { pollMs: 100, ...options });
    running.push(made);
    await made.start();
    return made;
  };
  const sayNumbers = (...numbers: number[]) =>
    schema.db.transaction((tx) => say(tx, ...numbers.map((n) => thing(n))));
  const range = (count: number) => Array.from({ length: count }, (_, index) => index);

  beforeAll(async () => {
    schema = await testSchema('outbox_test');
  }, 60_000);
  afterEach(async () => {
    await Promise.all(running.splice(0).map((each) => each.stop()));
    await Promise.all(buses.splice(0).map((bus) => bus.close()));
    await schema.admin('truncate outbox, inbox');
  });
  afterAll(() => schema.close());

  it('says what was committed, in its order, woken without waiting for the poll', async () => {
    const bus = new FakeBus();
    await relay(bus, { pollMs: 60_000 });
    const started = Date.now();
    await sayNumbers(...range(5));
    await until('five', () => bus.sent.length === 5);
    expect(Date.now() - started).toBeLessThan(2_000);
    expect(bus.numbers()).toEqual(range(5));
    expect(bus.sent[0]).toMatchObject({ type: thing.subject, account: null, trace: null });
  });

  it('says nothing of a transaction that was rolled back', async () => {
    const bus = new FakeBus();
    await relay(bus);
    const failed = schema.db.transaction(async (tx) => {
      await say(tx, thing(1));
      throw new Error('no');
    });
    await expect(failed).rejects.toThrow('no');
    await sayNumbers(2);
    await until('the other', () => bus.sent.length > 0);
    await pause(150);
    expect(bus.numbers()).toEqual([2]);
  });

  it('a refused publish leaves the rows unsent and is tried again', async () => {
    const bus = new FakeBus();
    bus.failures = 3;
    const errors: string[] = [];
    const made = await relay(bus, { onError: (error: Error) => errors.push(error.message) });
    await sayNumbers(1, 2);
    await until('two', () => bus.sent.length === 2);
    expect(errors).toEqual(['away', 'away', 'away']);
    await until('no error left', () => made.status().lastError === null);
    expect(await made.backlog()).toEqual({ unsent: 0, oldestMs: 0 });
  });

  it('waits while the bus has no store, and shows how much waits', async () => {
    const bus = new FakeBus();
    bus.storeName = null;
    const made = await relay(bus);
    await sayNumbers(1);
    await pause(150);
    const backlog = await made.backlog();
    expect(backlog.unsent).toBe(1);
    expect(backlog.oldestMs).toBeGreaterThan(100);
    bus.storeName = 'store-1';
    await until('one', () => bus.sent.length === 1);
  });

  it('several relays share the rows: each is sent once', async () => {
    const bus = new FakeBus();
    for (let n = 0; n < 4; n += 1) await relay(bus, { batch: 16 });
    const writes = range(20).map((n) => sayNumbers(...range(25).map((m) => n * 25 + m)));
    await Promise.all(writes);
    await until('500', () => bus.sent.length >= 500);
    await pause(200);
    expect(bus.numbers().sort((a, b) => a - b)).toEqual(range(500));
  });

  it('an event numbered earlier but committed later is not lost', async () => {
    const bus = new FakeBus();
    await relay(bus);
    let commit = () => undefined as void;
    const gate = new Promise<void>((resolve) => (commit = resolve));
    const slow = schema.db.transaction(async (tx) => {
      await say(tx, thing(1));
      await gate;
    });
    await pause(50);
    await sayNumbers(2);
    await until('the later number', () => bus.numbers().includes(2));
    commit();
    await slow;
    await until('the earlier number', () => bus.numbers().includes(1));
  });

  it('sends again what went to another store, and on demand what was sent since a date', async () => {
    const bus = new FakeBus();
    const made = await relay(bus);
    await sayNumbers(1, 2);
    await until('two', () => bus.sent.length === 2);
    await pause(250);
    expect(bus.sent).toHaveLength(2);
    bus.storeName = 'store-2';
    await until('two again', () => bus.sent.length === 4);
    await pause(250);
    expect(bus.numbers()).toEqual([1, 2, 1, 2]);
    expect(await made.republishSince(new Date(Date.now() + 60_000))).toBe(0);
    expect(await made.republishSince(new Date(Date.now() - 60_000))).toBe(2);
    await until('two once more', () => bus.sent.length === 6);
  });

  it('with the embedded bus only what a dead process had not handled is said again', async () => {
    const first = embedded({ graceMs: 0, redelivery: { baseMs: 10_000, maxMs: 10_000 } });
    await first.subscribe(thing.subject, { durable: 'half' }, async (event) => {
      if ((event.data as number) >= 3) throw new Error('never');
    });
    const dying = await relay(first);
    await sayNumbers(1, 2, 3, 4);
    const settled = 'select 1 from outbox where sent_at is not null and store is null';
    for (let n = 0; n < 100 && (await schema.db.query(settled)).length < 2; n += 1) await pause(50);
    expect(await schema.db.query(settled)).toHaveLength(2);
    await dying.stop();

    const second = embedded({ graceMs: 0 });
    const got: number[] = [];
    await second.subscribe(
      thing.subject,
      { durable: 'half' },
      async (event) => void got.push(event.data as number),
    );
    await relay(second);
    await until('the rest', () => got.length === 2);
    await pause(200);
    expect(got).toEqual([3, 4]);
    for (let n = 0; n < 100 && (await schema.db.query(settled)).length < 4; n += 1) await pause(50);
    expect(await schema.db.query(settled)).toHaveLength(4);
  });

  it('deletes rows sent more than a day ago; with the embedded bus only settled ones', async () => {
    const insert = (id: string, store: string | null, hours: number) =>
      schema.db.query(
        `insert into outbox (id, subject, envelope, sent_at, store)
         values ($1::uuid, 'x', '{}', now() - $2::float8 * interval '1 hour', $3)`,
        [id, hours, store],
      );
    const ids = range(4).map((n) => `00000000-0000-4000-8000-00000000000${n}`);
    await insert(ids[0]!, 'store-1', 25);
    await insert(ids[1]!, 'store-1', 23);
    await insert(ids[2]!, null, 25);
    const left = async () =>
      (await schema.db.query<{ id: string }>('select id from outbox order by id')).map((row) => row.id);
    const made = await relay(new FakeBus());
    for (let n = 0; n < 100 && (await left()).length > 1; n += 1) await pause(20);
    expect(await left()).toEqual([ids[1]]);
    await made.stop();

    const bus = embedded({});
    await insert(ids[3]!, bus.store(), 25);
    await relay(bus);
    await pause(200);
    expect(await left()).toContain(ids[3]);
  });

  it('a row that is no event holds nothing up', async () => {
    await schema.db.query("insert into outbox (id, subject, envelope) values (gen_random_uuid(), 'x', '{}')");
    await sayNumbers(1);
    const bus = new FakeBus();
    const errors: string[] = [];
    await relay(bus, { onError: (error: Error) => errors.push(error.message) });
    await until('the event', () => bus.sent.length === 1);
    expect(errors[0]).toMatch(/no event envelope/);
  });

  it('say refuses what no bus would take', async () => {
    await expect(say(schema.db, thing(1), { ...thing(2), type: 'x' })).rejects.toThrow(TypeError);
    const huge = defineEvent<string>(thing.subject)('я'.repeat(maxEventBytes / 2));
    await expect(say(schema.db, huge)).rejects.toThrow(RangeError);
  });

  it('outlives a PostgreSQL connection that is cut', async () => {
    const bus = new FakeBus();
    await relay(bus);
    await sayNumbers(1);
    await until('one', () => bus.sent.length === 1);
    await schema.admin(
      `select pg_terminate_backend(pid) from pg_stat_activity where usename = 'nebo_outbox_test'`,
    );
    await schema.db.query('select 1').catch(() => undefined);
    await sayNumbers(2);
    await until('two', () => bus.sent.length === 2);
  });
});

describe('inbox', () => {
  let schema: TestSchema;
  beforeAll(async () => {
    schema = await testSchema('inbox_test');
  }, 60_000);
  afterAll(() => schema.close());

  it('of twenty concurrent doubles one is taken, per consumer', async () => {
    const { id } = thing(1);
    const takes = (consumer: string) =>
      Array.from({ length: 20 }, () => schema.db.transaction((tx) => receiveOnce(tx, consumer, id)));
    const [first, second] = await Promise.all([Promise.all(takes('a')), Promise.all(takes('b'))]);
    expect(first.filter(Boolean)).toHaveLength(1);
    expect(second.filter(Boolean)).toHaveLength(1);
  });

  it('forgets after seven days, in batches', async () => {
    await schema.db.query(`insert into inbox (consumer, event_id, received_at)
      select 'old', gen_random_uuid(), now() - interval '8 days' from generate_series(1, 25)`);
    await schema.db.query(`insert into inbox (consumer, event_id, received_at)
      select 'young', gen_random_uuid(), now() - interval '6 days' from generate_series(1, 5)`);
    expect(await pruneInbox(schema.db, undefined, 10)).toBe(25);
    expect(await pruneInbox(schema.db)).toBe(0);
  });
});
