import { setTimeout as delay } from 'node:timers/promises';

/** Waits; rejects with an AbortError when the signal fires. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return delay(ms, undefined, signal ? { signal } : {});
}

/** For `catch`: a wait that was cut short is no failure. */
export function ignoreAbort(error: unknown): void {
  if (!isAbort(error)) throw error;
}

/** Whether a promise is settled (either way) within `ms`; leaves no timer behind. */
export async function settledWithin(work: Promise<unknown>, ms: number): Promise<boolean> {
  const stop = new AbortController();
  const settled = work.then(
    () => true,
    () => true,
  );
  const late = sleep(ms, stop.signal).then(
    () => false,
    () => true,
  );
  try {
    return await Promise.race([settled, late]);
  } finally {
    stop.abort();
  }
}

export function isAbort(error: unknown): boolean {
  // By name: an error of another realm (a test's) is no `instanceof Error` here.
  const name = (error as { name?: unknown } | null)?.name;
  return name === 'AbortError' || name === 'TimeoutError';
}

/** Growing waits with a random part, so that agents do not come back all at once. */
export class Backoff {
  private at: number;

  constructor(
    private readonly firstMs: number,
    private readonly maxMs: number,
  ) {
    this.at = firstMs;
  }

  /** The next wait in milliseconds. */
  next(): number {
    const wait = this.at * (0.75 + Math.random() / 2);
    this.at = Math.min(this.at * 2, this.maxMs);
    return wait;
  }

  reset(): void {
    this.at = this.firstMs;
  }
}

/** At most `places` pieces of work at a time, in the order asked. */
export class Places {
  private readonly queue: (() => void)[] = [];

  constructor(private places: number) {}

  /** Runs `work` when there is a place. An abort while waiting rejects with the signal's reason. */
  async run<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
    signal.throwIfAborted();
    if (this.places > 0) this.places--;
    else
      await new Promise<void>((resolve, reject) => {
        const left = () => {
          this.queue.splice(this.queue.indexOf(go), 1);
          reject(signal.reason as Error);
        };
        const go = () => {
          signal.removeEventListener('abort', left);
          resolve();
        };
        signal.addEventListener('abort', left, { once: true });
        this.queue.push(go);
      });
    try {
      return await work();
    } finally {
      const next = this.queue.shift();
      if (next) next();
      else this.places++;
    }
  }
}
