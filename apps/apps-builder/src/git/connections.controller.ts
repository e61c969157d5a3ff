import { Body, Controller, Delete, Get, Param, Post, Query } from '@nestjs/common';
import {
  type KeyIdentity,
  Operation,
  Page,
  PageQuery,
  V1GitConnection,
  V1GitConnectionCreate,
  V1GitRepository,
} from '@nebo/contracts';
import { Caller, Idempotent, type IdempotentRequest } from '@nebo/service-kit';
import { ConnectionsService } from './connections.service.js';

/** A connection opens all repositories of its token, so it belongs to the account as a whole. */
@Controller('v1/git/connections')
export class ConnectionsController {
  constructor(private readonly connections: ConnectionsService) {}

  @Get()
  @Operation({
    id: 'git_list_connections',
    tag: 'git',
    summary: 'Connected git hosts',
    permission: 'app:read',
    resource: 'account',
    answer: Page(V1GitConnection),
  })
  list(@Caller() caller: KeyIdentity, @Query() page: PageQuery) {
    return this.connections.list(caller, page);
  }

  @Post()
  @Operation({
    id: 'git_create_connection',
    tag: 'git',
    summary: 'Connect a git host by a token, or renew its token',
    permission: 'app:create',
    resource: 'account',
    status: 201,
    body: V1GitConnectionCreate,
    answer: V1GitConnection,
  })
  async create(
    @Caller() caller: KeyIdentity,
    @Body() body: V1GitConnectionCreate,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<V1GitConnection> {
    return (await this.connections.create(caller, body, idem)).body;
  }

  @Get(':connection_id')
  @Operation({
    id: 'git_get_connection',
    tag: 'git',
    summary: 'Read a connection',
    permission: 'app:read',
    resource: 'account',
    answer: V1GitConnection,
  })
  get(@Caller() caller: KeyIdentity, @Param('connection_id') id: string): Promise<V1GitConnection> {
    return this.connections.get(caller, id);
  }

  @Delete(':connection_id')
  @Operation({
    id: 'git_delete_connection',
    tag: 'git',
    summary: 'Forget a connection and its token',
    permission: 'app:delete',
    resource: 'account',
    status: 204,
  })
  async delete(@Caller() caller: KeyIdentity, @Param('connection_id') id: string): Promise<void> {
    await this.connections.delete(caller, id);
  }

  @Get(':connection_id/repositories')
  @Operation({
    id: 'git_list_repositories',
    tag: 'git',
    summary: 'Repositories that a connection reaches',
    permission: 'app:read',
    resource: 'account',
    answer: Page(V1GitRepository),
  })
  repositories(@Caller() caller: KeyIdentity, @Param('connection_id') id: string, @Query() page: PageQuery) {
    return this.connections.repositories(caller, id, page);
  }
}
