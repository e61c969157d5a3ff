import { Body, Controller, Delete, Get, Param, Post, Query } from '@nestjs/common';
import { type KeyIdentity, Operation, Page, PageQuery, V1SshKey, V1SshKeyCreate } from '@nebo/contracts';
import { Caller, Idempotent, type IdempotentRequest } from '@nebo/service-kit';
import { SshKeysService } from './ssh-keys.service.js';

@Controller('v1/ssh-keys')
export class SshKeysController {
  constructor(private readonly keys: SshKeysService) {}

  @Get()
  @Operation({
    id: 'ssh_keys_list_ssh_keys',
    tag: 'ssh-keys',
    summary: 'List the SSH keys of the account',
    permission: 'ssh_key:read',
    resource: 'list',
    answer: Page(V1SshKey),
  })
  list(@Caller() caller: KeyIdentity, @Query() page: PageQuery) {
    return this.keys.list(caller, page);
  }

  @Post()
  @Operation({
    id: 'ssh_keys_create_ssh_key',
    tag: 'ssh-keys',
    summary: 'Add an SSH key',
    permission: 'ssh_key:write',
    resource: 'account',
    status: 201,
    body: V1SshKeyCreate,
    answer: V1SshKey,
  })
  async create(
    @Caller() caller: KeyIdentity,
    @Body() body: V1SshKeyCreate,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<V1SshKey> {
    return (await this.keys.create(caller, body, idem)).body;
  }

  @Get(':key_id')
  @Operation({
    id: 'ssh_keys_get_ssh_key',
    tag: 'ssh-keys',
    summary: 'Read an SSH key',
    permission: 'ssh_key:read',
    resource: 'ssh_key',
    answer: V1SshKey,
  })
  get(@Caller() caller: KeyIdentity, @Param('key_id') id: string): Promise<V1SshKey> {
    return this.keys.get(caller, id);
  }

  @Delete(':key_id')
  @Operation({
    id: 'ssh_keys_delete_ssh_key',
    tag: 'ssh-keys',
    summary: 'Delete an SSH key; machines that have it keep it',
    permission: 'ssh_key:write',
    resource: 'ssh_key',
    status: 204,
  })
  async delete(@Caller() caller: KeyIdentity, @Param('key_id') id: string): Promise<void> {
    await this.keys.delete(caller, id);
  }
}
