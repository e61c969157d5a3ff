import type { CompiledRouting } from '@nebo/routing';

/**
 * The words between a region agent and the control plane (`/agent/v1/<service>/…`). The agent fetches what is wanted,
 * makes it so through drivers and reports what it observes. Level-triggered: any message may be lost, doubled or late.
 */

/** Names of the kinds that an agent makes real. */
export type AgentKind = 'build' | 'replica' | 'vm' | 'vpc';

/** An environment variable for a build or a replica; `secret` values are redacted from logs. */
export interface EnvEntry {
  name: string;
  value: string;
  secret: boolean;
}

/** Bytes in the blob store, by content. */
export interface BlobRef {
  /** 64 lower-case hex digits. */
  sha256: string;
  bytes: number;
}

/** How a build is to be made. All commands are optional: what is missing is detected from the source. */
export interface BuildSpec {
  account_id: string;
  app_id: string;
  app_type: string;
  /** gzip-compressed tar of the source folder. */
  source: BlobRef;
  framework: string | null;
  nodejs_version: string | null;
  root_directory: string | null;
  install_command: string | null;
  build_command: string | null;
  start_command: string | null;
  output_directory: string | null;
  env: EnvEntry[];
  /** Log lines go to this stream. */
  log_stream: string;
}

/** What a finished build leaves, reported in `facts` of its observation. */
export interface ArtifactFacts {
  /** gzip-compressed tar: the site's files, or the server's folder. */
  artifact: BlobRef;
  /** `static` is served by the edge itself; `server` needs replicas. */
  artifact_kind: 'static' | 'server';
  /** The command that starts the server; null for a static site. */
  start_command: string | null;
  /** What the detection found, e.g. `static`, `node`. */
  stack: string;
  duration_ms: number;
  /** Rules of the source's routing file; null: it has none. */
  routing?: CompiledRouting | null;
}

/** One replica of an app's revision. */
export interface ReplicaSpec {
  account_id: string;
  app_id: string;
  build_id: string;
  artifact: BlobRef;
  start_command: string;
  vcpu: number;
  memory_mb: number;
  /** Empty: ready as soon as the port accepts. */
  readiness_path: string;
  /** Milliseconds from start until a replica that is not ready has failed. */
  ready_timeout_ms: number;
  env: EnvEntry[];
  log_stream: string;
  /** May sleep while nobody uses it; null or absent: runs always. */
  on_demand?: OnDemandSpec | null;
}

/** When a replica may sleep. The agent decides and reports; waking is asked for by edges (`WakeDesk`), never here. */
export interface OnDemandSpec {
  /** Milliseconds without use after which it is put to sleep. */
  idle_ms: number;
  /**
   * It was ready before, so it may begin asleep. False: it is started once to prove that it comes up. A change of this
   * alone changes nothing for a replica that is there.
   */
  proven: boolean;
}

/** Where a ready replica answers, reported in `facts` of its observation. */
export interface ReplicaFacts {
  host: string;
  port: number;
  started_at: string;
  ready_at: string | null;
  /** Whether the replica runs in a sandbox; false is shown wherever the replica is. */
  isolated: boolean;
  /** The region has an agent that edges can ask to wake it. Without, an on-demand replica runs always. */
  wakeable: boolean;
  /** Crashes in a row: ends that were not asked for, none of them after a minute of readiness. */
  crashes: number;
}

/** A machine as its region shall make it. */
export interface MachineSpec {
  account_id: string;
  name: string;
  hostname: string;
  vcpu: number;
  memory_mb: number;
  disk_gb: number;
  image: { id: string; filename: string };
  default_user: string;
  /** OpenSSH public keys. */
  ssh_keys: string[];
  /** The user's cloud-init; null for none. */
  user_data: string | null;
  install_guest_agent: boolean;
  /** One per port of networking, in the order in which the guest sees them. */
  interfaces: { id: string; name: string; vpc_id: string; mac: string; address: string }[];
  power: 'running' | 'stopped';
  /** Rises with every restart: a machine that was started under a lower number is restarted once. */
  boot: number;
}

/** What an agent says of a machine, in `facts` of its observation. */
export interface MachineFacts {
  driver: string;
  /** False: states and timings only, no machine runs anywhere. */
  real: boolean;
  /** The `boot` of the spec under which the machine was started last. */
  boot: number;
  started_at: string | null;
  guest_agent: 'connected' | 'absent' | null;
}

/** States that an agent reports of a machine. `failed` stays until another generation asks again. */
export type MachineState = 'creating' | 'starting' | 'running' | 'stopping' | 'stopped' | 'failed' | 'gone';

/** One VPC: a network that reaches no other one and, without a gateway, nothing outside. */
export interface VpcSpec {
  account_id: string;
  /** CIDR form; ranges of several VPCs may overlap. */
  subnet: string;
  /** First address of the subnet: router and DHCP server. */
  gateway: string;
  /** What DHCP gives; nobody else gets an address. */
  ports: { id: string; mac: string; address: string }[];
}

/** States that an agent reports of a VPC: `error` is not final, the agent tries again. */
export type VpcState = 'active' | 'error' | 'gone';

/** States that an agent reports of a build. */
export type BuildState = 'building' | 'success' | 'error' | 'cancelled';

/**
 * States that an agent reports of a replica. `failed` is final for its generation. `sleeping`, only on demand: the first
 * request starts it; with a reason when its last life ended badly.
 */
export type ReplicaState = 'starting' | 'ready' | 'sleeping' | 'failed' | 'gone';

/** One thing the control plane wants; `generation` rises with every change of `spec` or `gone`. */
export type Wanted =
  | { kind: 'build'; id: string; generation: number; gone: boolean; spec: BuildSpec }
  | { kind: 'replica'; id: string; generation: number; gone: boolean; spec: ReplicaSpec }
  | { kind: 'vm'; id: string; generation: number; gone: boolean; spec: MachineSpec }
  | { kind: 'vpc'; id: string; generation: number; gone: boolean; spec: VpcSpec };

/** Answer of `GET wanted?since=<cursor>&wait=<seconds>`: what changed after the cursor; everything when `full`. */
export interface WantedAnswer {
  cursor: string;
  full: boolean;
  items: Wanted[];
}

/** What the agent saw of one thing. */
export interface Observed {
  kind: AgentKind;
  id: string;
  generation: number;
  state: BuildState | ReplicaState | MachineState | VpcState;
  /** Why, in a sentence for the user; null when nothing is wrong. */
  reason: string | null;
  facts: Record<string, unknown>;
  /** RFC 3339. */
  at: string;
}

/** `POST log/{stream}`: lines with rising sequence numbers from 0; a line whose number is present is dropped. */
export interface LogBatch {
  lines: { seq: number; at: string; line: string }[];
  /** True with the last batch of a build's stream. */
  done?: boolean;
}
