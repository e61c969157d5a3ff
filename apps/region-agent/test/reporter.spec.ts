import { type Observed } from '@nebo/contracts';
import { silentLog } from '../src/agent-log.js';
import { Reporter } from '../src/reconcile/reporter.js';

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
});
