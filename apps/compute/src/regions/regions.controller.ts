import { Body, Controller, Get, Param, Post } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import { IntField, RecordField, type RegionCapacity, StrField, type TakeOverRequest } from '@nebo/contracts';
import { OptionalBody } from '@nebo/service-kit';
import { RegionsService } from './regions.service.js';

class RegionCreate {
  @StrField({ min: 1, max: 63, pattern: /^[a-z][a-z0-9-]*$/ })
  name!: string;
}

class TokenBody {
  @StrField({ min: 1, max: 200 })
  token!: string;
}

class CapacityBody implements RegionCapacity {
  @IntField({ min: 0, max: 1_000_000_000 })
  vcpu!: number;
  @IntField({ min: 0, max: 1_000_000_000_000 })
  memory_mb!: number;
  @IntField({ min: 0, max: 1_000_000_000_000 })
  disk_gb!: number;
}

class TakeOverBody implements TakeOverRequest {
  @RecordField(() => CapacityBody, { nullable: true, optional: true })
  capacity?: CapacityBody | null;
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
    return this.regions.listForOperator();
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
  takeOver(@Param('region_id') regionId: string, @Body(new OptionalBody(TakeOverBody)) body: unknown) {
    return this.regions.takeOver(regionId, (body as TakeOverBody).capacity);
  }
}
