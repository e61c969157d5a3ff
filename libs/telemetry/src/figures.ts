import { collectProcessMetrics, Registry } from './metrics.js';

/** Brings figures up to date that are read, not counted: rows that wait, states of lifecycles. */
export type Refresh = () => Promise<void>;

/** What a refresh may take, in milliseconds; a database that is away must not hold up the figures of all others. */
const refreshMs = 1_000;

/**
 * The registry of a process, shared by all services in it. What has to be asked for is asked when somebody scrapes, never
 * in the background; the process's own figures (CPU, memory, event loop) begin with the first scrape, since watching the
 * event loop costs a timer.
 */
export class Figures extends Registry {
  private readonly refreshes = new Set<Refresh>();

  /** Runs `refresh` before each scrape; what it throws is left out. @returns the function that ends it */
  beforeScrape(refresh: Refresh): () => void {
    this.refreshes.add(refresh);
    return () => void this.refreshes.delete(refresh);
  }

  /** The text of `/metrics`. */
  override async metrics(): Promise<string> {
    collectProcessMetrics(this);
    await Promise.all([...this.refreshes].map(inTime));
    return super.metrics();
  }
}

async function inTime(refresh: Refresh): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<void>((resolve) => (timer = setTimeout(resolve, refreshMs)));
  try {
    await Promise.race([refresh(), limit]);
  } catch {
    // The former figure stays: health says what is away.
  } finally {
    clearTimeout(timer);
  }
}
