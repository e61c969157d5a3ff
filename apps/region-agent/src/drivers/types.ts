import { type Readable } from 'node:stream';
import {
  type ArtifactFacts,
  type BlobRef,
  type BuildSpec,
  type PortSpec,
  type RegionThing,
  type ReplicaFacts,
  type ReplicaSpec,
  type VpcFacts,
  type VpcSpec,
} from '@nebo/contracts';
import { type EgressDoor } from '@nebo/safe-net';
import { type BuildCaches } from '../builds/cache/build-cache.js';
import { type LogWriter } from '../log/log-shipper.js';
import { type OnDemand } from '../replicas/on-demand.js';

export type DriverName = 'local' | 'simulated';

/** The one way out of a build or replica that has no network of its own: a guarded proxy of the operator. */
export interface Egress {
  /** `http://host:port` as this process reaches it. */
  proxyUrl: string;
  /** Has it listen at an address of this host, for a run that can reach nothing else. */
  door(address: string): Promise<EgressDoor>;
}

/** Blobs of the control plane. */
export interface BlobAccess {
  get(sha256: string, signal: AbortSignal): Promise<Readable>;
  /** @param open a stream of its bytes from the beginning; called again when a connection broke */
  put(blob: BlobRef, open: () => Readable, signal: AbortSignal): Promise<void>;
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
  | { state: 'error'; reason: string; facts?: Pick<ArtifactFacts, 'source'> };

/**
 * Makes artifacts from sources. Calling it again for the same build is safe: every call works in a folder of its own.
 */
export interface BuildDriver {
  readonly name: DriverName;
  readonly isolated: boolean;
  /** What builds leave for later ones of their app. */
  readonly caches: BuildCaches;
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
  facts: Partial<VpcFacts>;
}

/** A VPC has not come to the driver in time. It may still: networking is away, or the host has many to make after it was started. */
export class NetworkMissing extends Error {
  override name = 'NetworkMissing';
}

/** Where a machine's interface joins its VPC. */
export interface PortTap {
  /** For `ip netns exec`: the device is there and nowhere else. */
  namespace: string;
  /** A persistent tap device of one queue, up and on the VPC's bridge, MTU 1500. */
  device: string;
}

/**
 * Doors for machines into VPCs, one per port. Whatever comes through must have the port's MAC and address, ARP included; so
 * the guest's interface must have the MAC of the spec.
 */
export interface PortTaps {
  /**
   * The port's tap, made when there is none; again gives the same. Of a VPC that has not come to the driver yet (the two
   * services tell of their things in any order) it waits for it, at most 30 s. A port that has not come yet has its tap at
   * once: nothing gets through before the port is known.
   * @throws the signal's reason; NetworkMissing when the VPC did not come
   */
  tap(vpcId: string, portId: string, signal: AbortSignal): Promise<PortTap>;
  /** Takes it away; end first what has it open. Neither tap nor VPC there is fine. */
  drop(vpcId: string, portId: string): Promise<void>;
}

/** Where an interface into a VPC is put. */
export interface PlugPlace {
  /** Name of the network namespace. */
  namespace: string;
  device: string;
}

/**
 * Second interfaces in namespaces that have a network already: a link whose other end is on the VPC's bridge, under the same
 * rules as a tap.
 */
export interface PortPlugs {
  /**
   * Puts an interface with the port's MAC and address into a namespace, in place of what an earlier one of the same port left.
   * It is put there again when the VPC has to be made anew. Waits for VPC and port as `PortTaps.tap` does.
   * @throws LaunchRefused when the VPC did not come, or the port cannot be made here; the signal's reason
   */
  join(port: PortSpec, place: PlugPlace, signal: AbortSignal): Promise<void>;
  /** Takes it away. Not there is fine. */
  leave(port: PortSpec): Promise<void>;
}

/**
 * Makes VPCs. All calls are idempotent and may come again at any time. What a driver has made goes on without the agent, as
 * the machines in it do.
 */
export interface NetworkDriver {
  readonly name: DriverName;
  readonly isolated: boolean;
  /** Null: no packet goes anywhere here, so machines have no interface that works. */
  readonly taps: PortTaps | null;
  /** Null: so replicas and runs have no interface in VPCs either. */
  readonly plugs: PortPlugs | null;
  start(): Promise<void>;
  /**
   * Makes the network as `spec` says and looks whether it still is; what somebody took away or added is mended. Nothing is
   * taken down for it: other ports, floating IPs or gateways disturb no connection but those that they carry. A spec that
   * cannot be made is an observation, not an exception; a floating IP that cannot is a fault in its facts.
   * @throws when the host's tools fail; the next call mends what is half made
   */
  ensure(id: string, generation: number, spec: VpcSpec): Promise<VpcObservation>;
  /** Settled when nothing of it is left; processes in its namespace are killed. */
  remove(id: string): Promise<void>;
  /** All that there is, also what an earlier agent made. */
  list(): Promise<VpcObservation[]>;
  /**
   * What lies on the host of networks, looked at itself and not by memory, for the audit; absent where there is nothing but
   * memory.
   */
  onHost?(): Promise<RegionThing[]>;
  /** The agent ends; networks and what runs in them go on. */
  stop(): Promise<void>;
  /** Takes all networks away: for an agent whose machines end with it. */
  clear(): Promise<void>;
}
