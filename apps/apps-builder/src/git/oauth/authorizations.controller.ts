import { Body, Controller, Get, Param, Post } from '@nestjs/common';
import { type KeyIdentity, Operation, V1GitAuthorization, V1GitAuthorizationCreate } from '@nebo/contracts';
import { Caller, Idempotent, type IdempotentRequest } from '@nebo/service-kit';
import { AuthorizationsService } from './authorizations.service.js';

/** Ways of people through a git host, which end in a connection. */
@Controller('v1/git/authorizations')
export class AuthorizationsController {
  constructor(private readonly authorizations: AuthorizationsService) {}

  @Post()
  @Operation({
    id: 'git_create_authorization',
    tag: 'git',
    summary: 'Connect a git host by its OAuth app: an address to open in a browser',
    permission: 'app:create',
    resource: 'account',
    status: 201,
    body: V1GitAuthorizationCreate,
    answer: V1GitAuthorization,
  })
  async create(
    @Caller() caller: KeyIdentity,
    @Body() body: V1GitAuthorizationCreate,
    @Idempotent() idem: IdempotentRequest | null,
  ): Promise<V1GitAuthorization> {
    return (await this.authorizations.create(caller, body, idem)).body;
  }

  @Get(':authorization_id')
  @Operation({
    id: 'git_get_authorization',
    tag: 'git',
    summary: 'How an authorization went',
    permission: 'app:read',
    resource: 'account',
    answer: V1GitAuthorization,
  })
  get(@Caller() caller: KeyIdentity, @Param('authorization_id') id: string): Promise<V1GitAuthorization> {
    return this.authorizations.get(caller, id);
  }
}
