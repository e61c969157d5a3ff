import { randomUUID } from 'node:crypto';
import { start, wake } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';
import { orderPort } from '../networks/port.rows.js';
import { Cron } from './cron.js';

/** So many missed ticks get a row each; more become one row that counts them. */
const missedRows = 10;
/** Ticks that are counted after a long absence. */
const countedTicks = 10_000;

/** Why no run was begun. */
export type Refusal = 'no_revision' | 'static_app' | 'run_in_progress' | 'account_suspended';
/** Why a tick was missed: `late` when nobody was there to begin it in time. */
export type MissedCause = Refusal | 'late';

/** Said to who asks for a run, and in the row of a tick that led to none. */
export const refusalWords: Readonly<Record<MissedCause, string>> = {
  no_revision: 'this app has no running version: deploy it first',
  static_app: 'the app is a static site: there is no server for commands to run in',
  run_in_progress: 'the previous run of this job has not ended',
  account_suspended: 'the account is suspended',
  late: 'the control plane was not there when it was due',
};

/** A job, locked for a change. */
export interface LockedJob {
  id: string;
  account_id: string;
  app_id: string;
  name: string;
  command: string;
  schedule: string | null;
  timeout_seconds: number;
  enabled: boolean;
  next_tick: Date | null;
  /** Database time. */
  now: Date;
}

/** Locks a job; null when it is gone. Two schedulers, or one and a change by its owner, take turns here. */
export async function lockJob(tx: Sql, id: string): Promise<LockedJob | null> {
  const [job] = await tx.query<LockedJob>(
    `select id, account_id, app_id, name, command, schedule, timeout_seconds, enabled, next_tick, now() as now
     from job where id = $1::uuid for update`,
    [id],
  );
  return job ?? null;
}

/** What begins a run. */
export interface RunCause {
  kind: 'scheduled' | 'manual';
  /** `schedule` or `key:<id>`. */
  triggered_by: string;
  scheduled_for: Date | null;
}

/**
 * Begins a run in the app's current revision: its row and first state in one transaction. One run of a job at a time.
 * @returns its id, or why there is none
 */
export async function orderRun(
  tx: Sql,
  job: LockedJob,
  { kind, triggered_by, scheduled_for }: RunCause,
): Promise<{ id: string } | { refused: Refusal }> {
  const [app] = await tx.query<{ suspended: boolean; artifact_kind: string | null; vpc_id: string | null }>(
    `select a.suspended, b.artifact_kind, a.vpc_id from app a left join revision r on r.id = a.current_revision_id
       left join build b on b.id = r.build_id
     where a.id = $1::uuid and a.deleted_at is null`,
    [job.app_id],
  );
  if (!app || app.artifact_kind === null) return { refused: 'no_revision' };
  if (app.suspended) return { refused: 'account_suspended' };
  if (app.artifact_kind !== 'server') return { refused: 'static_app' };
  const id = randomUUID();
  const made = await tx.query(
    `insert into job_run (id, account_id, app_id, job_id, revision_id, build_id, region_id, kind, command, timeout_ms,
       triggered_by, scheduled_for)
     select $1::uuid, a.account_id, a.id, $3::uuid, r.id, r.build_id, a.region_id, $4, $5, $6::int, $7, $8::timestamptz
     from app a join revision r on r.id = a.current_revision_id where a.id = $2::uuid
     on conflict do nothing returning 1 as made`,
    [
      id,
      job.app_id,
      job.id,
      kind,
      job.command,
      job.timeout_seconds * 1_000,
      triggered_by,
      iso(scheduled_for),
    ],
  );
  if (made.length === 0) return { refused: 'run_in_progress' };
  const port = await orderPort(tx, job.app_id, app.vpc_id, { run_id: id });
  if (port !== null) await tx.query('update job_run set port_id = $2::uuid where id = $1::uuid', [id, port]);
  await start(tx, 'job_run', id, 'queued');
  return { id };
}

/**
 * Begins the run of the tick that is due, and writes down those that nobody began. The job's next tick moves in the same
 * transaction, so each is settled once.
 * @param lateMs a tick that is due for longer is not begun any more
 * @returns how many ticks were missed, by cause
 */
export async function settleTicks(tx: Sql, id: string, lateMs: number): Promise<Map<MissedCause, number>> {
  const missed = new Map<MissedCause, number>();
  const job = await lockJob(tx, id);
  if (!job || job.schedule === null || job.next_tick === null || job.next_tick > job.now) return missed;
  const cron = new Cron(job.schedule);
  const due: Date[] = [];
  let next: Date | null = job.next_tick;
  while (next !== null && next <= job.now && due.length < countedTicks) {
    due.push(next);
    next = cron.next(next);
  }
  if (next !== null && next <= job.now) next = cron.next(job.now);
  await tx.query('update job set next_tick = $2::timestamptz where id = $1::uuid', [job.id, iso(next)]);
  const last = due.at(-1)!;
  const inTime = job.now.getTime() - last.getTime() <= lateMs;
  const late = inTime ? due.slice(0, -1) : due;
  await writeLate(tx, job, late);
  if (late.length > 0) missed.set('late', late.length);
  if (!inTime) return missed;
  const begun = await orderRun(tx, job, {
    kind: 'scheduled',
    triggered_by: 'schedule',
    scheduled_for: last,
  });
  if ('refused' in begun) {
    await writeMissed(tx, job, last, refusalWords[begun.refused]);
    missed.set(begun.refused, 1);
  }
  return missed;
}

async function writeLate(tx: Sql, job: LockedJob, ticks: readonly Date[]): Promise<void> {
  if (ticks.length <= missedRows) {
    for (const tick of ticks) await writeMissed(tx, job, tick, refusalWords.late);
    return;
  }
  const count = ticks.length < countedTicks ? `${ticks.length}` : `at least ${countedTicks}`;
  const words = `${count} ticks from ${iso(ticks[0]!)} to ${iso(ticks.at(-1)!)}: ${refusalWords.late}`;
  await writeMissed(tx, job, ticks[0]!, words);
}

async function writeMissed(tx: Sql, job: LockedJob, tick: Date, error: string): Promise<void> {
  await tx.query(
    `insert into job_run (id, account_id, app_id, job_id, region_id, kind, command, timeout_ms, status, error, triggered_by,
       scheduled_for, finished_at, log_done)
     select $1::uuid, a.account_id, a.id, $3::uuid, a.region_id, 'scheduled', $4, $5::int, 'missed', $6, 'schedule',
       $7::timestamptz, now(), true
     from app a where a.id = $2::uuid on conflict do nothing`,
    [randomUUID(), job.app_id, job.id, job.command, job.timeout_seconds * 1_000, error, iso(tick)],
  );
}

/** Calls off the runs of a job that live; the region ends what it has begun. */
export async function callOffRuns(tx: Sql, jobId: string): Promise<void> {
  const live = await tx.query<{ id: string }>(
    `update job_run set gone = true, generation = generation + 1
     where job_id = $1::uuid and status in ('queued', 'running') and not gone returning id`,
    [jobId],
  );
  for (const { id } of live) await wake(tx, 'job_run', id);
}

/** A time as text: raw queries of both clients take it. */
export const iso = (at: Date | null): string | null => at?.toISOString() ?? null;
