import { Body, Controller, Delete, Get, Param, Patch, Post, Query } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import {
  type KeyIdentity,
  Operation,
  Page,
  PageQuery,
  PathParams,
  V1Project,
  V1ProjectCreate,
  V1ProjectUpdate,
} from '@nebo/contracts';
import { Caller, Idempotent, type IdempotentRequest } from '@nebo/service-kit';
import { ProjectsService } from './projects.service.js';

const tag = 'projects';

/** `/projects`. */
@Controller('v1')
export class ProjectsController {
  constructor(private readonly projects: ProjectsService) {}

  @Get('projects')
  @Operation({
    id: 'projects_list_projects',
    tag,
    summary: 'Projects of the account that the key may see',
    permission: 'project:read',
    resource: 'list',
    answer: Page(V1Project),
  })
  list(@Caller() caller: KeyIdentity, @Query() page: PageQuery) {
    return this.projects.list(caller, page);
  }

  @Get('projects/:project_id')
  @PathParams('project_id')
  @Operation({
    id: 'projects_get_project',
    tag,
    summary: 'One project',
    permission: 'project:read',
    resource: 'project',
    answer: V1Project,
  })
  get(@Caller() caller: KeyIdentity, @Param('project_id') id: string) {
    return this.projects.get(caller, id);
  }

  @Post('projects')
  @Operation({
    id: 'projects_create_project',
    tag,
    summary: 'Makes a project',
    permission: 'project:create',
    resource: 'account',
    status: 201,
    body: V1ProjectCreate,
    answer: V1Project,
  })
  create(
    @Caller() caller: KeyIdentity,
    @Body() body: V1ProjectCreate,
    @Idempotent() request: IdempotentRequest | null,
  ) {
    return this.projects.create(caller, body, request);
  }

  @Patch('projects/:project_id')
  @PathParams('project_id')
  @Operation({
    id: 'projects_update_project',
    tag,
    summary: 'Changes name, description or emoji of a project; what is absent stays',
    permission: 'project:update',
    resource: 'project',
    body: V1ProjectUpdate,
    answer: V1Project,
  })
  update(@Caller() caller: KeyIdentity, @Param('project_id') id: string, @Body() body: V1ProjectUpdate) {
    return this.projects.update(caller, id, body);
  }

  @Delete('projects/:project_id')
  @PathParams('project_id')
  @Operation({
    id: 'projects_delete_project',
    tag,
    summary: 'Deletes an empty project; 409 while apps or machines are in it',
    permission: 'project:delete',
    resource: 'project',
    status: 204,
  })
  delete(@Caller() caller: KeyIdentity, @Param('project_id') id: string) {
    return this.projects.delete(caller, id);
  }
}

@ApiExcludeController()
@Controller('internal/v1')
export class ProjectsInternalController {
  constructor(private readonly projects: ProjectsService) {}

  @Get('owners/project/:id')
  owner(@Param('id') id: string, @Query('settled') settled?: string) {
    return this.projects.owner(id, settled === 'true');
  }
}
