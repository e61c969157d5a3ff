import { Controller, Get, Query } from '@nestjs/common';
import { type KeyIdentity, Operation, Page, PageQuery, V1Balance, V1LedgerEntry } from '@nebo/contracts';
import { Caller } from '@nebo/service-kit';
import { BalanceService } from './balance.service.js';

/** What a key may see of its account's money. */
@Controller('v1')
export class LedgerController {
  constructor(private readonly balances: BalanceService) {}

  @Get('account/balance')
  @Operation({
    id: 'account_get_balance',
    tag: 'account',
    summary: 'Balance as billing sees it now; 503 when it cannot be read',
    permission: 'billing:read',
    resource: 'account',
    answer: V1Balance,
  })
  balance(@Caller() caller: KeyIdentity) {
    return this.balances.read(caller.account_id);
  }

  @Get('account/ledger')
  @Operation({
    id: 'account_list_ledger',
    tag: 'account',
    summary: 'Postings of the account, newest first',
    permission: 'billing:read',
    resource: 'account',
    answer: Page(V1LedgerEntry),
  })
  ledger(@Caller() caller: KeyIdentity, @Query() page: PageQuery) {
    return this.balances.ledger(caller.account_id, page);
  }
}
