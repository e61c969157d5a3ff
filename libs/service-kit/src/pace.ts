const leastMs = 20;
const eachMs = 25;
const mostMs = 100;

/**
 * How long news are gathered before they are told: the more came last time, the longer, so that many in a second go in few
 * answers and one alone goes at once.
 */
export class Pace {
  private readonly told = new Map<string, { at: number; count: number }>();

  /** Told just now: so many things, to this reader. */
  tell(reader: string, count: number): void {
    this.told.set(reader, { at: performance.now(), count });
  }

  /** Waits until more is told to this reader. @param least milliseconds in any case */
  async wait(reader: string, least = 0): Promise<void> {
    const last = this.told.get(reader);
    const since = last ? performance.now() - last.at : Infinity;
    const ms = Math.max(least, Math.min(mostMs, (last?.count ?? 0) * eachMs) - since);
    if (ms > 0) await new Promise((resolve) => setTimeout(resolve, ms));
  }

  /** The same once something is known to be there: what changes in a burst is told in one answer. */
  gather(reader: string): Promise<void> {
    return this.wait(reader, leastMs);
  }
}
