import { Body, Controller, Get, Post } from '@nestjs/common';
import { ApiExcludeController } from '@nestjs/swagger';
import { IdField, IntField, StrField } from '@nebo/contracts';
import { CallingService } from '@nebo/service-kit';
import type { ServiceIdentity } from '@nebo/contracts';
import { CatalogueService, type NewImage } from './catalogue.service.js';

class PlanAdd {
  @StrField({
    min: 1,
    max: 63,
    pattern: /^[a-z][a-z0-9-]*$/,
    rule: 'must be lower-case letters, digits and hyphens',
  })
  name!: string;
  @IntField({ min: 1, max: 512 })
  vcpu!: number;
  @IntField({ min: 128, max: 16_777_216 })
  memory_mb!: number;
  @IntField({ min: 1, max: 1_048_576 })
  disk_gb!: number;
  @IntField({ min: 1, max: 1_048_576, optional: true })
  max_disk_gb?: number;
}

class ImageAdd {
  @StrField({ min: 1, max: 63, pattern: /^[a-z][a-z0-9.-]*$/ })
  slug!: string;
  @StrField({ min: 1, max: 63 })
  version!: string;
  @StrField({ min: 1, max: 255 })
  name!: string;
  @StrField({ min: 1, max: 255, pattern: /^[A-Za-z0-9][A-Za-z0-9._-]*$/, rule: 'must be a file name' })
  filename!: string;
  @StrField({ min: 1, max: 63, default: 'linux' })
  os_family: string = 'linux';
  @IntField({ min: 1, max: 1_048_576, default: 1 })
  min_disk_gb: number = 1;
  @StrField({ max: 2_000, nullable: true, optional: true })
  description?: string | null;
  @IdField({ nullable: true, optional: true, description: 'Default: every region' })
  region?: string | null;
}

/** The operator's commands `plan …` and `image …`. */
@ApiExcludeController()
@Controller('internal/v1/operator')
export class OperatorController {
  constructor(private readonly catalogue: CatalogueService) {}

  @Get('plans')
  plans(@CallingService() _caller: ServiceIdentity) {
    return this.catalogue.planRows();
  }

  @Post('plans')
  addPlan(@CallingService() _caller: ServiceIdentity, @Body() body: PlanAdd) {
    return this.catalogue.addPlan({ ...body, max_disk_gb: Math.max(body.max_disk_gb ?? 0, body.disk_gb) });
  }

  @Get('images')
  images(@CallingService() _caller: ServiceIdentity) {
    return this.catalogue.imageRows();
  }

  @Post('images')
  addImage(@CallingService() _caller: ServiceIdentity, @Body() body: ImageAdd) {
    const { region, description, ...fields } = body;
    const image: NewImage = {
      ...fields,
      kind: 'os',
      description: description ?? null,
      region_ids: region == null ? null : [region.toLowerCase()],
    };
    return this.catalogue.addImage(image);
  }
}
