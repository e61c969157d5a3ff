import { BoolField, IntField, RecordField, StrField, TimeField } from '../fields.js';

/** Names of jobs (contract file 1). */
const jobName = /^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/;
const jobNameRule =
  'name must be 1 to 100 letters, digits, dots, dashes or underscores and begin with a letter or digit';

/** Words of `AppJobRunResponse.status`; `queued` and `running` are the only ones that change. */
export const jobRunStatuses = [
  'queued',
  'running',
  'success',
  'error',
  'timeout',
  'cancelled',
  'missed',
] as const;
/** Words of `AppJobRunResponse.kind`: what began it. */
export const jobRunKinds = ['scheduled', 'manual', 'predeploy'] as const;

/** One run of a job, or a tick that led to none. */
export class AppJobRunResponse {
  @StrField()
  id!: string;
  @StrField()
  app_id!: string;
  @StrField({ nullable: true, description: 'Null when the job is deleted, and for the command of a deploy' })
  job_id!: string | null;
  @StrField({ nullable: true, description: 'Build that the command ran in' })
  build_id!: string | null;
  @StrField({
    description: 'scheduled, manual, or predeploy (the command of a deploy, which belongs to no job)',
  })
  kind!: string;
  @StrField()
  command!: string;
  @StrField({ description: 'queued, running, success, error, timeout, cancelled or missed' })
  status!: string;
  @IntField({ nullable: true })
  exit_code!: number | null;
  @TimeField({ nullable: true })
  started_at!: string | null;
  @TimeField({ nullable: true })
  finished_at!: string | null;
  @TimeField({ nullable: true })
  created_at!: string | null;
  @TimeField({ nullable: true, description: 'Tick of the schedule; null for a run by hand' })
  scheduled_for!: string | null;
  @IntField({ nullable: true })
  duration_ms!: number | null;
  @StrField({ nullable: true, description: 'First and last lines of the log' })
  log_tail!: string | null;
  @StrField({ nullable: true, description: 'Why it is no success' })
  error!: string | null;
  @StrField({ nullable: true, description: 'schedule, or key:<id>' })
  triggered_by!: string | null;
}

/** A command that runs in an app's current version, by a schedule or by hand. */
export class AppJobResponse {
  @StrField()
  id!: string;
  @StrField()
  app_id!: string;
  @StrField()
  name!: string;
  @StrField()
  command!: string;
  @StrField({ nullable: true })
  schedule!: string | null;
  @IntField()
  timeout_seconds!: number;
  @BoolField()
  enabled!: boolean;
  @TimeField({ nullable: true })
  created_at!: string | null;
  @TimeField({ nullable: true })
  updated_at!: string | null;
  @RecordField(() => AppJobRunResponse, { nullable: true, optional: true })
  last_run!: AppJobRunResponse | null;
}

/** Body to create a job. */
export class AppJobCreateRequest {
  @StrField({ pattern: jobName, rule: jobNameRule })
  name!: string;
  @StrField({ min: 1, max: 8_000 })
  command!: string;
  @StrField({
    nullable: true,
    optional: true,
    max: 256,
    description: 'Cron expression of five fields in UTC; without one it is run by hand only',
  })
  schedule?: string | null;
  @IntField({ default: 900, min: 10, max: 3600 })
  timeout_seconds: number = 900;
  @BoolField({ default: true })
  enabled: boolean = true;
}

/** Body to change a job. Null is "no change", except for `schedule`, which it clears. */
export class AppJobUpdateRequest {
  @StrField({ nullable: true, optional: true, pattern: jobName, rule: jobNameRule })
  name?: string | null;
  @StrField({ nullable: true, optional: true, min: 1, max: 8_000 })
  command?: string | null;
  @StrField({ nullable: true, optional: true, max: 256 })
  schedule?: string | null;
  @IntField({ nullable: true, optional: true, min: 10, max: 3600 })
  timeout_seconds?: number | null;
  @BoolField({ nullable: true, optional: true })
  enabled?: boolean | null;
}
