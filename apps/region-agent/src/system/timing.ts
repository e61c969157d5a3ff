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

interface Waiting {
  whose: string;
  go: () => void;
}

/** At most `places` pieces of work at a time, in the order asked; of several owners the one with the least under way is next. */
export class Places {
  private readonly queue: Waiting[] = [];
  private readonly under = new Map<string, number>();

  constructor(private places: number) {}

  /**
   * Runs `work` when there is a place. An abort while waiting rejects with the signal's reason.
   * @param whose the owner, who shall not keep others waiting by how much there is to do; empty: everybody's
   */
  async run<T>(work: () => Promise<T>, signal: AbortSignal, whose = ''): Promise<T> {
    signal.throwIfAborted();
    if (this.places > 0) {
      this.places--;
      this.count(whose, 1);
    } else
      await new Promise<void>((resolve, reject) => {
        const left = () => {
          this.queue.splice(this.queue.indexOf(waiting), 1);
          reject(signal.reason as Error);
        };
        const waiting: Waiting = {
          whose,
          go: () => {
            signal.removeEventListener('abort', left);
            resolve();
          },
        };
        signal.addEventListener('abort', left, { once: true });
        this.queue.push(waiting);
      });
    try {
      return await work();
    } finally {
      this.count(whose, -1);
      const next = this.next();
      if (next) {
        this.count(next.whose, 1);
        next.go();
      } else this.places++;
    }
  }

  private count(whose: string, by: number): void {
    const now = (this.under.get(whose) ?? 0) + by;
    if (now === 0) this.under.delete(whose);
    else this.under.set(whose, now);
  }

  private next(): Waiting | undefined {
    const load = ({ whose }: Waiting) => this.under.get(whose) ?? 0;
    let best = this.queue[0];
    for (const waiting of this.queue) if (load(waiting) < load(best!)) best = waiting;
    if (best) this.queue.splice(this.queue.indexOf(best), 1);
    return best;
  }
}
