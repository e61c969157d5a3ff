import { type AgentKind, type Wanted } from '@nebo/contracts';
import { type AgentLog } from '../agent-log.js';
import { type ServicePlane } from '../control/control-plane.js';
import { type AgentDrivers } from '../drivers/create.js';
import { type BlobAccess } from '../drivers/types.js';
import { Reporter } from '../reconcile/reporter.js';
import { WorkerSet } from '../reconcile/worker-set.js';
import { type Worker } from '../reconcile/worker.js';
import { lastingBlobs } from './lasting-blobs.js';

/** What an area has of its agent. */
export interface AreaParts {
  plane: ServicePlane;
  log: AgentLog;
  /** Folder of the agent. */
  home: string;
  /** Chosen when the agent starts, before anything is wanted. */
  drivers(): AgentDrivers;
  /** Passes a call on and notices when the region belongs to another agent. */
  guarded<T>(call: Promise<T>): Promise<T>;
  superseded(): void;
}

/**
 * What one service of the control plane wants of the region: its things are compared, made and reported by themselves. What
 * one service does not list, another may want, so each has workers of its own.
 */
export abstract class Area {
  /** The service that owns the kinds. */
  abstract readonly service: string;
  readonly reporter: Reporter;
  protected readonly workers: WorkerSet;
  protected readonly blobs: BlobAccess;

  constructor(protected readonly parts: AreaParts) {
    const { plane, log } = parts;
    this.reporter = new Reporter(
      (items, signal) => plane.observed(items, signal),
      log,
      () => parts.superseded(),
    );
    this.workers = new WorkerSet((kind, id) => this.makeWorker(kind, id), log);
    this.blobs = this.blobsTelling();
  }

  /** @param tell hears a sentence for the user when the control plane is waited for */
  protected blobsTelling(tell?: (sentence: string) => void): BlobAccess {
    const { plane, log, guarded } = this.parts;
    return lastingBlobs(
      {
        getBlob: (sha256, signal) => guarded(plane.getBlob(sha256, signal)),
        putBlob: (sha256, bytes, source, signal) => guarded(plane.putBlob(sha256, bytes, source, signal)),
      },
      { log, ...(tell ? { tell } : {}) },
    );
  }

  get plane(): ServicePlane {
    return this.parts.plane;
  }

  /** Takes up what is left on disk of an earlier agent of this home. */
  start(): Promise<void> {
    return Promise.resolve();
  }

  /** Has the workers do what is wanted. After a full answer, what nobody wants any more is taken away too. */
  async apply(items: readonly Wanted[], full: boolean): Promise<void> {
    const listed = this.workers.apply(items, full);
    if (full) await this.clear(listed);
  }

  /** Ends the workers; what they have made stays. */
  stop(): Promise<void> {
    return this.workers.stop();
  }

  protected abstract makeWorker(kind: AgentKind, id: string): Worker | null;

  /** @param listed everything that is wanted, `<kind>/<id>` */
  protected abstract clear(listed: ReadonlySet<string>): Promise<void>;

  /**
   * Ends things that an earlier agent left and nobody wants. One that cannot be taken away now must not hold up the others; the
   * next full comparison tries again.
   */
  protected async removeStrays(
    kind: AgentKind,
    listed: ReadonlySet<string>,
    driver: { list(): Promise<readonly { id: string }[]>; remove(id: string): Promise<unknown> },
  ): Promise<void> {
    for (const { id } of await driver.list()) {
      if (listed.has(`${kind}/${id}`)) continue;
      await driver.remove(id).catch((error: unknown) => {
        this.parts.log.error({ [kind]: id, error: String(error) }, 'could not end what is not wanted');
      });
    }
  }
}
