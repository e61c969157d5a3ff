import { Body, Controller, Get, HttpCode, Post, Query } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import type { ServiceIdentity, SliceSettleAnswer } from '@nebo/contracts';
import { CallingService, fieldError } from '@nebo/service-kit';
import { operatorActor } from '../audit/audit.service.js';
import { asUuid } from '../database/ids.js';
import { sameAccount } from '../ledger/money.controller.js';
import { SettleService } from './settle.service.js';
import {
  SliceBody,
  SliceListQuery,
  SliceOpenBody,
  SliceRenewBody,
  SliceReturnBody,
  SliceTakeBody,
} from './slices.dto.js';
import { SlicesOperations } from './slices.operations.js';
import { SlicesService } from './slices.service.js';

const maxSettlements = 500;

/** Slices of money for routers of inference (contract: libs/contracts/src/internal/slices.ts). */
@ApiExcludeController()
@Controller('internal/v1/slices')
export class SlicesController {
  constructor(
    private readonly slices: SlicesService,
    private readonly settlements: SettleService,
  ) {}

  @Post('open')
  @HttpCode(200)
  open(@Body() body: SliceOpenBody) {
    return this.slices.open(body.router_id);
  }

  @Post('take')
  @HttpCode(200)
  take(@CallingService() caller: ServiceIdentity, @Body() body: SliceTakeBody) {
    sameAccount(caller, body);
    if (BigInt(body.want) < BigInt(body.need)) throw fieldError('want', 'must be at least need');
    if (body.key && BigInt(body.key.want) < BigInt(body.key.need))
      throw fieldError('key.want', 'must be at least need');
    return this.slices.take(body);
  }

  @Post('renew')
  @HttpCode(200)
  renew(@Body() body: SliceRenewBody) {
    return this.slices.renew(body);
  }

  @Post('return')
  @HttpCode(200)
  giveBack(@Body() body: SliceReturnBody) {
    return this.slices.giveBack(body);
  }

  /** The body has no class: one wrong settlement must not refuse the others. */
  @Post('settle')
  @HttpCode(200)
  settle(@CallingService() caller: ServiceIdentity, @Body() body: unknown): Promise<SliceSettleAnswer> {
    const { router_id: router, settlements } = (body ?? {}) as Record<string, unknown>;
    const routerId = typeof router === 'string' ? asUuid(router) : null;
    if (routerId === null) throw fieldError('router_id', 'must be a UUID');
    if (!Array.isArray(settlements) || settlements.length > maxSettlements)
      throw fieldError('settlements', `must be a list of at most ${maxSettlements}`);
    return this.settlements.settle(caller.service, routerId, settlements);
  }
}

/** The operator's side of slices. */
@ApiExcludeController()
@Controller('internal/v1/operator')
export class SlicesOperatorController {
  constructor(private readonly operations: SlicesOperations) {}

  @Get('slices')
  async list(@Query() query: SliceListQuery) {
    return { data: await this.operations.list(query.account ?? null) };
  }

  @Post('slice-write-off')
  @HttpCode(200)
  writeOff(@Body() body: SliceBody) {
    return this.operations.writeOff(body.slice, operatorActor);
  }
}
