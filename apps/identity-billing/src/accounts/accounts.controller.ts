import { Controller, Get, Param } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import { type KeyIdentity, Operation, WhoAmIResponse } from '@nebo/contracts';
import { Caller } from '@nebo/service-kit';
import { AccountsService } from './accounts.service.js';

/** `GET /account`. */
@Controller('v1')
export class AccountsController {
  /** The identity that the gateway signed is the live one (at most 5 s old): nothing is read. */
  @Get('account')
  @Operation({
    id: 'account_whoami',
    tag: 'account',
    summary: 'Account, key id and policy of the calling key',
    permission: [],
    resource: 'key',
    answer: WhoAmIResponse,
  })
  whoami(@Caller() caller: KeyIdentity): WhoAmIResponse {
    return {
      account_id: caller.account_id,
      key_id: caller.key_id,
      policy: caller.policy,
      project_ids: caller.project_ids,
    };
  }
}

@ApiExcludeController()
@Controller('internal/v1')
export class AccountsInternalController {
  constructor(private readonly accounts: AccountsService) {}

  @Get('accounts/:account_id')
  get(@Param('account_id') id: string) {
    return this.accounts.get(id);
  }
}
