import { Body, Controller, Get, HttpCode, Post } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import { IdField, type ServiceIdentity, StrField } from '@nebo/contracts';
import { CallingService } from '@nebo/service-kit';
import { AddressPool } from './pool.js';

class RangeAdd {
  @IdField({ description: 'Region' })
  region!: string;
  @StrField({ max: 18 })
  range!: string;
}

/** The operator's commands `pool …`. */
@ApiExcludeController()
@Controller('internal/v1/operator')
export class PoolsController {
  constructor(private readonly pool: AddressPool) {}

  @Get('pools')
  list(@CallingService() _caller: ServiceIdentity) {
    return this.pool.list();
  }

  @Post('pools')
  @HttpCode(201)
  add(@CallingService() _caller: ServiceIdentity, @Body() body: RangeAdd) {
    return this.pool.add(body.region, body.range);
  }
}
