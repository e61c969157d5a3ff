import { Body, Controller, Delete, Get, Param, Patch, Post, Query, Req, Res } from '@nestjs/common';
import {
  appStatuses,
  deployStates,
  type KeyIdentity,
  Operation,
  Page,
  PageQuery,
  StrField,
  V1App,
  V1AppCreate,
  V1AppUpdate,
} from '@nebo/contracts';
import {
  Caller,
  Changes,
  clientGone,
  closeBody,
  Idempotent,
  type IdempotentRequest,
  parseWait,
  pathId,
  unauthorized,
  waitQuery,
  waitUntil,
} from '@nebo/service-kit';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { failedDeployStates } from '../builds/build.mapper.js';
import { AppsService } from './apps.service.js';
import type { Topic } from '../shared/topics.js';

closeBody(V1AppUpdate);

const waitWords = [...appStatuses, ...deployStates];

class AppsQuery extends PageQuery {
  @StrField({ nullable: true, optional: true, description: 'Only this project' })
  project_id?: string | null;
}

@Controller('v1')
export class AppsController {
  constructor(
    private readonly apps: AppsService,
    private readonly changes: Changes<Topic>,
  ) {}

  @Get('projects/:project_id/apps')
  @Operation({
    id: 'apps_list_apps',
    tag: 'apps',
    summary: 'List the apps of a project',
    permission: 'app:read',
    resource: 'project',
    answer: Page(V1App),
  })
  list(@Caller() caller: KeyIdentity, @Param('project_id') project: string, @Query() page: PageQuery) {
    return this.apps.list(caller, project, page);
  }

  @Get('apps')
  @Operation({
    id: 'apps_list_apps_by_account',
    tag: 'apps',
    summary: 'List the apps that the key may see',
    permission: 'app:read',
    resource: 'list',
    answer: Page(V1App),
  })
  listByAccount(@Caller() caller: KeyIdentity, @Query() page: AppsQuery) {
    return this.apps.list(caller, page.project_id ?? null, page);
  }

  @Post('projects/:project_id/apps')
  @Operation({
    id: 'apps_create_app',
    tag: 'apps',
    summary: 'Create an app',
    permission: 'app:create',
    resource: 'project',
    status: 201,
    body: V1AppCreate,
    answer: V1App,
  })
  async create(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string,
    @Body() body: V1AppCreate,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<V1App> {
    return (await this.apps.create(caller, project, body, idem)).body;
  }

  @Get(['projects/:project_id/apps/:app_id', 'apps/:app_id'])
  @Operation({
    id: 'apps_get_app',
    flatId: 'apps_get_app_by_id',
    tag: 'apps',
    summary: 'Read an app',
    permission: 'app:read',
    resource: 'app',
    answer: V1App,
    query: waitQuery(waitWords),
  })
  get(@Req() request: FastifyRequest, @Res({ passthrough: true }) reply: FastifyReply): Promise<V1App> {
    // The hottest read: parameters of their own would each go through the pipes, which costs more than the mapper.
    const { identity } = request;
    if (identity?.kind !== 'key') throw unauthorized();
    const { project_id, app_id } = request.params as { project_id?: string; app_id: string };
    const look = () => this.apps.get(identity, project_id ?? null, app_id);
    const query = request.query as { wait?: unknown; timeout?: unknown };
    const wait =
      query.wait === undefined && query.timeout === undefined
        ? null
        : parseWait(query.wait, query.timeout, waitWords);
    if (wait === null) return look();
    const bad: readonly (string | null)[] = failedDeployStates;
    return waitUntil(
      this.changes,
      `app:${pathId(app_id)}`,
      wait.ms,
      clientGone(reply),
      look,
      (app) => [app.status, app.deploy_state].includes(wait.state) || bad.includes(app.deploy_state),
    );
  }

  @Patch(['projects/:project_id/apps/:app_id', 'apps/:app_id'])
  @Operation({
    id: 'apps_update_app_route',
    flatId: 'apps_update_app_by_id',
    tag: 'apps',
    summary: 'Change size, number of replicas, image or name',
    permission: 'app:update',
    resource: 'app',
    body: V1AppUpdate,
    answer: V1App,
  })
  update(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') id: string,
    @Body() body: V1AppUpdate,
  ): Promise<V1App> {
    return this.apps.update(caller, project ?? null, id, body);
  }

  @Delete(['projects/:project_id/apps/:app_id', 'apps/:app_id'])
  @Operation({
    id: 'apps_delete_app_route',
    flatId: 'apps_delete_app_by_id',
    tag: 'apps',
    summary: 'Delete an app',
    permission: 'app:delete',
    resource: 'app',
    status: 204,
  })
  async delete(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') id: string,
  ): Promise<void> {
    await this.apps.delete(caller, project ?? null, id);
  }
}
