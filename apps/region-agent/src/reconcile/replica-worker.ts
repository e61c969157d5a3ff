import { type Wanted } from '@nebo/contracts';
import { type AgentLog } from '../agent-log.js';
import { type BlobAccess, type ReplicaDriver, type ReplicaObservation } from '../drivers/types.js';
import { type LogShipper, type LogWriter } from '../log/log-shipper.js';
import { type Reporter } from './reporter.js';
import { type Worker } from './worker.js';

export interface ReplicaParts {
  driver: ReplicaDriver;
  blobs: BlobAccess;
  shipper: LogShipper;
  reporter: Reporter;
  log: AgentLog;
  /** Edges can ask this agent to wake replicas. */
  wakeable: boolean;
}

type WantedReplica = Extract<Wanted, { kind: 'replica' }>;

/** One replica: hands the newest generation to the driver and reports what the driver sees. */
export class ReplicaWorker implements Worker {
  private newest: WantedReplica | null = null;
  private turn: Promise<void> = Promise.resolve();
  private writer: { stream: string; log: LogWriter } | null = null;
  private ended = false;

  constructor(
    private readonly id: string,
    private readonly parts: ReplicaParts,
  ) {}

  want(item: Wanted): void {
    if (item.kind !== 'replica' || this.ended) return;
    if (this.newest && item.generation <= this.newest.generation) return;
    this.newest = item;
    this.turn = this.turn
      .then(() => this.apply(item))
      .catch((error: unknown) => {
        // The next full comparison tries again.
        if (this.newest === item) this.newest = null;
        this.parts.log.error(
          { replica: this.id, error: String((error as Error)?.stack ?? error) },
          'replica was not reconciled',
        );
      });
  }

  async vanished(): Promise<void> {
    this.ended = true;
    await this.turn;
    await this.parts.driver.remove(this.id);
    if (this.newest) this.gone(this.newest.generation);
    await this.closeLog();
  }

  async stop(): Promise<void> {
    this.ended = true;
    await this.turn;
    if (!this.newest || this.newest.gone) return;
    // Nobody may be sent to an address that is about to close.
    const { generation } = this.newest;
    const reason = "The region's agent is stopping.";
    this.parts.reporter.report({
      kind: 'replica',
      id: this.id,
      generation,
      state: 'starting',
      reason,
      facts: {},
    });
  }

  private gone(generation: number): void {
    const observation = { kind: 'replica' as const, id: this.id, generation, state: 'gone' as const };
    this.parts.reporter.report({ ...observation, reason: null, facts: {} }, true);
  }

  private async apply(item: WantedReplica): Promise<void> {
    // A newer generation is already waiting for its turn.
    if (this.ended || item !== this.newest) return;
    const { driver, blobs, wakeable } = this.parts;
    if (item.gone) {
      await driver.remove(this.id);
      await this.closeLog();
      this.gone(item.generation);
      return;
    }
    const log = await this.openLog(item.spec.log_stream);
    await driver.ensure(this.id, item.generation, item.spec, {
      log,
      blobs,
      wakeable,
      changed: (seen) => this.observed(seen),
    });
  }

  private observed(seen: ReplicaObservation): void {
    const { id, generation, state, reason, facts } = seen;
    if (this.ended || generation !== this.newest?.generation) return;
    this.parts.reporter.report({ kind: 'replica', id, generation, state, reason, facts: { ...facts } });
  }

  private async openLog(stream: string): Promise<LogWriter> {
    if (this.writer?.stream !== stream) {
      await this.closeLog();
      this.writer = { stream, log: await this.parts.shipper.open(stream) };
    }
    return this.writer!.log;
  }

  private async closeLog(): Promise<void> {
    // Not awaited: what waits goes out when the control plane is there.
    void this.writer?.log.close(false);
    this.writer = null;
  }
}
