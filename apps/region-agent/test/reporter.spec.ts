import { type Observed, type Wanted } from '@nebo/contracts';
import { silentLog } from '../src/agent-log.js';
import { type BuildParts, BuildWorker } from '../src/reconcile/build-worker.js';
import { Reporter } from '../src/reconcile/reporter.js';
import { Places } from '../src/system/timing.js';

/** What a service takes in one body at least, bytes. */
const body = 1024 * 1024;

describe('observations', () => {
  const batches: Observed[][] = [];
  const bytesOf = (items: Observed[]): number => Buffer.byteLength(JSON.stringify({ items }));
  const send = (items: Observed[]): Promise<void> => {
    batches.push(items);
    if (items.length > 1 && bytesOf(items) > body) return Promise.reject(new Error('413'));
    return Promise.resolve();
  };
  const report = (reporter: Reporter, count: number, characters: number): void => {
    for (let i = 0; i < count; i += 1)
      reporter.report({
        ...{ kind: 'build', id: `b${i}`, generation: 1, state: 'success', reason: null },
        facts: { routing: 'я'.repeat(characters) },
      });
  };

  it.each([
    ['the rules of many sites', 20, 250_000],
    ['what is small', 250, 10],
  ])(
    '%s: no call is larger than a service takes, and all of them are taken',
    async (_name, count, size) => {
      batches.length = 0;
      const reporter = new Reporter(send, silentLog, () => undefined);
      report(reporter, count, size);
      await reporter.taken('build', `b${count - 1}`, AbortSignal.timeout(8_000));
      expect(batches.flat().map(({ id }) => id)).toEqual(Array.from({ length: count }, (_, i) => `b${i}`));
      if (size < 1_000) expect(batches.length).toBeLessThan(6);
      await reporter.stop(1_000);
    },
    15_000,
  );

  it('of a build that nobody asks about any more are not kept', async () => {
    batches.length = 0;
    const reporter = new Reporter(send, silentLog, () => undefined);
    const kept = new Map<string, { spec: unknown; observation: object }>();
    const writer = {
      line: () => undefined,
      full: false,
      drained: () => null,
      close: () => Promise.resolve(),
    };
    const parts = {
      ...{ reporter, places: new Places(1), log: silentLog, blobs: () => ({}) },
      shipper: { open: () => Promise.resolve(writer) },
      driver: { isolated: true, build: () => Promise.resolve({ state: 'success', facts: { stack: 'x' } }) },
      outcomes: {
        get: (id: string) => kept.get(id),
        keep: (id: string, spec: unknown, observation: object) =>
          Promise.resolve(void kept.set(id, { spec, observation })),
        drop: (id: string) => Promise.resolve(void kept.delete(id)),
      },
    };
    const worker = new BuildWorker('one', parts as unknown as BuildParts);
    worker.want({ kind: 'build', id: 'one', generation: 1, gone: false, spec: {} } as unknown as Wanted);
    for (let waited = 0; waited < 200 && kept.size === 0; waited += 1)
      await new Promise((resolve) => setTimeout(resolve, 10));
    await reporter.taken('build', 'one', AbortSignal.timeout(5_000));
    await worker.vanished();
    await reporter.taken('build', 'one', AbortSignal.timeout(5_000));
    expect(batches.flat().at(-1)).toMatchObject({ id: 'one', state: 'success', facts: { stack: 'x' } });
    // As after a control plane that was away.
    batches.length = 0;
    reporter.resend();
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(batches).toEqual([]);
    await reporter.stop(1_000);
  });
});
