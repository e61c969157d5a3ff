import { setImmediate as turn } from 'node:timers/promises';
import { BatchedRead } from './batched-read.js';

/** A store that is read in batches; each read ends when the test says so. */
class Store {
  readonly batches: number[][] = [];
  readonly values = new Map<number, string>();
  failure: Error | null = null;
  private readonly held: (() => void)[] = [];
  hold = false;

  readonly read = async (keys: number[]): Promise<(string | null)[]> => {
    this.batches.push(keys);
    if (this.hold) await new Promise<void>((resolve) => this.held.push(resolve));
    if (this.failure) throw this.failure;
    return keys.map((key) => this.values.get(key) ?? null);
  };

  release(): void {
    this.held.splice(0).forEach((resolve) => resolve());
  }
}

describe('BatchedRead', () => {
  let store: Store;
  let reads: BatchedRead<number, string | null>;

  beforeEach(() => {
    store = new Store();
    for (let key = 0; key < 500; key += 1) store.values.set(key, `value ${key}`);
    reads = new BatchedRead(store.read, 100);
  });

  it('reads what is asked for in one turn at once, and gives each caller its own', async () => {
    const keys = [7, 3, 7, 999, 0];
    expect(await Promise.all(keys.map((key) => reads.get(key)))).toEqual([
      'value 7',
      'value 3',
      'value 7',
      null,
      'value 0',
    ]);
    expect(store.batches).toEqual([keys]);
  });

  it('collects while a batch is under way, and sends the next one after it', async () => {
    store.hold = true;
    const first = reads.get(1);
    await turn();
    const later = [reads.get(2), reads.get(3)];
    await turn();
    expect(store.batches).toEqual([[1]]);
    store.hold = false;
    store.release();
    expect(await first).toBe('value 1');
    expect(await Promise.all(later)).toEqual(['value 2', 'value 3']);
    expect(store.batches).toEqual([[1], [2, 3]]);
  });

  it('shows a caller what was written before it asked, also when the same thing is being read', async () => {
    store.hold = true;
    const before = reads.get(1);
    await turn();
    store.hold = false;
    store.values.set(1, 'written');
    const after = reads.get(1);
    store.release();
    await before;
    expect(await after).toBe('written');
    expect(store.batches).toEqual([[1], [1]]);
  });

  it('keeps nothing', async () => {
    expect(await reads.get(1)).toBe('value 1');
    store.values.set(1, 'changed');
    expect(await reads.get(1)).toBe('changed');
  });

  it('tells an error to every caller of the batch and to nobody after it', async () => {
    store.failure = new Error('the database is away');
    const answers = await Promise.allSettled([reads.get(1), reads.get(2), reads.get(3)]);
    expect(answers.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
    await expect(reads.get(4)).rejects.toThrow('the database is away');
    store.failure = null;
    expect(await reads.get(4)).toBe('value 4');
  });

  it('tells an error that is thrown at once, too', async () => {
    const broken = new BatchedRead<number, string>(() => {
      throw new Error('no pool');
    });
    await expect(broken.get(1)).rejects.toThrow('no pool');
    await expect(broken.get(2)).rejects.toThrow('no pool');
  });

  it('gives nobody another one’s value when the answer has the wrong length', async () => {
    const short = new BatchedRead(async (keys: number[]) => keys.slice(1));
    await expect(Promise.all([short.get(1), short.get(2)])).rejects.toThrow('asked for 2, got 1');
  });

  it('sends no more than the largest batch in one statement', async () => {
    const keys = Array.from({ length: 250 }, (_, key) => key);
    expect(await Promise.all(keys.map((key) => reads.get(key)))).toEqual(keys.map((key) => `value ${key}`));
    expect(store.batches.map((batch) => batch.length)).toEqual([100, 100, 50]);
  });
});
