import { Module } from '@nestjs/common';
import { Changes, Epochs, Lives, type ServiceDefinition } from '@nebo/service-kit';
import { AgentController } from './agent/agent.controller.js';
import { ObservedService } from './agent/observed.service.js';
import { WantedService } from './agent/wanted.service.js';
import { AddressMoney } from './floating-ips/address-money.js';
import { AttachmentsService } from './floating-ips/attachments.service.js';
import { FloatingIpOrdersController } from './floating-ips/floating-ip-orders.controller.js';
import { FloatingIpLifecycle } from './floating-ips/floating-ip.lifecycle.js';
import { FloatingIpsController } from './floating-ips/floating-ips.controller.js';
import { FloatingIpsService } from './floating-ips/floating-ips.service.js';
import { AddressPool } from './floating-ips/pool.js';
import { PoolsController } from './floating-ips/pools.controller.js';
import { SpanLifecycle } from './floating-ips/span.lifecycle.js';
import { InventoryController } from './internal/inventory.controller.js';
import { OwnersController } from './internal/owners.controller.js';
import { NatGatewayLifecycle } from './nat-gateways/nat-gateway.lifecycle.js';
import { NatGatewaysController } from './nat-gateways/nat-gateways.controller.js';
import { NatGatewaysService } from './nat-gateways/nat-gateways.service.js';
import { PortsController } from './ports/ports.controller.js';
import { PortsService } from './ports/ports.service.js';
import { ReservedIpsController } from './reserved-ips/reserved-ips.controller.js';
import { ReservedIpsService } from './reserved-ips/reserved-ips.service.js';
import { Housekeeping } from './shared/housekeeping.js';
import { Regions } from './shared/regions.js';
import { StandingService } from './standing/standing.service.js';
import { VpcLifecycle } from './vpcs/vpc.lifecycle.js';
import { VpcsController } from './vpcs/vpcs.controller.js';
import { VpcsService } from './vpcs/vpcs.service.js';

/** VPCs, the ports in them, reserved IPs; floating IPs on interfaces and NAT gateways, and the pools that they come from. */
@Module({
  controllers: [
    VpcsController,
    ReservedIpsController,
    FloatingIpsController,
    NatGatewaysController,
    PortsController,
    FloatingIpOrdersController,
    AgentController,
    OwnersController,
    InventoryController,
    PoolsController,
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
    AttachmentsService,
    NatGatewaysService,
    Epochs,
    WantedService,
    ObservedService,
    VpcLifecycle,
    SpanLifecycle,
    FloatingIpLifecycle,
    NatGatewayLifecycle,
    Lives.of(VpcLifecycle, SpanLifecycle, FloatingIpLifecycle, NatGatewayLifecycle),
    Housekeeping,
    StandingService,
  ],
})
export class NetworkingModule {}

export const networking: ServiceDefinition = {
  name: 'networking',
  module: NetworkingModule,
  migrations: new URL('../prisma/migrations/', import.meta.url),
};
