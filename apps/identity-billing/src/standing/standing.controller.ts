import { Controller, Get } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import type { AccountStanding, ServiceIdentity } from '@nebo/contracts';
import { CallingService } from '@nebo/service-kit';
import { StandingService } from './standing.service.js';

/** For services that run something for accounts (docs: libs/contracts/src/internal/standing.ts). */
@ApiExcludeController()
@Controller('internal/v1')
export class StandingController {
  constructor(private readonly standing: StandingService) {}

  @Get('standing')
  list(@CallingService() _caller: ServiceIdentity): Promise<AccountStanding[]> {
    return this.standing.list();
  }
}
