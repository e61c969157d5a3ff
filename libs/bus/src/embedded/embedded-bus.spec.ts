import { busContract, pause, until } from '../../test/bus.contract.js';
import { defineEvent } from '../envelope.js';
import { BusUnavailable } from '../event-bus.js';
import { EmbeddedBus } from './embedded-bus.js';

const redelivery = { baseMs: 20, maxMs: 100 };

describe('embedded bus', () => {
  describe('contract', () => {
    busContract(async () => {
      const bus = new EmbeddedBus({ redelivery });
      return { open: async () => bus, close: () => bus.close() };
    });
  });

  const thing = defineEvent<number>('nebo.test.thing.changed.v1');

  it('calls an event settled when every consumer has handled it, not before', async () => {
    const bus = new EmbeddedBus({ redelivery, graceMs: 0 });
    const settled: string[] = [];
    bus.onSettled((ids) => settled.push(...ids));
    let open = false;
    await bus.subscribe(thing.subject, { durable: 'quick' }, async () => undefined);
    await bus.subscribe(thing.subject, { durable: 'slow' }, async () => {
      if (!open) throw new Error('not yet');
    });
    const event = thing(1);
    await bus.publish([event]);
    await pause(60);
    expect(settled).toEqual([]);
    open = true;
    await until('settled', () => settled.length === 1);
    expect(settled).toEqual([event.id]);
    // Another relay that sends it again must hear it too.
    await bus.publish([event]);
    await until('settled again', () => settled.length === 2);
    await bus.close();
  });

  it('in its first moments waits for consumers that subscribe late', async () => {
    const bus = new EmbeddedBus({ redelivery, graceMs: 150 });
    const settled: string[] = [];
    bus.onSettled((ids) => settled.push(...ids));
    const heard = thing(1);
    const unheard = defineEvent<number>('nebo.test.thing.gone.v1')(2);
    await bus.publish([heard, unheard]);
    let release = () => undefined as void;
    const gate = new Promise<void>((resolve) => (release = resolve));
    await bus.subscribe(thing.subject, { durable: 'late' }, () => gate);
    await pause(250);
    expect(settled).toEqual([unheard.id]);
    release();
    await until('settled', () => settled.length === 2);
    await bus.close();
  });

  it('is another store in each process and takes nothing after close', async () => {
    const bus = new EmbeddedBus();
    expect(bus.store()).not.toBe(new EmbeddedBus().store());
    await bus.close();
    expect(bus.store()).toBeNull();
    expect(bus.status().connected).toBe(false);
    await expect(bus.publish([thing(1)])).rejects.toThrow(BusUnavailable);
  });

  it('gives each delivery its own copy', async () => {
    const bus = new EmbeddedBus();
    const box = defineEvent<{ n: number }>('nebo.test.box.changed.v1');
    const seen: number[] = [];
    for (const durable of ['a', 'b']) {
      await bus.subscribe(box.subject, { durable }, async (event) => {
        const data = event.data as { n: number };
        seen.push(data.n);
        data.n = 99;
      });
    }
    await bus.publish([box({ n: 1 })]);
    await until('both', () => seen.length === 2);
    expect(seen).toEqual([1, 1]);
    await bus.close();
  });
});
