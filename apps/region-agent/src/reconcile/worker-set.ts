import { type AgentKind, type Wanted } from '@nebo/contracts';
import { type AgentLog } from '../agent-log.js';
import { type Worker } from './worker.js';

/** The workers of the kinds that one service wants, by kind and id. */
export class WorkerSet {
  private readonly workers = new Map<string, Worker>();

  /** @param make null for a kind that this agent does not know */
  constructor(
    private readonly make: (kind: AgentKind, id: string) => Worker | null,
    private readonly log: AgentLog,
  ) {}

  /**
   * Hands out what is wanted. After a full answer, what is not in it has vanished.
   * @returns `kind/id` of everything in the answer
   */
  apply(items: readonly Wanted[], full: boolean): Set<string> {
    for (const item of items) this.worker(item.kind, item.id)?.want(item, full);
    const listed = new Set(items.map((item) => `${item.kind}/${item.id}`));
    if (!full) return listed;
    for (const [key, worker] of this.workers) {
      if (listed.has(key)) continue;
      // Known until it is over: if it is wanted again meanwhile, the next full comparison makes it anew.
      void worker.vanished().then(
        () => this.workers.delete(key),
        (error: unknown) => this.log.error({ key, error: String(error) }, 'could not end what is not wanted'),
      );
    }
    return listed;
  }

  async stop(): Promise<void> {
    await Promise.all([...this.workers.values()].map((worker) => worker.stop()));
  }

  private worker(kind: AgentKind, id: string): Worker | null {
    const key = `${kind}/${id}`;
    const known = this.workers.get(key);
    if (known) return known;
    const worker = this.make(kind, id);
    if (worker) this.workers.set(key, worker);
    else this.log.warn({ kind, id }, 'this agent does not know such a kind');
    return worker;
  }
}
