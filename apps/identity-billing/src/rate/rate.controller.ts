import { Body, Controller, HttpCode, Post } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import { IntField, type RateLeaseAnswer, type RateLeaseRequest, StrField } from '@nebo/contracts';
import { RateService } from './rate.service.js';

class LeaseBody implements RateLeaseRequest {
  @StrField({ min: 1, max: 100 })
  key_id!: string;
  @IntField({ min: 0, max: 100_000_000_000 })
  window_start!: number;
  @IntField({ min: 1, max: 1_000_000, optional: true })
  seconds?: number;
  @IntField({ min: 0, max: 1_000_000_000 })
  quota!: number;
  @IntField({ min: 1, max: 1_000_000_000 })
  want!: number;
}

@ApiExcludeController()
@Controller('internal/v1')
export class RateController {
  constructor(private readonly rate: RateService) {}

  @Post('rate/lease')
  @HttpCode(200)
  async lease(@Body() body: LeaseBody): Promise<RateLeaseAnswer> {
    return { granted: await this.rate.lease(body) };
  }
}
