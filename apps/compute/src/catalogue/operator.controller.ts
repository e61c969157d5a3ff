import { Body, Controller, Get, Post, Query, Req } from '@nestjs/common';
import { RouteConfig } from '@nestjs/platform-fastify';
import { ApiExcludeController } from '@nestjs/swagger';
import { IdField, IntField, StrField } from '@nebo/contracts';
import { CallingService } from '@nebo/service-kit';
import type { ServiceIdentity } from '@nebo/contracts';
import type { FastifyRequest } from 'fastify';
import { CatalogueService } from './catalogue.service.js';
import { ImagesService } from './images.service.js';

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
  @StrField({
    pattern: /^[0-9a-f]{64}$/,
    rule: 'must be the hash of a stored file: 64 lower-case hex digits',
  })
  sha256!: string;
  @StrField({ min: 1, max: 63, default: 'linux' })
  os_family: string = 'linux';
  @IntField({ min: 1, max: 1_048_576, optional: true, description: 'Default: what its bytes need' })
  min_disk_gb?: number;
  @StrField({ max: 2_000, nullable: true, optional: true })
  description?: string | null;
  @IdField({ nullable: true, optional: true, description: 'Default: every region' })
  region?: string | null;
}

class ImageId {
  @IdField()
  image!: string;
}

class FileQuery {
  @StrField({ optional: true, pattern: /^[0-9a-f]{64}$/, rule: 'must be 64 lower-case hex digits' })
  sha256?: string;
}

/** The operator's commands `plan …` and `image …`. */
@ApiExcludeController()
@Controller('internal/v1/operator')
export class OperatorController {
  constructor(
    private readonly catalogue: CatalogueService,
    private readonly images: ImagesService,
  ) {}

  @Get('plans')
  plans(@CallingService() _caller: ServiceIdentity) {
    return this.catalogue.planRows();
  }

  @Post('plans')
  addPlan(@CallingService() _caller: ServiceIdentity, @Body() body: PlanAdd) {
    return this.catalogue.addPlan({ ...body, max_disk_gb: Math.max(body.max_disk_gb ?? 0, body.disk_gb) });
  }

  @Get('images')
  listImages(@CallingService() _caller: ServiceIdentity) {
    return this.catalogue.imageRows();
  }

  /** The bytes of an image, which `POST images` then names. */
  @Post('image-files')
  @RouteConfig({ upload: 'application/octet-stream' })
  storeFile(
    @CallingService() _caller: ServiceIdentity,
    @Query() { sha256 }: FileQuery,
    @Req() request: FastifyRequest,
  ) {
    return this.images.store(request, sha256 ?? null);
  }

  @Post('images')
  addImage(@CallingService() _caller: ServiceIdentity, @Body() body: ImageAdd) {
    const { region, description, sha256, min_disk_gb, ...fields } = body;
    return this.images.add(sha256, {
      ...fields,
      description: description ?? null,
      min_disk_gb: min_disk_gb ?? null,
      region_ids: region == null ? null : [region.toLowerCase()],
    });
  }

  @Post('images/withdraw')
  withdrawImage(@CallingService() _caller: ServiceIdentity, @Body() { image }: ImageId) {
    return this.images.withdraw(image);
  }
}
