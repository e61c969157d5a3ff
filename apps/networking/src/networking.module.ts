import { Module } from '@nestjs/common';
import type { ServiceDefinition } from '@nebo/service-kit';

/** Schema and health only: the kinds of this service come with their issue. */
@Module({})
export class NetworkingModule {}

export const networking: ServiceDefinition = {
  name: 'networking',
  module: NetworkingModule,
  migrations: new URL('../prisma/migrations/', import.meta.url),
};
