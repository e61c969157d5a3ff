import { Module } from '@nestjs/common';
import { RUNTIME, type Runtime, type ServiceDefinition } from '@nebo/service-kit';
import { BuiltinDnsDriver } from './drivers/builtin/index.js';
import { ManagedController } from './internal/managed.controller.js';
import { ManagedService } from './internal/managed.service.js';
import { OwnersController } from './internal/owners.controller.js';
import { Publisher } from './publisher/publisher.js';
import { RecordsController } from './records/records.controller.js';
import { RecordsService } from './records/records.service.js';
import { RrsetsController } from './rrsets/rrsets.controller.js';
import { RrsetsService } from './rrsets/rrsets.service.js';
import { Housekeeping } from './shared/housekeeping.js';
import { DelegationCheck } from './zones/delegation.js';
import { type DnsSettings, dnsSettings } from './zones/settings.js';
import { DNS_DRIVER, DNS_SETTINGS } from './zones/tokens.js';
import { ZonesController } from './zones/zones.controller.js';
import { ZonesService } from './zones/zones.service.js';

/** Port of the name server where nothing else is said: 53 needs rights that a service does not. */
const defaultPort = 5354;
/** Answers over UDP to one network a second. */
const defaultRate = 2_000;

/** Zones, records, record sets, and the name server that answers from them. */
@Module({
  controllers: [ZonesController, RecordsController, RrsetsController, ManagedController, OwnersController],
  providers: [
    {
      provide: DNS_SETTINGS,
      useFactory: ({ config }: Runtime) => dnsSettings(config),
      inject: [RUNTIME],
    },
    {
      provide: DNS_DRIVER,
      useFactory: ({ config, log }: Runtime, { nameservers }: DnsSettings) =>
        new BuiltinDnsDriver({
          host: config.text('NEBO_DNS_BIND', config.text('NEBO_BIND', '127.0.0.1')),
          port: config.port('NEBO_DNS_PORT', defaultPort),
          rate: config.int('NEBO_DNS_RATE', defaultRate),
          nameservers,
          onError: (err) => log.warn({ err }, 'name server'),
        }),
      inject: [RUNTIME, DNS_SETTINGS],
    },
    DelegationCheck,
    ZonesService,
    RecordsService,
    RrsetsService,
    ManagedService,
    Publisher,
    Housekeeping,
  ],
})
export class DnsModule {}

export const dns: ServiceDefinition = {
  name: 'dns',
  module: DnsModule,
  migrations: new URL('../prisma/migrations/', import.meta.url),
};
