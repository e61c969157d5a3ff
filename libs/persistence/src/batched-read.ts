interface Waiter<K, R> {
  key: K;
  resolve(value: R): void;
  reject(error: unknown): void;
}

/**
 * Reads of single things that are asked for at the same moment, made in one round trip. A round trip costs this process
 * more than all else of a small read (docs/bench.md), so the hottest read of one thing is worth a statement that reads
 * several. One batch is under way at a time; what is asked for meanwhile is the next one, so batches grow with the load.
 *
 * Nothing is kept: a batch is sent after all of its reads were asked for, so each caller sees what was committed before
 * it asked, its own writes included. That no caller sees what is another's is up to `read`, as it is without batches.
 */
export class BatchedRead<K, R> {
  private waiting: Waiter<K, R>[] = [];
  private busy = false;

  /**
   * @param read reads all keys of a batch in one statement; answers in the order of the keys. What it throws reaches every
   *   caller of the batch, so a key that could make it throw must be refused before.
   * @param largest most keys of one batch
   */
  constructor(
    private readonly read: (keys: K[]) => Promise<readonly R[]>,
    private readonly largest = 100,
  ) {}

  /** @throws what `read` throws */
  get(key: K): Promise<R> {
    return new Promise((resolve, reject) => {
      this.waiting.push({ key, resolve, reject });
      if (!this.busy) this.start();
    });
  }

  /** Sends when the event loop has handed out all that arrived in this turn. */
  private start(): void {
    this.busy = true;
    setImmediate(() => void this.send(this.waiting.splice(0, this.largest)));
  }

  private async send(batch: Waiter<K, R>[]): Promise<void> {
    try {
      const found = await this.read(batch.map(({ key }) => key));
      if (found.length !== batch.length) throw new Error(`asked for ${batch.length}, got ${found.length}`);
      batch.forEach(({ resolve }, index) => resolve(found[index]!));
    } catch (error) {
      for (const { reject } of batch) reject(error);
    }
    this.busy = false;
    if (this.waiting.length > 0) this.start();
  }
}
