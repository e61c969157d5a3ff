import type { Readable } from 'node:stream';
import { Body, Controller, Get, Headers, Param, Post, Query, Req, Res } from '@nestjs/common';
import {
  buildStatuses,
  deployStates,
  type KeyIdentity,
  Operation,
  Page,
  PageQuery,
  V1AppDeployResult,
  V1Build,
  V1DeployRequest,
} from '@nebo/contracts';
import {
  Caller,
  Changes,
  clientGone,
  Idempotent,
  type IdempotentRequest,
  OptionalBody,
  parseWait,
  pathId,
  waitQuery,
  waitUntil,
} from '@nebo/service-kit';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { lastEventId, sendEvents } from '../shared/sse.js';
import { BuildLog } from './build-log.js';
import { isOver } from './build.mapper.js';
import { BuildsService } from './builds.service.js';
import { readHeard } from './deploy-events.js';
import { DeployStatus } from './deploy-status.js';
import { UploadsService } from './uploads.service.js';
import type { Topic } from '../shared/topics.js';

const waitWords = [...buildStatuses, ...deployStates];
const paths = (tail: string) => [`projects/:project_id/apps/:app_id/${tail}`, `apps/:app_id/${tail}`];

@Controller('v1')
export class BuildsController {
  constructor(
    private readonly builds: BuildsService,
    private readonly uploads: UploadsService,
    private readonly log: BuildLog,
    private readonly status: DeployStatus,
    private readonly changes: Changes<Topic>,
  ) {}

  @Post(paths('deployments'))
  @Operation({
    id: 'apps_create_deployment',
    flatId: 'apps_create_deployment_by_id',
    tag: 'apps',
    summary: 'Deploy a folder: a gzip-compressed tar of it',
    permission: 'app:update',
    resource: 'app',
    status: 202,
    upload: 'application/gzip',
    answer: V1AppDeployResult,
  })
  async upload(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') app: string,
    @Req() request: FastifyRequest,
  ): Promise<V1AppDeployResult> {
    const { method, url, headers } = request;
    const body = request.body as Readable | undefined;
    return (
      await this.uploads.deploy(caller, project ?? null, app, body, {
        method,
        url,
        idempotencyKey: headers['idempotency-key'],
      })
    ).body;
  }

  @Post(paths('deploy'))
  @Operation({
    id: 'apps_deploy_app',
    flatId: 'apps_deploy_app_by_id',
    tag: 'apps',
    summary: 'Build and deploy the newest source',
    permission: 'app:update',
    resource: 'app',
    body: V1DeployRequest,
    bodyOptional: true,
    answer: V1AppDeployResult,
  })
  async deploy(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') app: string,
    @Body(new OptionalBody(V1DeployRequest)) body: unknown,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<V1AppDeployResult> {
    return (await this.builds.deploy(caller, project ?? null, app, body as V1DeployRequest, idem)).body;
  }

  @Get(paths('builds'))
  @Operation({
    id: 'apps_list_builds',
    flatId: 'apps_list_builds_by_id',
    tag: 'apps',
    summary: 'Builds, newest first',
    permission: 'app:read',
    resource: 'app',
    answer: Page(V1Build),
  })
  list(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') app: string,
    @Query() page: PageQuery,
  ) {
    return this.builds.list(caller, project ?? null, app, page);
  }

  @Get(paths('builds/:build_id'))
  @Operation({
    id: 'apps_get_build',
    flatId: 'apps_get_build_by_id',
    tag: 'apps',
    summary: 'Read a build',
    permission: 'app:read',
    resource: 'app',
    answer: V1Build,
    query: waitQuery(waitWords),
  })
  get(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') app: string,
    @Param('build_id') id: string,
    @Query('wait') state: string | undefined,
    @Query('timeout') timeout: string | undefined,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<V1Build> {
    const look = () => this.builds.get(caller, project ?? null, app, id);
    const wait = parseWait(state, timeout, waitWords);
    if (wait === null) return look();
    return waitUntil(
      this.changes,
      `app:${pathId(app)}`,
      wait.ms,
      clientGone(reply),
      look,
      (build) =>
        [build.status, build.deploy_state].includes(wait.state) ||
        isOver({ status: build.status, deploy_state: build.deploy_state }),
    );
  }

  @Post(paths('builds/:build_id/rebuild'))
  @Operation({
    id: 'apps_rebuild_build',
    flatId: 'apps_rebuild_build_by_id',
    tag: 'apps',
    summary: 'Build the same source again',
    permission: 'app:update',
    resource: 'app',
    answer: V1AppDeployResult,
  })
  async rebuild(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') app: string,
    @Param('build_id') id: string,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<V1AppDeployResult> {
    return (await this.builds.rebuild(caller, project ?? null, app, id, idem)).body;
  }

  @Post(paths('builds/:build_id/rollback'))
  @Operation({
    id: 'apps_rollback_build',
    flatId: 'apps_rollback_build_by_id',
    tag: 'apps',
    summary: 'Serve an earlier build again, without building',
    permission: 'app:update',
    resource: 'app',
    answer: V1AppDeployResult,
  })
  async rollback(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') app: string,
    @Param('build_id') id: string,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<V1AppDeployResult> {
    return (await this.builds.rollback(caller, project ?? null, app, id, idem)).body;
  }

  @Post(paths('builds/:build_id/cancel'))
  @Operation({
    id: 'apps_cancel_build',
    flatId: 'apps_cancel_build_by_id',
    tag: 'apps',
    summary: 'Stop a build',
    permission: 'app:update',
    resource: 'app',
    answer: V1Build,
  })
  async cancel(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') app: string,
    @Param('build_id') id: string,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<V1Build> {
    return (await this.builds.cancel(caller, project ?? null, app, id, idem)).body;
  }

  @Get(paths('builds/:build_id/logs'))
  @Operation({
    id: 'apps_stream_build_logs',
    flatId: 'apps_stream_build_logs_by_id',
    tag: 'apps',
    summary: 'Build log: one data event a line, then done',
    permission: 'app:read',
    resource: 'app',
    stream: true,
  })
  async logs(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') app: string,
    @Param('build_id') id: string,
    @Headers('last-event-id') last: string | undefined,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    sendEvents(
      reply,
      await this.log.open(caller, project ?? null, app, id, lastEventId(last), clientGone(reply)),
    );
  }

  @Get(paths('events'))
  @Operation({
    id: 'apps_stream_deploy_events',
    flatId: 'apps_stream_deploy_events_by_id',
    tag: 'apps',
    summary: 'Deploy status of a build, until it is live or failed',
    permission: 'app:read',
    resource: 'app',
    stream: true,
    query: [
      {
        name: 'build_id',
        required: false,
        schema: { type: 'string' },
        description: 'The newest build when absent',
      },
    ],
  })
  async events(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') app: string,
    @Query('build_id') build: string | undefined,
    @Headers('last-event-id') heard: string | undefined,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    sendEvents(
      reply,
      await this.status.open(
        caller,
        project ?? null,
        app,
        build === undefined ? null : String(build),
        readHeard(heard),
        clientGone(reply),
      ),
    );
  }
}
