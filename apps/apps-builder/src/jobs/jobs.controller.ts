import { Body, Controller, Delete, Get, Param, Patch, Post, Query } from '@nestjs/common';
import {
  AppJobCreateRequest,
  AppJobResponse,
  AppJobRunResponse,
  AppJobUpdateRequest,
  type KeyIdentity,
  Operation,
  Page,
  PageQuery,
} from '@nebo/contracts';
import { Caller, Idempotent, type IdempotentRequest, readBody } from '@nebo/service-kit';
import { JobsService } from './jobs.service.js';

const paths = (tail: string) => [`projects/:project_id/apps/:app_id/${tail}`, `apps/:app_id/${tail}`];

/** The contract tags the two addressings differently. */
const common = { tag: 'app-jobs', flatTag: 'apps', resource: 'app' } as const;

@Controller('v1')
export class JobsController {
  constructor(private readonly jobs: JobsService) {}

  @Get(paths('jobs'))
  @Operation({
    ...common,
    id: 'app_jobs_v1_list_jobs',
    flatId: 'apps_list_jobs_by_id',
    summary: 'List jobs, each with its newest run',
    permission: 'app:read',
    answer: Page(AppJobResponse),
  })
  list(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') app: string,
    @Query() page: PageQuery,
  ) {
    return this.jobs.list(caller, project ?? null, app, page);
  }

  @Post(paths('jobs'))
  @Operation({
    ...common,
    id: 'app_jobs_v1_create_job',
    flatId: 'apps_create_job_by_id',
    summary: 'Create a job',
    permission: 'app:update',
    status: 201,
    body: AppJobCreateRequest,
    answer: AppJobResponse,
  })
  async create(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') app: string,
    @Body() body: AppJobCreateRequest,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<AppJobResponse> {
    return (await this.jobs.create(caller, project ?? null, app, body, idem)).body;
  }

  @Get(paths('jobs/:job_id'))
  @Operation({
    ...common,
    id: 'app_jobs_v1_get_job',
    flatId: 'apps_get_job_by_id',
    summary: 'Read a job',
    permission: 'app:read',
    answer: AppJobResponse,
  })
  get(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') app: string,
    @Param('job_id') id: string,
  ): Promise<AppJobResponse> {
    return this.jobs.get(caller, project ?? null, app, id);
  }

  @Patch(paths('jobs/:job_id'))
  @Operation({
    ...common,
    id: 'app_jobs_v1_update_job',
    flatId: 'apps_update_job_by_id',
    summary: 'Change a job, for its next runs',
    permission: 'app:update',
    body: AppJobUpdateRequest,
    answer: AppJobResponse,
  })
  async update(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') app: string,
    @Param('job_id') id: string,
    @Body() raw: unknown,
  ): Promise<AppJobResponse> {
    await this.jobs.get(caller, project ?? null, app, id);
    return this.jobs.update(caller, project ?? null, app, id, await readBody(AppJobUpdateRequest, raw));
  }

  @Delete(paths('jobs/:job_id'))
  @Operation({
    ...common,
    id: 'app_jobs_v1_delete_job',
    flatId: 'apps_delete_job_by_id',
    summary: 'Delete a job; its runs stay listed',
    permission: 'app:update',
    status: 204,
  })
  async delete(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') app: string,
    @Param('job_id') id: string,
  ): Promise<void> {
    await this.jobs.delete(caller, project ?? null, app, id);
  }

  @Post(paths('jobs/:job_id/run'))
  @Operation({
    ...common,
    id: 'app_jobs_v1_run_job',
    flatId: 'apps_run_job_by_id',
    summary: 'Run a job now',
    permission: 'app:update',
    status: 202,
    answer: AppJobRunResponse,
  })
  async run(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') app: string,
    @Param('job_id') id: string,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<AppJobRunResponse> {
    return (await this.jobs.run(caller, project ?? null, app, id, idem)).body;
  }

  @Get(paths('job-runs'))
  @Operation({
    ...common,
    id: 'app_jobs_v1_list_runs',
    flatId: 'apps_list_runs_by_id',
    summary: 'Runs of jobs and missed ticks, newest first',
    permission: 'app:read',
    answer: Page(AppJobRunResponse),
    query: [
      {
        name: 'job_id',
        required: false,
        schema: { type: 'string', nullable: true },
        description: 'Of this job',
      },
    ],
  })
  runs(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') app: string,
    @Query('job_id') job: unknown,
    @Query() page: PageQuery,
  ) {
    return this.jobs.runs(caller, project ?? null, app, job === undefined ? null : String(job), page);
  }

  @Get(paths('job-runs/:run_id'))
  @Operation({
    ...common,
    id: 'app_jobs_v1_get_run',
    flatId: 'apps_get_run_by_id',
    summary: 'Read a run',
    permission: 'app:read',
    answer: AppJobRunResponse,
  })
  oneRun(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') app: string,
    @Param('run_id') id: string,
  ): Promise<AppJobRunResponse> {
    return this.jobs.oneRun(caller, project ?? null, app, id);
  }
}
