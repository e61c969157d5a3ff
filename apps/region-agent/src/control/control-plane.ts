import { type Readable } from 'node:stream';
import {
  type InventoryPart,
  type InventoryWanted,
  type LogBatch,
  type Observed,
  type RegionCapacity,
  type UsageReport,
  type UsageTaken,
  type WantedAnswer,
} from '@nebo/contracts';

/** Answer of taking the region. */
export interface AgentSession {
  region_id: string;
  /** Rises with every agent that takes the region. */
  epoch: number;
}

/** What one service wants of the region and hears of it. */
export interface ServicePlane {
  /**
   * What changed after `since`, everything when it is null; waits up to `waitSeconds` for a change.
   * @param after the `next` of a page before, of everything
   */
  wanted(
    since: string | null,
    waitSeconds: number,
    signal: AbortSignal,
    after?: string | null,
  ): Promise<WantedAnswer>;
  observed(items: Observed[], signal: AbortSignal): Promise<void>;
  /** The blob's bytes; whoever reads them checks their hash. */
  getBlob(sha256: string, signal: AbortSignal): Promise<Readable>;
  putBlob(sha256: string, bytes: number, source: Readable, signal: AbortSignal): Promise<void>;
}

/** Audits that ask what the region's host has. */
export interface InventoryPlane {
  /** Under which number somebody asks; waits up to `waitSeconds` while nobody does. */
  inventoryWanted(waitSeconds: number, signal: AbortSignal): Promise<InventoryWanted>;
  tellInventory(part: InventoryPart, signal: AbortSignal): Promise<void>;
}

/**
 * The control plane as the agent sees it: over HTTP, or in one process through a ServiceTarget. Every call may fail and
 * is then made again by its caller. Its own `wanted`, `observed` and blobs are those of builds and replicas.
 */
export interface ControlPlane extends ServicePlane, InventoryPlane {
  /**
   * Takes the region: from now on older agents get `Superseded`.
   * @param capacity what the region can hold in machines; null: nobody knows
   */
  openSession(capacity: RegionCapacity | null, signal: AbortSignal): Promise<AgentSession>;
  /** The same of another service, in the same session. */
  of(service: string): ServicePlane;
  log(stream: string, batch: LogBatch, signal: AbortSignal): Promise<void>;
  /** Which of these apps (at most 1,000) are not in the region any more. */
  goneApps(appIds: readonly string[], signal: AbortSignal): Promise<string[]>;
  /** Tells what lives of processes used. */
  usage(report: UsageReport, signal: AbortSignal): Promise<UsageTaken>;
  close(): Promise<void>;
}

/** Another agent has taken the region (409): this one has to stop acting. */
export class Superseded extends Error {
  constructor(message = 'another agent has taken the region') {
    super(message);
    this.name = 'Superseded';
  }
}

/** The control plane answered, but not with success. */
export class ControlPlaneError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
    this.name = 'ControlPlaneError';
  }
}
