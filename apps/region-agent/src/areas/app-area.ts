import { join } from 'node:path';
import { type AgentKind } from '@nebo/contracts';
import { RecordLog } from '../drivers/simulated/record-log.js';
import { type LogShipper } from '../log/log-shipper.js';
import { BuildWorker } from '../reconcile/build-worker.js';
import { Outcomes } from '../reconcile/outcomes.js';
import { ReplicaWorker } from '../reconcile/replica-worker.js';
import { type RunRecord, RunWorker } from '../reconcile/run-worker.js';
import { type Worker } from '../reconcile/worker.js';
import { Places } from '../system/timing.js';
import { Area, type AreaParts } from './area.js';

export interface AppAreaParts extends AreaParts {
  shipper: LogShipper;
  /** Builds and job runs at a time. */
  builds: number;
  jobRuns: number;
  /** Somebody can wake on-demand replicas here. */
  wakeable: boolean;
}

/** Builds, replicas and job runs. */
export class AppArea extends Area {
  readonly service = 'apps-builder';
  private readonly outcomes: Outcomes;
  private readonly runRecords: RecordLog<RunRecord>;
  private readonly places: Places;
  private readonly runPlaces: Places;

  constructor(private readonly of: AppAreaParts) {
    super(of);
    this.outcomes = new Outcomes(join(of.home, 'outcomes'));
    this.runRecords = new RecordLog(join(of.home, 'job-runs'));
    this.places = new Places(of.builds);
    this.runPlaces = new Places(of.jobRuns);
  }

  override async start(): Promise<void> {
    await Promise.all([this.outcomes.start(), this.runRecords.start()]);
  }

  protected override async clear(listed: ReadonlySet<string>): Promise<void> {
    for (const id of this.outcomes.ids()) if (!listed.has(`build/${id}`)) await this.outcomes.drop(id);
    for (const id of this.runRecords.records.keys())
      if (!listed.has(`run/${id}`)) await this.runRecords.delete(id);
    const { replicas } = this.of.drivers();
    for (const { id } of replicas.list()) if (!listed.has(`replica/${id}`)) await replicas.remove(id);
  }

  protected override makeWorker(kind: AgentKind, id: string): Worker | null {
    const { builds, replicas, jobs } = this.of.drivers();
    const { blobs, reporter, outcomes, places, runPlaces } = this;
    const { shipper, wakeable, log } = this.of;
    const parts = { blobs, shipper, reporter, log };
    if (kind === 'build') {
      const telling = (tell: (sentence: string) => void) => this.blobsTelling(tell);
      return new BuildWorker(id, { ...parts, blobs: telling, driver: builds, outcomes, places });
    }
    if (kind === 'run')
      return new RunWorker(id, { ...parts, driver: jobs, records: this.runRecords, places: runPlaces });
    if (kind === 'replica') return new ReplicaWorker(id, { ...parts, driver: replicas, wakeable });
    return null;
  }
}
