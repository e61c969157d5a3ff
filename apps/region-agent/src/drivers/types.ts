import { type Readable } from 'node:stream';
import {
  type ArtifactFacts,
  type BlobRef,
  type BuildSpec,
  type ReplicaFacts,
  type ReplicaSpec,
  type VpcSpec,
} from '@nebo/contracts';
import { type LogWriter } from '../log/log-shipper.js';
import { type OnDemand } from '../replicas/on-demand.js';

export type DriverName = 'local' | 'simulated';

/** The one way out of a build or replica that has no network of its own: a guarded proxy of the operator. */
export interface Egress {
  /** `http://host:port` as this process reaches it. */
  proxyUrl: string;
}

/** Blobs of the control plane. */
export interface BlobAccess {
  get(sha256: string, signal: AbortSignal): Promise<Readable>;
  put(blob: BlobRef, source: Readable, signal: AbortSignal): Promise<void>;
}

export interface BuildIo {
  log: LogWriter;
  blobs: BlobAccess;
  /** Fires when the build is not wanted any more. */
  signal: AbortSignal;
}

export type BuildOutcome =
  | { state: 'success'; facts: ArtifactFacts }
  /** `reason`: a sentence for the user with the step and what went wrong. */
  | { state: 'error'; reason: string };

/**
 * Makes artifacts from sources. Calling it again for the same build is safe: every call works in a folder of its own.
 */
export interface BuildDriver {
  readonly name: DriverName;
  readonly isolated: boolean;
  /** Removes what an earlier agent left. */
  start(): Promise<void>;
  /** @throws the signal's reason when aborted; nothing of the build runs any more then */
  build(id: string, spec: BuildSpec, io: BuildIo): Promise<BuildOutcome>;
}

/** What a replica driver says of one replica. */
export interface ReplicaObservation {
  id: string;
  generation: number;
  state: 'starting' | 'ready' | 'sleeping' | 'failed';
  reason: string | null;
  facts: Partial<ReplicaFacts>;
}

export interface ReplicaIo {
  log: LogWriter;
  blobs: BlobAccess;
  /** Edges can ask this agent to wake replicas; otherwise none may sleep. */
  wakeable: boolean;
  /** Called with every change. */
  changed(observation: ReplicaObservation): void;
}

/** Keeps replicas running. All calls are idempotent and may come again at any time. */
export interface ReplicaDriver {
  readonly name: DriverName;
  readonly isolated: boolean;
  /** Removes what an earlier agent left. */
  start(): Promise<void>;
  /**
   * Makes the replica run as `spec` says and keeps it so. An equal spec with a higher generation changes nothing but the
   * number; another spec replaces the replica.
   */
  ensure(id: string, generation: number, spec: ReplicaSpec, io: ReplicaIo): Promise<ReplicaObservation>;
  /** Ends the replica: asks it to stop, then kills it. Settled when nothing of it is left. */
  remove(id: string): Promise<void>;
  list(): ReplicaObservation[];
  /** Holds on an on-demand replica; null: it is not here, or runs always. */
  onDemand(id: string): OnDemand | null;
  /** The replica's last lines, newest last, at most 50. */
  logs(id: string): string[];
  /** Ends all replicas. */
  stop(): Promise<void>;
}

/** What a network driver says of one VPC. */
export interface VpcObservation {
  id: string;
  /** Of the spec that it was made by; 0 when that is not known. */
  generation: number;
  state: 'active' | 'error';
  /** Why not active, in a sentence for the user. */
  reason: string | null;
  facts: Record<string, unknown>;
}

/** Makes VPCs. All calls are idempotent and may come again at any time. */
export interface NetworkDriver {
  readonly name: DriverName;
  readonly isolated: boolean;
  start(): Promise<void>;
  /**
   * Makes the network as `spec` says and looks whether it still is. Other ports change nothing for the hosts that are
   * there; another subnet makes the network anew. A spec that cannot be made is an observation, not an exception.
   * @throws when the host's tools fail; nothing half made is left then
   */
  ensure(id: string, generation: number, spec: VpcSpec): Promise<VpcObservation>;
  /** Settled when nothing of it is left. */
  remove(id: string): Promise<void>;
  /** All that there is, also what an earlier agent made. */
  list(): Promise<VpcObservation[]>;
  /** Takes all networks away. */
  stop(): Promise<void>;
}
