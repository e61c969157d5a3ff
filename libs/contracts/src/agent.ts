import type { CompiledRouting } from '@nebo/routing';
import type { ImageReference } from './image-reference.js';

/**
 * The words between a region agent and the control plane (`/agent/v1/<service>/…`). The agent fetches what is wanted,
 * makes it so through drivers and reports what it observes. Level-triggered: any message may be lost, doubled or late.
 */

/** Names of the kinds that an agent makes real. */
export type AgentKind = 'backup' | 'build' | 'replica' | 'run' | 'vm' | 'vpc';

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

/** A commit that the region fetches itself; what it fetched becomes the build's source blob. */
export interface GitSource {
  /** https, or http where the operator allows the host. */
  clone_url: string;
  /** Full hash. */
  commit: string;
  /** Where to look for the commit at hosts that do not give single commits. */
  branch: string | null;
  /** Null: the repository is public. */
  username: string | null;
  password: string | null;
}

/** An image that the region pulls from its registry; nothing is built. */
export interface ImageSource {
  /** As the user wrote it. */
  reference: string;
  /** What that means. */
  name: ImageReference;
  /** The digest to use, whatever the tag says by now; null: that of the tag, found by this build. */
  digest: string | null;
  /** The image document of an earlier build, with these bytes; the registry is not asked. */
  stored: BlobRef | null;
  /** Layers (hex) that the blob store has of this app's last build. */
  known_layers: string[];
}

/** What a pulled image is, in `facts` of its build. */
export interface ImageFacts {
  /** Of what the reference named: an image, or an index of several. */
  digest: string;
  /** All bytes that the image consists of beside its document; the build owns them. */
  layers: BlobRef[];
}

/** How a build is to be made. All commands are optional: what is missing is detected from the source. */
export interface BuildSpec {
  account_id: string;
  app_id: string;
  app_type: string;
  /** gzip-compressed tar of the source folder; null as long as it has to be fetched from `git`. */
  source: BlobRef | null;
  git?: GitSource;
  /** The app is an image: all commands but `start_command` are of no use. */
  image?: ImageSource;
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
  /** gzip-compressed tar: the site's files, or the server's folder. Of an image its document (JSON). */
  artifact: BlobRef;
  /** `static` is served by the edge itself; `server` needs replicas. */
  artifact_kind: 'static' | 'server';
  /** The command that starts the server; null for a static site, and for an image that starts as it says itself. */
  start_command: string | null;
  /** What the detection found, e.g. `static`, `node`. */
  stack: string;
  duration_ms: number;
  /** What was fetched from git, packed; also reported of builds that failed after that. */
  source?: BlobRef;
  /** Rules of the source's routing file; null: it has none. */
  routing?: CompiledRouting | null;
  /** Bytes that the region keeps for the app's next build. */
  cache_bytes?: number;
  image?: ImageFacts;
}

/** One replica of an app's revision. */
export interface ReplicaSpec {
  account_id: string;
  app_id: string;
  build_id: string;
  artifact: BlobRef;
  /** The artifact is an image's document. */
  image?: boolean;
  /** Empty, of images only: what the image itself starts. */
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
  /** Where it sits in a VPC; null or absent: in none. */
  port?: PortSpec | null;
}

/** A second interface, beside the link to the host: into a VPC, with the MAC and address of a port of networking. */
export interface PortSpec {
  vpc_id: string;
  port_id: string;
  mac: string;
  address: string;
  /** Length of the subnet's prefix in bits. What lies in the subnet is reached, and nothing behind it. */
  prefix: number;
  /** First address of the subnet. */
  gateway: string;
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

/** One run of a job: a command in a revision's artifact, once. */
export interface RunSpec {
  account_id: string;
  app_id: string;
  build_id: string;
  artifact: BlobRef;
  /** The artifact is an image's document. */
  image?: boolean;
  /** For `sh -c`. */
  command: string;
  vcpu: number;
  memory_mb: number;
  /** Milliseconds from the start of the command until it is ended. */
  timeout_ms: number;
  /** The control plane has heard that it runs: an agent that knows nothing of it must not start it again. */
  begun: boolean;
  env: EnvEntry[];
  log_stream: string;
  /** As of a replica. */
  port?: PortSpec | null;
}

/** What is known of a run, in `facts` of its observation. */
export interface RunFacts {
  /** Null while it runs, and when a signal or the region ended it. */
  exit_code: number | null;
  /** Of the command; null while it runs or when nobody saw its end. */
  duration_ms: number | null;
  isolated: boolean;
}

/** A machine as its region shall make it. */
export interface MachineSpec {
  account_id: string;
  name: string;
  hostname: string;
  vcpu: number;
  memory_mb: number;
  disk_gb: number;
  /** `blob`: the image's bytes when an operator registered them; null for one that the agent brings itself, by `filename`. */
  image: { id: string; filename: string; blob: BlobRef | null };
  /**
   * Bytes that the disk is made of instead of the image's: those of a backup. `number` rises with every restore; a disk that
   * was made under a lower number is made anew, with the machine stopped before and as `power` says after.
   */
  restore: { number: number; blob: BlobRef } | null;
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
  /** The `restore.number` that the disk was made under, 0 for the image's. */
  restored: number;
  /** The size that the machine really has: processors and memory change with its next start, the disk at once. */
  vcpu: number;
  memory_mb: number;
  disk_gb: number;
}

/** States that an agent reports of a machine. `failed` stays until another generation asks again. */
export type MachineState = 'creating' | 'starting' | 'running' | 'stopping' | 'stopped' | 'failed' | 'gone';

/** A machine's disk at one moment, to be put into the blob store. Made once; the agent keeps nothing of it afterwards. */
export interface BackupSpec {
  account_id: string;
  vm_id: string;
}

/** What a made backup is, in `facts` of its observation. */
export interface BackupFacts {
  driver: string;
  real: boolean;
  /** A compressed qcow2 file. */
  blob: BlobRef;
  /** `frozen`: by the guest agent; `crash`: as after a power cut; `stopped`: the machine did not run. */
  consistency: 'frozen' | 'crash' | 'stopped';
}

/** States that an agent reports of a backup. `failed` and `ready` are final. */
export type BackupState = 'creating' | 'ready' | 'failed' | 'gone';

/** What a region can hold in all, reported when an agent takes it; null: nobody knows, nothing is refused for it. */
export interface RegionCapacity {
  vcpu: number;
  memory_mb: number;
  disk_gb: number;
}

/** One VPC: a network that reaches no other one and, without a gateway, nothing outside. */
export interface VpcSpec {
  account_id: string;
  /** CIDR form; ranges of several VPCs may overlap. */
  subnet: string;
  /** First address of the subnet: router and DHCP server. */
  gateway: string;
  /** What DHCP gives; nobody else gets an address. */
  ports: { id: string; mac: string; address: string }[];
  /** Floating IPs of single ports: in to the port, and the address with which it goes out. */
  floating_ips: { id: string; address: string; port_id: string }[];
  /** The NAT gateway, a floating IP for all that has none of its own; null: no way out. */
  nat: { id: string; address: string } | null;
}

/** What an agent says of a VPC, in `facts` of its observation. */
export interface VpcFacts {
  driver: string;
  /** False: an address book, no packet goes anywhere. */
  real: boolean;
  ports: number;
  /** Ids of the floating IPs (the gateway's included) that work. */
  floating_ips: string[];
  /** Why others do not, by their id, in a sentence for the user. */
  faults: Record<string, string>;
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

/** States that an agent reports of a run. Before `running` has been taken nothing is started; all others are final. */
export type RunState = 'running' | 'success' | 'error' | 'timeout' | 'cancelled';

/** One thing the control plane wants; `generation` rises with every change of `spec` or `gone`. */
export type Wanted =
  | { kind: 'backup'; id: string; generation: number; gone: boolean; spec: BackupSpec }
  | { kind: 'build'; id: string; generation: number; gone: boolean; spec: BuildSpec }
  | { kind: 'replica'; id: string; generation: number; gone: boolean; spec: ReplicaSpec }
  | { kind: 'run'; id: string; generation: number; gone: boolean; spec: RunSpec }
  | { kind: 'vm'; id: string; generation: number; gone: boolean; spec: MachineSpec }
  | { kind: 'vpc'; id: string; generation: number; gone: boolean; spec: VpcSpec };

/**
 * Answer of `GET wanted?since=<cursor>&wait=<seconds>`: what changed after the cursor; everything when `full`. Everything may
 * come in pages: while there is a `next` there are more, asked for with `after=<next>`. The cursor is that of the first page.
 */
export interface WantedAnswer {
  cursor: string;
  full: boolean;
  items: Wanted[];
  next?: string | null;
}

/** What the agent saw of one thing. */
export interface Observed {
  kind: AgentKind;
  id: string;
  generation: number;
  state: BackupState | BuildState | ReplicaState | RunState | MachineState | VpcState;
  /** Why, in a sentence for the user; null when nothing is wrong. */
  reason: string | null;
  facts: Record<string, unknown>;
  /** RFC 3339. */
  at: string;
}

/** `POST log/{stream}`: lines with rising sequence numbers from 0; a line whose number is present is dropped. */
export interface LogBatch {
  lines: { seq: number; at: string; line: string }[];
  /** True with the last batch of a build's or run's stream. */
  done?: boolean;
}

/** `POST gone-apps`: of which apps does the region still keep something although they are not there any more. */
export interface GoneAppsQuestion {
  /** At most 1,000. */
  app_ids: string[];
}

export interface GoneAppsAnswer {
  gone: string[];
}

/**
 * `POST usage`: what lives of processes used, measured outside of them. A life is one start of a replica on demand or of a job
 * run. Each item is the total of one life in one bucket of time, so a repeat or an older one changes nothing.
 */
export interface UsageReport {
  /** Length of the buckets; another than the control plane's is refused. */
  bucket_seconds: number;
  items: LifeUsage[];
}

/** The total of one life in one bucket. */
export interface LifeUsage {
  kind: 'replica' | 'run';
  /** Of the replica or run. */
  id: string;
  /** Name of the life, never used again. */
  life: string;
  /** RFC 3339: where the bucket begins, a multiple of its length in UTC. */
  hour: string;
  /** Rises with every measurement: of two totals the one with the higher number counts. */
  seq: number;
  /** Processor time of everything in the process's group, microseconds; null: it could not be measured. */
  cpu_us: number | null;
  /** Time that the process existed, milliseconds. */
  running_ms: number;
  /** Nothing more will come of this life in this bucket. */
  final: boolean;
  /** False: a plain child process of the simulated driver. Nothing is charged for it. */
  real: boolean;
}

/** What became of a report. What is refused must not be sent again. */
export interface UsageTaken {
  /** Totals that changed something. */
  taken: number;
  refused: { index: number; code: UsageRefusal; message: string }[];
}

/**
 * `unknown`: no such replica or run in this region; `not_on_demand`: a replica that is paid by the month; `out_of_time`: before
 * the replica or run was made, or in the future; `total_fell`: less than was said before.
 */
export type UsageRefusal = 'unknown' | 'not_on_demand' | 'out_of_time' | 'total_fell';
