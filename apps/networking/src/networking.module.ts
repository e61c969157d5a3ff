import { Module } from '@nestjs/common';
import { Changes, Epochs, Lives, type ServiceDefinition } from '@nebo/service-kit';
import { AgentController } from './agent/agent.controller.js';
import { ObservedService } from './agent/observed.service.js';
import { WantedService } from './agent/wanted.service.js';
import { AddressMoney } from './floating-ips/address-money.js';
import { FloatingIpsController } from './floating-ips/floating-ips.controller.js';
import { FloatingIpsService } from './floating-ips/floating-ips.service.js';
import { AddressPool } from './floating-ips/pool.js';
import { SpanLifecycle } from './floating-ips/span.lifecycle.js';
import { OwnersController } from './internal/owners.controller.js';
import { PortsController } from './ports/ports.controller.js';
import { PortsService } from './ports/ports.service.js';
import { ReservedIpsController } from './reserved-ips/reserved-ips.controller.js';
import { ReservedIpsService } from './reserved-ips/reserved-ips.service.js';
import { Housekeeping } from './shared/housekeeping.js';
import { Regions } from './shared/regions.js';
import { VpcLifecycle } from './vpcs/vpc.lifecycle.js';
import { VpcsController } from './vpcs/vpcs.controller.js';
import { VpcsService } from './vpcs/vpcs.service.js';

/**
 * VPCs, the ports in them, reserved IPs; floating IPs as far as they are held and paid for. Attaching them and NAT gateways
 * come later.
 */
@Module({
  controllers: [
    VpcsController,
    ReservedIpsController,
    FloatingIpsController,
    PortsController,
    AgentController,
    OwnersController,
  ],
  providers: [
    Changes,
    Regions,
    VpcsService,
    ReservedIpsService,
    PortsService,
    AddressPool,
    AddressMoney,
    FloatingIpsService,
    Epochs,
    WantedService,
    ObservedService,
    VpcLifecycle,
    SpanLifecycle,
    Lives.of(VpcLifecycle, SpanLifecycle),
    Housekeeping,
  ],
})
export class NetworkingModule {}

export const networking: ServiceDefinition = {
  name: 'networking',
  module: NetworkingModule,
  migrations: new URL('../prisma/migrations/', import.meta.url),
};
