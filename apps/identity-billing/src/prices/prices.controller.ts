import { Body, Controller, Get, Put, Query } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import { ListField, type PricesSetRequest, type ServiceIdentity, StrField } from '@nebo/contracts';
import { CallingService } from '@nebo/service-kit';
import { PricesService } from './prices.service.js';

class PriceBody {
  @StrField({ min: 1, max: 200, pattern: /^[a-z0-9][a-z0-9._-]*$/ })
  id!: string;
  @StrField({ pattern: /^\d{1,18}$/ })
  amount!: string;
  @StrField({ min: 1, max: 40 })
  unit!: string;
}

class PricesBody implements PricesSetRequest {
  @ListField(() => PriceBody, { maxItems: 1_000 })
  prices!: PriceBody[];
}

class PricesQuery {
  @StrField({ optional: true, max: 200 })
  prefix?: string;
}

@ApiExcludeController()
@Controller('internal/v1')
export class PricesController {
  constructor(private readonly prices: PricesService) {}

  @Get('prices')
  list(@Query() query: PricesQuery) {
    return this.prices.list(query.prefix);
  }

  @Put('prices')
  set(@CallingService() caller: ServiceIdentity, @Body() body: PricesBody) {
    return this.prices.set(body, `service:${caller.service}`);
  }

  @Get('tariff-plans')
  plans() {
    return this.prices.tariffPlans();
  }
}
