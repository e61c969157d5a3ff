import type { AppJobResponse, AppJobRunResponse } from '@nebo/contracts';

/** A run as the contract shows it. */
export interface RunColumns {
  id: string;
  app_id: string;
  job_id: string | null;
  build_id: string | null;
  kind: string;
  command: string;
  status: string;
  exit_code: number | null;
  started_at: Date | null;
  finished_at: Date | null;
  created_at: Date;
  scheduled_for: Date | null;
  duration_ms: number | null;
  log_head: string[];
  log_tail: string[];
  log_lines: bigint;
  error: string | null;
  triggered_by: string;
}

/** Columns of `RunColumns`, of a table named `r`. */
export const runColumns = [
  ...[
    'id',
    'app_id',
    'job_id',
    'build_id',
    'kind',
    'command',
    'status',
    'exit_code',
    'started_at',
    'finished_at',
  ],
  ...[
    'created_at',
    'scheduled_for',
    'duration_ms',
    'log_head',
    'log_tail',
    'log_lines',
    'error',
    'triggered_by',
  ],
]
  .map((name) => `r.${name}`)
  .join(', ');

/** A job as the contract shows it, without its last run. */
export interface JobColumns {
  id: string;
  app_id: string;
  name: string;
  command: string;
  schedule: string | null;
  timeout_seconds: number;
  enabled: boolean;
  created_at: Date;
  updated_at: Date;
}

export const jobColumns =
  'j.id, j.app_id, j.name, j.command, j.schedule, j.timeout_seconds, j.enabled, j.created_at, j.updated_at';

export function runRecord(row: RunColumns): AppJobRunResponse {
  const { id, app_id, job_id, build_id, kind, command, status, exit_code, duration_ms, error, triggered_by } =
    row;
  return {
    ...{ id, app_id, job_id, build_id, kind, command, status, exit_code },
    started_at: row.started_at?.toISOString() ?? null,
    finished_at: row.finished_at?.toISOString() ?? null,
    created_at: row.created_at.toISOString(),
    scheduled_for: row.scheduled_for?.toISOString() ?? null,
    duration_ms,
    log_tail: logText(row),
    error,
    triggered_by,
  };
}

export function jobRecord(row: JobColumns, last: RunColumns | null): AppJobResponse {
  const { id, app_id, name, command, schedule, timeout_seconds, enabled } = row;
  return {
    ...{ id, app_id, name, command, schedule, timeout_seconds, enabled },
    created_at: row.created_at.toISOString(),
    updated_at: row.updated_at.toISOString(),
    last_run: last === null ? null : runRecord(last),
  };
}

/** What is kept of a log, with a line in place of what is not. */
function logText({ log_head, log_tail, log_lines }: RunColumns): string | null {
  const left = Number(log_lines) - log_head.length - log_tail.length;
  const lines = [...log_head, ...(left > 0 ? [`… ${left} lines left out …`] : []), ...log_tail];
  return lines.length === 0 ? null : lines.join('\n');
}
