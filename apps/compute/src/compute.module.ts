import { Module } from '@nestjs/common';
import type { ServiceDefinition } from '@nebo/service-kit';
import { RegionsController } from './regions/regions.controller.js';
import { RegionsService } from './regions/regions.service.js';

/** Regions and their agents; machines, images and backups come with their issue. */
@Module({ controllers: [RegionsController], providers: [RegionsService] })
export class ComputeModule {}

export const compute: ServiceDefinition = {
  name: 'compute',
  module: ComputeModule,
  migrations: new URL('../prisma/migrations/', import.meta.url),
};
