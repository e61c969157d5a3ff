import { Body, Controller, Get, Param, Post } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import { StrField } from '@nebo/contracts';
import { RegionsService } from './regions.service.js';

class RegionCreate {
  @StrField({ min: 1, max: 63, pattern: /^[a-z][a-z0-9-]*$/ })
  name!: string;
}

class TokenBody {
  @StrField({ min: 1, max: 200 })
  token!: string;
}

/** Internal operations on regions (docs: libs/contracts/src/internal/regions.ts). */
@ApiExcludeController()
@Controller('internal/v1')
export class RegionsController {
  constructor(private readonly regions: RegionsService) {}

  @Get('regions')
  list() {
    return this.regions.list();
  }

  @Get('operator/regions')
  listForOperator() {
    return this.regions.list();
  }

  @Post('operator/regions')
  add(@Body() body: RegionCreate) {
    return this.regions.add(body.name);
  }

  @Post('operator/regions/:region_id/token')
  mintToken(@Param('region_id') regionId: string) {
    return this.regions.mintToken(regionId);
  }

  @Post('agents/resolve')
  resolve(@Body() body: TokenBody) {
    return this.regions.resolve(body.token);
  }

  @Post('agents/:region_id/take-over')
  takeOver(@Param('region_id') regionId: string) {
    return this.regions.takeOver(regionId);
  }
}
