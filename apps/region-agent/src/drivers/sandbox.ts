import { type EnvEntry, type ReplicaSpec } from '@nebo/contracts';
import { type Run } from '../system/runs.js';

/** How a process ended. */
export interface Exit {
  code: number | null;
  /** Set when a limit ended it, as words for a sentence ("used more than 512 MB of memory"). */
  limit: string | null;
}

/** A running process with everything below it. */
export interface SandboxProcess {
  exited: Promise<Exit>;
  /** Asks it to stop (SIGTERM), kills it after `graceMs`; settled when nothing of it is left. */
  stop(graceMs: number): Promise<void>;
}

/** What to run. User commands run as `sh -c <command>` inside the sandbox and nowhere else. */
export interface SandboxCommand {
  command: string;
  /** Relative to the tree, `.` for its root. */
  cwd: string;
  env: readonly EnvEntry[];
  onOutput(chunk: Buffer): void;
  /** Whether the reader cannot keep up; output is then read later, which holds the process. */
  paused?(): Promise<void> | null;
}

/** Where the steps of one build run. */
export interface BuildSandbox {
  /** Folder on this host that does not exist yet; the source is unpacked here. */
  readonly tree: string;
  readonly owner: { uid: number; gid: number } | null;
  /** Folder of tools' caches on this host, and its path as commands see it. */
  readonly cache: { dir: string; inside: string };
  /** Variables that commands need here: PATH, HOME, the proxy. */
  readonly env: readonly EnvEntry[];
  run(command: SandboxCommand): Promise<SandboxProcess>;
  /** Ends whatever still runs; the run's folder is its driver's. */
  close(): Promise<void>;
}

/** How builds are enclosed: one per driver. */
export interface BuildHost {
  readonly isolated: boolean;
  cleanUp(): Promise<void>;
  open(run: Run): Promise<BuildSandbox>;
}

/** A started replica. */
export interface ReplicaProcess extends SandboxProcess {
  host: string;
  port: number;
  /**
   * Processor time of everything in it so far, microseconds, measured outside of it; also after its end. Null: it cannot be
   * read. Absent: nothing counts it here.
   */
  cpu?(): Promise<number | null>;
}

/** What keeps a replica from being started, in a sentence for its owner. */
export class LaunchRefused extends Error {
  override name = 'LaunchRefused';
}

/** How replicas are enclosed: one per driver. */
export interface ReplicaHost {
  readonly isolated: boolean;
  /** Replicas have interfaces in VPCs here. */
  readonly joins: boolean;
  cleanUp(): Promise<void>;
  /** Processor time of a run that an earlier agent left, by its name, before `cleanUp`; null: nothing is there. */
  leftOverCpu?(name: string): Promise<number | null>;
  /** The agent stops: nothing is left to enclose. */
  close?(): Promise<void>;
  /**
   * Starts the command on an artifact's folder, which is not changed (`local`) or ought not to be (`simulated`). An image's
   * folder holds its root file system (`images/unpack-image.ts`).
   * @param signal ends the wait for a private network that has not come
   * @throws LaunchRefused when it has not come in time; whatever keeps it from being started here: images need `local`
   */
  launch(
    run: Run,
    artifactDir: string,
    spec: ReplicaSpec,
    onOutput: (chunk: Buffer) => void,
    signal: AbortSignal,
  ): Promise<ReplicaProcess>;
}
