import type { CompiledRouting } from '@nebo/routing';
import type { ImageReference } from '../image-reference.js';
import type { BlobRef } from './blob-ref.js';

/** An environment variable for a build or a replica; `secret` values are redacted from logs. */
export interface EnvEntry {
  name: string;
  value: string;
  secret: boolean;
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
  /** The app's login; null or absent: the image is for everybody. */
  login?: RegistryLogin | null;
}

/** What an app's variables say of its login at a registry; null: that variable is missing. */
export interface RegistryLogin {
  host: string | null;
  username: string | null;
  password: string | null;
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

/** States that an agent reports of a build. */
export type BuildState = 'building' | 'success' | 'error' | 'cancelled';

/**
 * States that an agent reports of a replica. `failed` is final for its generation. `sleeping`, only on demand: the first
 * request starts it; with a reason when its last life ended badly.
 */
export type ReplicaState = 'starting' | 'ready' | 'sleeping' | 'failed' | 'gone';

/** States that an agent reports of a run. Before `running` has been taken nothing is started; all others are final. */
export type RunState = 'running' | 'success' | 'error' | 'timeout' | 'cancelled';
