import type { BuildSpec, BuildState, ReplicaSpec, ReplicaState, RunSpec, RunState } from './apps.js';
import type { BackupSpec, BackupState, MachineSpec, MachineState, VpcSpec, VpcState } from './machines.js';

/**
 * The words between a region agent and the control plane (`/agent/v1/<service>/…`). The agent fetches what is wanted,
 * makes it so through drivers and reports what it observes. Level-triggered: any message may be lost, doubled or late.
 */

/** Names of the kinds that an agent makes real. */
export type AgentKind = 'backup' | 'build' | 'replica' | 'run' | 'vm' | 'vpc';

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
