import { Body, Controller, Get, HttpCode, Param, Post } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import type { ServiceIdentity } from '@nebo/contracts';
import { badRequest, CallingService, notFound } from '@nebo/service-kit';
import { asUuid } from '../database/ids.js';
import { BalanceService } from './balance.service.js';
import { ComputeUsageService } from './compute-usage.service.js';
import {
  CaptureBody,
  ComputeUsageBody,
  RefundBody,
  ReserveBody,
  SpanCloseBody,
  SpanOpenBody,
  VoidBody,
} from './money.dto.js';
import { MoneyService } from './money.service.js';
import { ReconcileService } from './reconcile.service.js';
import { SpansService } from './spans.service.js';

/** Money operations for the other services (docs: libs/contracts/src/internal/money.ts). */
@ApiExcludeController()
@Controller('internal/v1/money')
export class MoneyController {
  constructor(
    private readonly money: MoneyService,
    private readonly spans: SpansService,
    private readonly usage: ComputeUsageService,
    private readonly balance: BalanceService,
    private readonly reconciler: ReconcileService,
  ) {}

  @Post('reserve')
  @HttpCode(200)
  reserve(@CallingService() caller: ServiceIdentity, @Body() body: ReserveBody) {
    sameAccount(caller, body);
    return this.money.reserve(caller.service, body);
  }

  @Post('capture')
  @HttpCode(200)
  capture(@CallingService() caller: ServiceIdentity, @Body() body: CaptureBody) {
    sameAccount(caller, body);
    return this.money.capture(body);
  }

  @Post('void')
  @HttpCode(200)
  void(@CallingService() caller: ServiceIdentity, @Body() body: VoidBody) {
    sameAccount(caller, body);
    return this.money.void(body);
  }

  @Post('refund')
  @HttpCode(200)
  refund(@CallingService() caller: ServiceIdentity, @Body() body: RefundBody) {
    sameAccount(caller, body);
    return this.money.refund(body);
  }

  @Post('span-open')
  @HttpCode(200)
  spanOpen(@CallingService() caller: ServiceIdentity, @Body() body: SpanOpenBody) {
    sameAccount(caller, body);
    return this.spans.open(caller.service, body);
  }

  @Post('span-close')
  @HttpCode(200)
  spanClose(@CallingService() caller: ServiceIdentity, @Body() body: SpanCloseBody) {
    sameAccount(caller, body);
    return this.spans.close(body);
  }

  @Post('compute-usage')
  @HttpCode(200)
  computeUsage(@CallingService() caller: ServiceIdentity, @Body() body: ComputeUsageBody) {
    sameAccount(caller, body);
    return this.usage.charge(caller.service, body);
  }

  @Get('balance/:account_id')
  readBalance(@Param('account_id') id: string) {
    const account = asUuid(id);
    if (!account) throw notFound();
    return this.balance.read(account);
  }

  @Post('reconcile')
  @HttpCode(200)
  reconcile() {
    return this.reconciler.run();
  }
}

/** A call that is signed for one account must not move another one's money. */
export function sameAccount(caller: ServiceIdentity, body: { account_id: string }): void {
  if (caller.account_id !== null && caller.account_id.toLowerCase() !== body.account_id.toLowerCase()) {
    throw badRequest('account_mismatch', 'the call is signed for another account');
  }
}
