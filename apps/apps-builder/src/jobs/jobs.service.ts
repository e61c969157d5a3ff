import { randomUUID } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import {
  type AppJobCreateRequest,
  type AppJobResponse,
  type AppJobRunResponse,
  type AppJobUpdateRequest,
  type KeyIdentity,
  type PageOf,
  pageOf,
  type PageQuery,
} from '@nebo/contracts';
import { start, wake } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';
import {
  type ApiError,
  conflict,
  fieldError,
  type IdempotentRequest,
  idOrNull,
  notFound,
  once,
  type OnceAnswer,
  pathId,
} from '@nebo/service-kit';
import { AppsService } from '../apps/apps.service.js';
import { sayAct } from '../events.js';
import type { App } from '../generated/prisma/client.js';
import { Store } from '../shared/prisma.js';
import { Settings } from '../shared/settings.js';
import { Cron, CronError } from './cron.js';
import {
  type JobColumns,
  jobColumns,
  jobRecord,
  type RunColumns,
  runColumns,
  runRecord,
} from './job.mapper.js';
import {
  callOffRuns,
  iso,
  type LockedJob,
  lockJob,
  orderRun,
  refusalWords,
  settleTicks,
} from './job.rows.js';
import { MissedTicks } from './missed-ticks.js';

/** Jobs of one app. */
const maxJobs = 100;

/** Jobs and their runs as their owners see them. When a tick comes is the job's life (`job.lifecycle.ts`). */
@Injectable()
export class JobsService {
  constructor(
    private readonly store: Store,
    private readonly apps: AppsService,
    private readonly settings: Settings,
    private readonly missed: MissedTicks,
  ) {}

  /** A page of an app's jobs, oldest first, each with its newest run. */
  list(
    caller: KeyIdentity,
    projectId: string | null,
    appId: string,
    page: PageQuery,
  ): Promise<PageOf<AppJobResponse>> {
    return this.store.as(caller.account_id, async ({ db, sql }) => {
      const app = await this.apps.find(db, caller, projectId, appId);
      const [all] = await sql.query<{ count: number }>(
        'select count(*)::int as count from job where app_id = $1::uuid',
        [app.id],
      );
      const rows = await sql.query<JobColumns>(
        `select ${jobColumns} from job j where j.app_id = $1::uuid order by j.created_at, j.id limit $2::int offset $3::int`,
        [app.id, page.limit, page.offset],
      );
      const last = await lastRuns(
        sql,
        rows.map(({ id }) => id),
      );
      return pageOf(
        rows.map((row) => jobRecord(row, last.get(row.id) ?? null)),
        all!.count,
        page,
      );
    });
  }

  /** @throws ApiError 404 */
  get(caller: KeyIdentity, projectId: string | null, appId: string, id: string): Promise<AppJobResponse> {
    return this.store.as(caller.account_id, async ({ db, sql }) => {
      const app = await this.apps.find(db, caller, projectId, appId);
      const record = await this.read(sql, pathId(id));
      if (record?.app_id !== app.id) throw notFound();
      return record;
    });
  }

  /**
   * Creates a job; with a schedule its first tick is the next one that the schedule names.
   * @throws ApiError 404, 409 `name_taken` and `too_many_jobs`, 422 for a schedule that cannot be read
   */
  create(
    caller: KeyIdentity,
    projectId: string | null,
    appId: string,
    body: AppJobCreateRequest,
    idem: IdempotentRequest | null,
  ): Promise<OnceAnswer<AppJobResponse>> {
    const schedule = scheduleOf(body.schedule ?? null);
    checkCommand(body.command);
    return this.store.as(caller.account_id, ({ db, sql }) =>
      once(sql, idem, async () => {
        const app = await this.apps.find(db, caller, projectId, appId);
        // Creates of one app take turns, or two at once would both see room.
        await sql.query('select id from app where id = $1::uuid for no key update', [app.id]);
        const [seen] = await sql.query<{ count: number; now: Date }>(
          'select count(*)::int as count, now() as now from job where app_id = $1::uuid',
          [app.id],
        );
        if (seen!.count >= maxJobs) throw conflict('too_many_jobs', `an app has at most ${maxJobs} jobs`);
        const id = randomUUID();
        const next = body.enabled && schedule !== null ? new Cron(schedule).next(seen!.now) : null;
        const made = await sql.query(
          `insert into job (id, account_id, app_id, name, command, schedule, timeout_seconds, enabled, next_tick)
           values ($1::uuid, $2::uuid, $3::uuid, $4, $5, $6, $7::int, $8::boolean, $9::timestamptz)
           on conflict do nothing returning 1 as made`,
          [
            id,
            app.account_id,
            app.id,
            body.name,
            body.command,
            schedule,
            body.timeout_seconds,
            body.enabled,
            iso(next),
          ],
        );
        if (made.length === 0) throw nameTaken(body.name);
        await start(sql, 'job', id, 'scheduled');
        await sayAct(sql, caller, 'app_jobs_v1_create_job', app, { job_id: id, name: body.name, schedule });
        return { status: 201, body: (await this.read(sql, id))! };
      }),
    );
  }

  /**
   * Changes a job for its next runs; null is "no change", except for `schedule`, which it clears. A new schedule, and
   * one that is enabled again, counts from now.
   * @throws ApiError 404, 409 `name_taken`, 422
   */
  async update(
    caller: KeyIdentity,
    projectId: string | null,
    appId: string,
    id: string,
    body: AppJobUpdateRequest,
  ): Promise<AppJobResponse> {
    const schedule = body.schedule === undefined ? undefined : scheduleOf(body.schedule);
    if (body.command != null) checkCommand(body.command);
    const [record, missed] = await this.store.as(caller.account_id, async ({ db, sql }) => {
      const app = await this.apps.find(db, caller, projectId, appId);
      const { id: jobId } = await this.lock(sql, app, id);
      // What is due by the old schedule is settled by it.
      const late = await settleTicks(sql, jobId, this.settings.jobLateMs);
      const before = (await lockJob(sql, jobId))!;
      const after = {
        name: body.name ?? before.name,
        command: body.command ?? before.command,
        schedule: schedule === undefined ? before.schedule : schedule,
        timeout_seconds: body.timeout_seconds ?? before.timeout_seconds,
        enabled: body.enabled ?? before.enabled,
      };
      if (after.name !== before.name) {
        const taken = await sql.query(
          'select 1 as taken from job where app_id = $1::uuid and name = $2 and id <> $3::uuid',
          [app.id, after.name, jobId],
        );
        if (taken.length > 0) throw nameTaken(after.name);
      }
      await sql.query(
        `update job set name = $2, command = $3, schedule = $4, timeout_seconds = $5::int, enabled = $6::boolean,
           next_tick = $7::timestamptz, updated_at = now()
         where id = $1::uuid`,
        [
          jobId,
          after.name,
          after.command,
          after.schedule,
          after.timeout_seconds,
          after.enabled,
          iso(nextTick(before, after)),
        ],
      );
      await wake(sql, 'job', jobId);
      const changed = Object.keys(after).filter(
        (field) => body[field as keyof AppJobUpdateRequest] !== undefined,
      );
      await sayAct(sql, caller, 'app_jobs_v1_update_job', app, { job_id: jobId, changed });
      return [(await this.read(sql, jobId))!, late] as const;
    });
    this.missed.count(missed);
    return record;
  }

  /** Deletes a job; a run of it that lives is cancelled, the others stay in the list. @throws ApiError 404 */
  async delete(caller: KeyIdentity, projectId: string | null, appId: string, id: string): Promise<void> {
    await this.store.as(caller.account_id, async ({ db, sql }) => {
      const app = await this.apps.find(db, caller, projectId, appId);
      const job = await this.lock(sql, app, id);
      await callOffRuns(sql, job.id);
      await sql.query('delete from job where id = $1::uuid', [job.id]);
      await wake(sql, 'job', job.id);
      await sayAct(sql, caller, 'app_jobs_v1_delete_job', app, { job_id: job.id, name: job.name });
    });
  }

  /**
   * Runs a job now, whether it has a schedule, is enabled or not.
   * @throws ApiError 404, 409 `no_revision`, `static_app`, `run_in_progress` and `account_suspended`
   */
  run(
    caller: KeyIdentity,
    projectId: string | null,
    appId: string,
    id: string,
    idem: IdempotentRequest | null,
  ): Promise<OnceAnswer<AppJobRunResponse>> {
    return this.store.as(caller.account_id, ({ db, sql }) =>
      once(sql, idem, async () => {
        const app = await this.apps.find(db, caller, projectId, appId);
        const job = await this.lock(sql, app, id);
        const begun = await orderRun(sql, job, {
          kind: 'manual',
          triggered_by: `key:${caller.key_id}`,
          scheduled_for: null,
        });
        if ('refused' in begun) throw conflict(begun.refused, refusalWords[begun.refused]);
        await sayAct(sql, caller, 'app_jobs_v1_run_job', app, { job_id: job.id, run_id: begun.id });
        return { status: 202, body: runRecord((await findRun(sql, app.id, begun.id))!) };
      }),
    );
  }

  /** A page of an app's runs, newest first; of one job when it is named. */
  runs(
    caller: KeyIdentity,
    projectId: string | null,
    appId: string,
    jobId: string | null,
    page: PageQuery,
  ): Promise<PageOf<AppJobRunResponse>> {
    return this.store.as(caller.account_id, async ({ db, sql }) => {
      const app = await this.apps.find(db, caller, projectId, appId);
      // What is no id is no job's.
      const job = jobId === null ? null : idOrNull(jobId);
      if (jobId !== null && job === null) return pageOf([], 0, page);
      const where = 'r.app_id = $1::uuid and ($2::uuid is null or r.job_id = $2::uuid)';
      const [all] = await sql.query<{ count: number }>(
        `select count(*)::int as count from job_run r where ${where}`,
        [app.id, job],
      );
      const rows = await sql.query<RunColumns>(
        `select ${runColumns} from job_run r where ${where} order by r.seq desc limit $3::int offset $4::int`,
        [app.id, job, page.limit, page.offset],
      );
      return pageOf(rows.map(runRecord), all!.count, page);
    });
  }

  /** @throws ApiError 404 */
  oneRun(
    caller: KeyIdentity,
    projectId: string | null,
    appId: string,
    id: string,
  ): Promise<AppJobRunResponse> {
    return this.store.as(caller.account_id, async ({ db, sql }) => {
      const app = await this.apps.find(db, caller, projectId, appId);
      const row = await findRun(sql, app.id, pathId(id));
      if (!row) throw notFound();
      return runRecord(row);
    });
  }

  /** @throws ApiError 404 when the app has no such job */
  private async lock(sql: Sql, app: App, id: string): Promise<LockedJob> {
    const job = await lockJob(sql, pathId(id));
    if (!job || job.app_id !== app.id) throw notFound();
    return job;
  }

  private async read(sql: Sql, id: string): Promise<AppJobResponse | null> {
    const [row] = await sql.query<JobColumns>(`select ${jobColumns} from job j where j.id = $1::uuid`, [id]);
    return row ? jobRecord(row, (await lastRuns(sql, [id])).get(id) ?? null) : null;
  }
}

async function findRun(sql: Sql, appId: string, id: string): Promise<RunColumns | null> {
  const [row] = await sql.query<RunColumns>(
    `select ${runColumns} from job_run r where r.id = $1::uuid and r.app_id = $2::uuid`,
    [id, appId],
  );
  return row ?? null;
}

async function lastRuns(sql: Sql, jobs: readonly string[]): Promise<Map<string, RunColumns>> {
  const rows = await sql.query<RunColumns>(
    `select ${runColumns} from unnest($1::uuid[]) as wanted (id)
       join lateral (select * from job_run n where n.job_id = wanted.id order by n.seq desc limit 1) r on true`,
    [jobs],
  );
  return new Map(rows.map((row) => [row.job_id!, row]));
}

/** The next tick after a change: the one that is known, unless the schedule or its being on has changed. */
function nextTick(before: LockedJob, after: Pick<LockedJob, 'schedule' | 'enabled'>): Date | null {
  if (!after.enabled || after.schedule === null) return null;
  if (before.next_tick !== null && after.schedule === before.schedule) return before.next_tick;
  return new Cron(after.schedule).next(before.now);
}

/** A schedule as it is kept; null and empty: by hand only. @throws ApiError 422 */
function scheduleOf(text: string | null): string | null {
  if (text === null || text.trim() === '') return null;
  try {
    new Cron(text);
  } catch (error) {
    if (error instanceof CronError) throw fieldError('schedule', error.message);
    throw error;
  }
  return text;
}

/** @throws ApiError 422 */
function checkCommand(command: string): void {
  if (command.trim() === '') throw fieldError('command', 'must not be blank');
  if (command.includes('\0')) throw fieldError('command', 'must not contain NUL');
}

const nameTaken = (name: string): ApiError =>
  conflict('name_taken', `a job named "${name}" exists in this app`);
