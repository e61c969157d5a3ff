import { findNats, freePort, startNats, type NatsPart } from '@nebo/test-kit';
import { busContract, pause, until } from '../../test/bus.contract.js';
import { testSchema } from '../../test/database.js';
import { defineEvent, type Envelope } from '../envelope.js';
import { BusUnavailable } from '../event-bus.js';
import { once } from '../inbox.js';
import { OutboxRelay } from '../outbox-relay.js';
import { say } from '../outbox.js';
import { NatsBus } from './nats-bus.js';

const { found, reason } = findNats();
const withNats = found === null ? describe.skip : describe;
const title = found === null ? `NATS bus (skipped: ${reason})` : 'NATS bus';
const redelivery = { baseMs: 20, maxMs: 100 };
const thing = defineEvent<number>('nebo.test.thing.changed.v1');

withNats(title, () => {
  let nats: NatsPart;
  const opened: NatsBus[] = [];
  const open = () => {
    const bus = new NatsBus({ servers: nats.url, redelivery, pullMs: 1_000 });
    opened.push(bus);
    return bus;
  };
  const ready = async (bus: NatsBus) => {
    await until('the connection', () => bus.status().connected);
    return bus;
  };

  beforeAll(async () => {
    nats = await startNats();
  }, 60_000);
  const cleanups: (() => Promise<unknown>)[] = [];
  // Also after a failed test nothing may be left running: it would keep Jest waiting.
  afterEach(async () => {
    for (const cleanup of cleanups.splice(0)) await cleanup();
    await Promise.all(opened.splice(0).map((bus) => bus.close()));
  });
  afterAll(() => nats.stop());

  describe('contract', () => {
    const own: NatsBus[] = [];
    busContract(async () => ({
      open: async () => {
        const bus = new NatsBus({ servers: nats.url, redelivery, pullMs: 1_000 });
        own.push(bus);
        return ready(bus);
      },
      close: async () => {
        await Promise.all(own.map((bus) => bus.close()));
      },
    }));
  });

  it('starts without NATS, says so, refuses to publish, and connects when NATS comes', async () => {
    await nats.kill();
    const bus = open();
    const got: number[] = [];
    const hints: number[] = [];
    await bus.subscribe(
      thing.subject,
      { durable: 'test-early' },
      async (event) => void got.push(event.data as number),
    );
    await bus.subscribeAll(thing.subject, (event) => void hints.push(event.data as number));
    await until('the reason', () => bus.status().detail.includes('cannot be reached'));
    expect(bus.status().connected).toBe(false);
    expect(bus.store()).toBeNull();
    await expect(bus.publish([thing(1)])).rejects.toThrow(BusUnavailable);
    await nats.restart();
    await ready(bus);
    await bus.publish([thing(2)]);
    await until('the event', () => got.includes(2) && hints.includes(2));
    await bus.close();
    expect(bus.status()).toEqual({ connected: false, detail: 'closed' });
  }, 60_000);

  it('closes at once while NATS is away', async () => {
    const bus = new NatsBus({ servers: `nats://user:secret@127.0.0.1:${await freePort()}` });
    await bus.subscribe(thing.subject, { durable: 'test-away' }, async () => undefined);
    await pause(100);
    const started = Date.now();
    await bus.close();
    expect(Date.now() - started).toBeLessThan(2_000);
    expect(bus.status().detail).not.toContain('secret');
  });

  it('goes on after NATS was killed and restarted on its store', async () => {
    const bus = await ready(open());
    const got: number[] = [];
    const hints: number[] = [];
    await bus.subscribe(
      thing.subject,
      { durable: 'test-restart' },
      async (event) => void got.push(event.data as number),
    );
    await bus.subscribeAll(thing.subject, (event) => void hints.push(event.data as number));
    await bus.publish([thing(101)]);
    await until('the first', () => got.includes(101));
    const store = bus.store();
    await nats.kill();
    await until('the loss', () => !bus.status().connected);
    expect(bus.status().detail).toMatch(/away/);
    await expect(bus.publish([thing(102)])).rejects.toThrow(BusUnavailable);
    await nats.restart();
    await ready(bus);
    expect(bus.store()).toBe(store);
    await bus.publish([thing(103)]);
    await until('the event after the restart', () => got.includes(103) && hints.includes(103));
  }, 60_000);

  it('a message that its member held when it died goes to another one', async () => {
    const dying = await ready(
      new NatsBus({ servers: nats.url, redelivery, pullMs: 1_000, ackWaitMs: 1_000 }),
    );
    cleanups.push(() => dying.close());
    let held = 0;
    await dying.subscribe(thing.subject, { durable: 'test-dying' }, (_event, { signal }) => {
      held += 1;
      return new Promise((resolve) => signal.addEventListener('abort', () => resolve()));
    });
    await dying.publish([thing(201)]);
    await until('it is held', () => held === 1);
    // While the member lives it asks for more time, however long the handler takes.
    const heir = await ready(new NatsBus({ servers: nats.url, redelivery, pullMs: 1_000, ackWaitMs: 1_000 }));
    cleanups.push(() => heir.close());
    const got: number[] = [];
    await heir.subscribe(
      thing.subject,
      { durable: 'test-dying' },
      async (event) => void got.push(event.data as number),
    );
    await pause(2_500);
    expect(got).not.toContain(201);
    // Cut like kill -9: the connection ends, nothing is given back.
    const { connection } = dying as unknown as { connection: { close(): Promise<void> } };
    (dying as unknown as { stopped: AbortController }).stopped.abort();
    await connection.close();
    await until('the other member', () => got.includes(201));
  }, 60_000);

  it('a wiped store is noticed and everything is brought again from the outbox, once in effect', async () => {
    const schema = await testSchema(
      'bus_wipe',
      'create table effect (event_id uuid not null, n int not null)',
    );
    const effects = async () =>
      (await schema.db.query<{ n: number }>('select n from effect order by n')).map((row) => row.n);
    const bus = await ready(open());
    const relay = new OutboxRelay(schema.db, bus, { pollMs: 100 });
    await relay.start();
    cleanups.push(
      () => relay.stop(),
      () => bus.close(),
      () => schema.close(),
    );
    let blocked = false;
    const handle = once<number>(schema.db, 'test-wipe', async (tx, event) => {
      if (blocked) throw new Error('not now');
      await tx.query('insert into effect (event_id, n) values ($1::uuid, $2::int)', [event.id, event.data]);
    });
    const wiped = defineEvent<number>('nebo.test.wiped.changed.v1');
    await bus.subscribe(wiped.subject, { durable: 'test-wipe' }, (event, delivery) =>
      handle(event as Envelope<number>, delivery),
    );
    const sayMany = (from: number, count: number) =>
      schema.db.transaction((tx) =>
        say(tx, ...Array.from({ length: count }, (_, index) => wiped(from + index))),
      );

    for (let round = 0; round < 3; round += 1) {
      const base = round * 30;
      blocked = false;
      await sayMany(base, 10); // handled before the wipe
      const end = Date.now() + 20_000;
      while ((await effects()).length < base + 10 && Date.now() < end) await pause(20);
      blocked = true;
      await sayMany(base + 10, 10); // sent, not handled
      while ((await relay.backlog()).unsent > 0 && Date.now() < end) await pause(20);
      const store = bus.store();
      await nats.kill();
      await sayMany(base + 20, 10); // not sent
      await nats.wipe();
      blocked = false;
      await until('another store', () => bus.store() !== null && bus.store() !== store, 30_000);
      const late = Date.now() + 20_000;
      while ((await effects()).length < base + 30 && Date.now() < late) await pause(20);
      expect(await effects()).toEqual(Array.from({ length: base + 30 }, (_, n) => n));
    }
  }, 120_000);
});
