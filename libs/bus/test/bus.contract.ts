import { randomUUID } from 'node:crypto';
import { waitFor } from '@nebo/test-kit';
import { defineEvent, maxEventBytes, type Envelope } from '../src/envelope.js';
import { type EventBus } from '../src/event-bus.js';
import { once } from '../src/inbox.js';
import { testSchema, type TestSchema } from './database.js';

/** A transport under test. `open` gives what another replica would hold; the embedded one has a single instance. */
export interface TransportUnderTest {
  open(): Promise<EventBus>;
  close(): Promise<void>;
}

interface Numbered {
  n: number;
}

/** A condition as `waitFor` likes it. */
export const until = (what: string, holds: () => boolean, limit = 15_000) =>
  waitFor(what, limit, async () => (holds() ? true : undefined));

export const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** What every transport promises. Both specs run all of it. */
export function busContract(start: () => Promise<TransportUnderTest>): void {
  let transport: TransportUnderTest;
  let bus: EventBus;
  let schema: TestSchema;

  beforeAll(async () => {
    transport = await start();
    bus = await transport.open();
    schema = await testSchema('bus_test', 'create table effect (event_id uuid not null)');
  }, 60_000);
  afterAll(async () => {
    await transport.close();
    await schema.close();
  });

  /** A subject and a consumer name that no other test uses. */
  const fresh = () => {
    const word = `t${randomUUID().slice(0, 8)}`;
    return {
      thing: defineEvent<Numbered>(`nebo.test.${word}.changed.v1`),
      other: defineEvent<Numbered>(`nebo.test.${word}.gone.v1`),
      all: `nebo.test.${word}.>`,
      durable: `test-${word}`,
    };
  };
  const numbered = (event: Envelope) => (event.data as Numbered).n;
  const range = (count: number) => Array.from({ length: count }, (_, index) => index);

  it('brings the envelope unchanged', async () => {
    const { thing, durable } = fresh();
    const said = thing(
      { n: 1 },
      { account: randomUUID(), trace: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01` },
    );
    const got: Envelope[] = [];
    await bus.subscribe(thing.subject, { durable }, async (event, { attempt }) => {
      expect(attempt).toBe(1);
      got.push(event);
    });
    await bus.publish([said]);
    await until('the event', () => got.length === 1);
    expect(got).toEqual([said]);
  });

  it('keeps the order of a subject', async () => {
    const { thing, durable } = fresh();
    const got: number[] = [];
    await bus.subscribe(thing.subject, { durable }, async (event) => void got.push(numbered(event)));
    await bus.publish(range(100).map((n) => thing({ n })));
    await bus.publish(range(100).map((n) => thing({ n: n + 100 })));
    await until('200 events', () => got.length >= 200);
    expect(got).toEqual(range(200));
  });

  it('brings an event again when the handler failed, and the others meanwhile', async () => {
    const { thing, durable } = fresh();
    const attempts: number[] = [];
    const done: number[] = [];
    await bus.subscribe(thing.subject, { durable }, async (event, { attempt }) => {
      if (numbered(event) === 0) {
        attempts.push(attempt);
        if (attempt < 4) throw new Error('not yet');
      }
      done.push(numbered(event));
    });
    await bus.publish(range(5).map((n) => thing({ n })));
    await until('all five', () => done.length === 5);
    expect(attempts).toEqual([1, 2, 3, 4]);
    expect(done).toEqual([1, 2, 3, 4, 0]);
  });

  it('gives each event to each consumer name', async () => {
    const { thing, durable } = fresh();
    const got: Record<string, number[]> = { one: [], two: [] };
    for (const name of ['one', 'two']) {
      await bus.subscribe(thing.subject, { durable: `${durable}-${name}` }, async (event) => {
        got[name]!.push(numbered(event));
      });
    }
    await bus.publish(range(10).map((n) => thing({ n })));
    await until('both', () => got['one']!.length === 10 && got['two']!.length === 10);
    expect(got).toEqual({ one: range(10), two: range(10) });
  });

  it('shares the work among the members of one consumer name', async () => {
    const { thing, durable } = fresh();
    const second = await transport.open();
    const got: number[][] = [[], []];
    for (const [index, member] of [bus, second].entries()) {
      await member.subscribe(thing.subject, { durable }, async (event) => {
        await pause(5);
        got[index]!.push(numbered(event));
      });
    }
    for (let n = 0; n < 100; n += 10) await bus.publish(range(10).map((step) => thing({ n: n + step })));
    await until('100 events', () => got.flat().length >= 100);
    expect(got.flat().sort((a, b) => a - b)).toEqual(range(100));
    expect(got[0]!.length).toBeGreaterThan(5);
    expect(got[1]!.length).toBeGreaterThan(5);
  });

  it('a consumer whose only member left resumes where it was', async () => {
    const { thing, durable } = fresh();
    const got: number[] = [];
    const handler = async (event: Envelope) => void got.push(numbered(event));
    const member = await transport.open();
    const subscription = await member.subscribe(thing.subject, { durable }, handler);
    await bus.publish([thing({ n: 1 })]);
    await until('the first', () => got.length === 1);
    await subscription.close();
    await bus.publish([thing({ n: 2 }), thing({ n: 3 })]);
    await pause(100);
    expect(got).toEqual([1]);
    await bus.subscribe(thing.subject, { durable }, handler);
    await until('the rest', () => got.length >= 3);
    expect(got).toEqual([1, 2, 3]);
  });

  it('a consumer that comes later than the event still gets it', async () => {
    const { thing, durable } = fresh();
    await bus.publish([thing({ n: 7 })]);
    const got: number[] = [];
    await bus.subscribe(thing.subject, { durable }, async (event) => void got.push(numbered(event)));
    await until('the event', () => got.length === 1);
  });

  it('drops an event that is published again at once', async () => {
    const { thing, durable } = fresh();
    const got: number[] = [];
    await bus.subscribe(thing.subject, { durable }, async (event) => void got.push(numbered(event)));
    const event = thing({ n: 1 });
    await bus.publish([event]);
    await bus.publish([event, thing({ n: 2 })]);
    await until('the second', () => got.includes(2));
    expect(got).toEqual([1, 2]);
  });

  it('with the inbox an event has its effect once, though its receipt was not heard and it came again', async () => {
    const { thing, durable } = fresh();
    let deliveries = 0;
    const handle = once<Numbered>(schema.db, durable, async (tx, event) => {
      await tx.query('insert into effect (event_id) values ($1::uuid)', [event.id]);
    });
    await bus.subscribe(thing.subject, { durable }, async (event, delivery) => {
      deliveries += 1;
      await handle(event as Envelope<Numbered>, delivery);
      if (delivery.attempt < 3) throw new Error('the answer was lost');
    });
    const event = thing({ n: 1 });
    await bus.publish([event]);
    await until('three deliveries', () => deliveries === 3);
    expect(await schema.db.query('select 1 from effect where event_id = $1::uuid', [event.id])).toHaveLength(
      1,
    );
  });

  it('with the inbox a failed effect is undone and happens later', async () => {
    const { thing, durable } = fresh();
    const attempts: number[] = [];
    const handle = once<Numbered>(schema.db, durable, async (tx, event, { attempt }) => {
      attempts.push(attempt);
      await tx.query('insert into effect (event_id) values ($1::uuid)', [event.id]);
      if (attempt < 2) throw new Error('after the effect');
    });
    await bus.subscribe(thing.subject, { durable }, (event, delivery) =>
      handle(event as Envelope<Numbered>, delivery),
    );
    const event = thing({ n: 1 });
    await bus.publish([event]);
    await until('two attempts', () => attempts.length === 2);
    await pause(100);
    expect(attempts).toEqual([1, 2]);
    expect(await schema.db.query('select 1 from effect where event_id = $1::uuid', [event.id])).toHaveLength(
      1,
    );
  });

  it('a hint reaches every listener of every replica, and nobody after close', async () => {
    const { thing, other, all } = fresh();
    const second = await transport.open();
    const heard: string[] = [];
    const subscriptions = [
      await bus.subscribeAll(thing.subject, (event) => void heard.push(`a${numbered(event)}`)),
      await bus.subscribeAll(all, (event) => void heard.push(`b${numbered(event)}`)),
      await second.subscribeAll(thing.subject, (event) => {
        heard.push(`c${numbered(event)}`);
        throw new Error('a listener that fails disturbs nobody');
      }),
    ];
    await bus.publish([thing({ n: 1 }), other({ n: 2 })]);
    await until('four', () => heard.length === 4);
    expect([...heard].sort()).toEqual(['a1', 'b1', 'b2', 'c1']);
    await Promise.all(subscriptions.map((subscription) => subscription.close()));
    await bus.publish([thing({ n: 3 })]);
    await pause(100);
    expect(heard).toHaveLength(4);
  });

  it('a pattern hears what falls under it only', async () => {
    const { thing, other, all, durable } = fresh();
    const got: string[] = [];
    await bus.subscribe(all, { durable }, async (event) => void got.push(event.type));
    await bus.publish([fresh().thing({ n: 0 }), thing({ n: 1 }), other({ n: 2 })]);
    await until('two', () => got.length === 2);
    expect(got).toEqual([thing.subject, other.subject]);
  });

  it('accepts what nobody hears, refuses an unknown subject and sends nothing of that batch', async () => {
    const { thing, durable } = fresh();
    const got: number[] = [];
    await bus.publish([fresh().thing({ n: 1 })]);
    await bus.subscribe(thing.subject, { durable }, async (event) => void got.push(numbered(event)));
    const stray = { ...thing({ n: 2 }), type: 'other.test.v1' };
    await expect(bus.publish([thing({ n: 3 }), stray])).rejects.toThrow(/unknown subject "other.test.v1"/);
    const huge = defineEvent<string>(thing.subject)('x'.repeat(maxEventBytes));
    await expect(bus.publish([thing({ n: 4 }), huge])).rejects.toThrow(RangeError);
    await bus.publish([thing({ n: 5 })]);
    await until('the good one', () => got.length > 0);
    expect(got).toEqual([5]);
  });

  it('refuses a wrong pattern, a wrong name, and one name for two patterns', async () => {
    const { thing, other, durable } = fresh();
    const handler = async () => undefined;
    await expect(bus.subscribe('elsewhere.>', { durable }, handler)).rejects.toThrow(TypeError);
    await expect(bus.subscribe(thing.subject, { durable: 'a.b' }, handler)).rejects.toThrow(TypeError);
    await bus.subscribe(thing.subject, { durable }, handler);
    await expect(bus.subscribe(other.subject, { durable }, handler)).rejects.toThrow(/already hears/);
  });

  it('closing a subscription waits for the handler in flight and gives back the rest', async () => {
    const { thing, durable } = fresh();
    const second = await transport.open();
    const got: string[] = [];
    let begun = 0;
    const subscription = await second.subscribe(thing.subject, { durable }, async (event, { signal }) => {
      begun += 1;
      await pause(150);
      got.push(`first:${numbered(event)}:${signal.aborted}`);
    });
    await bus.publish(range(4).map((n) => thing({ n })));
    await until('the handler', () => begun === 1);
    await subscription.close();
    expect(got).toEqual(['first:0:true']);
    const started = Date.now();
    await bus.subscribe(
      thing.subject,
      { durable },
      async (event) => void got.push(`second:${numbered(event)}`),
    );
    await until('the rest', () => got.length === 4);
    // Given back at once, not after the acknowledgement time-out.
    expect(Date.now() - started).toBeLessThan(5_000);
    expect([...got].sort()).toEqual(['first:0:true', 'second:1', 'second:2', 'second:3']);
  });

  it('runs as many handlers at a time as asked for', async () => {
    const { thing, durable } = fresh();
    let now = 0;
    let most = 0;
    let done = 0;
    await bus.subscribe(thing.subject, { durable, concurrency: 4 }, async () => {
      now += 1;
      most = Math.max(most, now);
      await pause(10);
      now -= 1;
      done += 1;
    });
    await bus.publish(range(40).map((n) => thing({ n })));
    await until('all', () => done === 40);
    expect(most).toBe(4);
  });

  it('says that it is connected and has a store', () => {
    expect(bus.status().connected).toBe(true);
    expect(bus.status().detail).not.toBe('');
    expect(bus.store()).not.toBeNull();
  });
}
