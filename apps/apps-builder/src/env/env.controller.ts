import { Body, Controller, Delete, Get, Param, Post, Query } from '@nestjs/common';
import { type KeyIdentity, Operation, Page, PageQuery, V1EnvVar, V1EnvVarCreate } from '@nebo/contracts';
import { Caller, Idempotent, type IdempotentRequest } from '@nebo/service-kit';
import { EnvService } from './env.service.js';

const paths = ['projects/:project_id/apps/:app_id/env', 'apps/:app_id/env'];

@Controller('v1')
export class EnvController {
  constructor(private readonly env: EnvService) {}

  @Get(paths)
  @Operation({
    id: 'apps_list_env_vars',
    flatId: 'apps_list_env_vars_by_id',
    tag: 'apps',
    summary: 'List environment variables; secrets are masked',
    permission: 'app:read',
    resource: 'app',
    answer: Page(V1EnvVar),
  })
  list(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') app: string,
    @Query() page: PageQuery,
  ) {
    return this.env.list(caller, project ?? null, app, page);
  }

  @Post(paths)
  @Operation({
    id: 'apps_add_env_var',
    flatId: 'apps_add_env_var_by_id',
    tag: 'apps',
    summary: 'Create or set an environment variable',
    permission: 'app:update',
    resource: 'app',
    status: 201,
    body: V1EnvVarCreate,
    answer: V1EnvVar,
  })
  async set(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') app: string,
    @Body() body: V1EnvVarCreate,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<V1EnvVar> {
    return (await this.env.set(caller, project ?? null, app, body, idem)).body;
  }

  @Delete(paths.map((path) => `${path}/:env_var_id`))
  @Operation({
    id: 'apps_delete_env_var_route',
    flatId: 'apps_delete_env_var_by_id',
    tag: 'apps',
    summary: 'Delete an environment variable',
    permission: 'app:update',
    resource: 'app',
    status: 204,
  })
  async delete(
    @Caller() caller: KeyIdentity,
    @Param('project_id') project: string | undefined,
    @Param('app_id') app: string,
    @Param('env_var_id') id: string,
  ): Promise<void> {
    await this.env.delete(caller, project ?? null, app, id);
  }
}
