import { Module } from '@nestjs/common';
import type { ServiceDefinition } from '@nebo/service-kit';

/** Schema and health only: the kinds of this service come with their issue. */
@Module({})
export class DnsModule {}

export const dns: ServiceDefinition = {
  name: 'dns',
  module: DnsModule,
  migrations: new URL('../prisma/migrations/', import.meta.url),
};
