const hour = 3_600_000;
/** Keys that are kept at most; the one that began longest ago goes first, and is then known by the table alone. */
const mostKeys = 10_000;

/**
 * Clients of this process that left before their counters, by key, as they happen. The table of requests learns of them only
 * afterwards, and a thousand answers that are left in the same moment would all find it empty.
 */
export class HangUps {
  /** When, by operation, by key. */
  private readonly byKey = new Map<string, Map<string, number>>();

  constructor(
    private readonly most: number,
    private readonly now: () => number = Date.now,
  ) {}

  /** Notes that a client leaves. @returns false when its key did so too often within an hour: then it is not noted */
  add(key: string, operation: string): boolean {
    const known = this.byKey.get(key) ?? new Map<string, number>();
    const limit = this.now() - hour;
    for (const [old, at] of known) if (at <= limit) known.delete(old);
    if (known.size > this.most) return false;
    known.set(operation, this.now());
    this.byKey.set(key, known);
    if (this.byKey.size > mostKeys) this.byKey.delete(this.byKey.keys().next().value!);
    return true;
  }

  /** It was paid for after all. */
  remove(key: string, operation: string): void {
    const known = this.byKey.get(key);
    if (known?.delete(operation) && known.size === 0) this.byKey.delete(key);
  }
}
