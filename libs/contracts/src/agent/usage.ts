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
