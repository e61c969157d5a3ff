import { sleep } from '../abortable.js';
import { type ArtifactStore } from '../artifacts/artifact-store.js';
import { type EdgeLogger } from '../observe/logger.js';
import { type PendingRoute } from './route-table.js';

interface Delivery {
  reason: string | null;
  stop: AbortController;
}

/** Longest pause between two attempts at one artifact, milliseconds. */
const MAX_PAUSE = 30_000;

/**
 * Brings the artifacts that routes wait for, a few at a time, and repeats what fails for as long as a route waits. One
 * artifact that cannot be had holds up no other.
 */
export class Deliveries {
  private readonly running = new Map<string, Delivery>();
  private readonly tasks = new Set<Promise<void>>();
  private readonly queue: (() => void)[] = [];
  private free: number;

  constructor(
    private readonly store: ArtifactStore,
    private readonly logger: EdgeLogger,
    private readonly arrived: (sha256: string) => void,
    /** How many downloads at a time. */
    parallel = 2,
  ) {
    this.free = parallel;
  }

  /** Starts what is newly waited for and gives up what no route waits for any more. */
  want(pending: readonly PendingRoute[]): void {
    const wanted = new Map(pending.map((route) => [route.artifact_sha256, route.artifact_bytes]));
    for (const [sha256, delivery] of this.running) if (!wanted.has(sha256)) this.end(sha256, delivery);
    for (const [sha256, bytes] of wanted) {
      if (this.running.has(sha256)) continue;
      const delivery: Delivery = { reason: null, stop: new AbortController() };
      this.running.set(sha256, delivery);
      const task = this.deliver(sha256, bytes, delivery).finally(() => this.tasks.delete(task));
      this.tasks.add(task);
    }
  }

  /** Why the last attempt at an artifact failed; null while none has. */
  reason(sha256: string): string | null {
    return this.running.get(sha256)?.reason ?? null;
  }

  /** Gives everything up and waits for it. */
  async stop(): Promise<void> {
    for (const [sha256, delivery] of this.running) this.end(sha256, delivery);
    while (this.queue.length > 0) this.queue.shift()!();
    await Promise.allSettled(this.tasks);
  }

  private end(sha256: string, delivery: Delivery): void {
    delivery.stop.abort();
    if (this.running.get(sha256) === delivery) this.running.delete(sha256);
  }

  private async deliver(sha256: string, bytes: number, delivery: Delivery): Promise<void> {
    const { signal } = delivery.stop;
    for (let attempt = 0; !signal.aborted; attempt++) {
      await this.enter();
      try {
        if (signal.aborted) return;
        await this.store.ensure(sha256, bytes);
        if (this.running.get(sha256) === delivery) this.running.delete(sha256);
        if (!signal.aborted) this.arrived(sha256);
        return;
      } catch (error) {
        delivery.reason = error instanceof Error ? error.message : String(error);
        this.logger.warn({ err: error, artifact: sha256, attempt }, 'an artifact could not be brought here');
      } finally {
        this.leave();
      }
      await sleep(Math.min(MAX_PAUSE, 500 * 2 ** Math.min(attempt, 10)) * (0.5 + Math.random() / 2), signal);
    }
  }

  private async enter(): Promise<void> {
    if (this.free > 0) this.free--;
    else await new Promise<void>((resolve) => this.queue.push(resolve));
  }

  private leave(): void {
    const next = this.queue.shift();
    if (next) next();
    else this.free++;
  }
}
