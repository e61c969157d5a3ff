import { defineEvent } from '@nebo/bus';
import type { AuditEvent } from './apps.js';

/** `vpc.created` and `vpc.deleted`: said with the owner's act, not when the region has made it so. */
export interface VpcEvent {
  vpc_id: string;
  region_id: string;
  name: string;
  subnet: string;
}

/**
 * `floating_ip.attached` and `floating_ip.detached`: the region has made it so. `floating_ip.released`: the account has it no
 * more and pays no more for it.
 */
export interface FloatingIpEvent {
  fip_id: string;
  region_id: string;
  address: string;
  /** What it is attached to; null for what is attached to nothing (any more). */
  vpc_id: string | null;
  vm_id: string | null;
  vm_interface_id: string | null;
}

/** `nat_gateway.attached` and `nat_gateway.detached`: the region has made it so. */
export interface NatGatewayEvent {
  vpc_id: string;
  fip_id: string;
  address: string;
}

/** All that networking says. Payloads only gain optional fields; the account stands in the envelope. */
export const networkingEvents = {
  vpcCreated: defineEvent<VpcEvent>('nebo.networking.vpc.created.v1'),
  vpcDeleted: defineEvent<VpcEvent>('nebo.networking.vpc.deleted.v1'),
  floatingIpAttached: defineEvent<FloatingIpEvent>('nebo.networking.floating_ip.attached.v1'),
  floatingIpDetached: defineEvent<FloatingIpEvent>('nebo.networking.floating_ip.detached.v1'),
  floatingIpReleased: defineEvent<FloatingIpEvent>('nebo.networking.floating_ip.released.v1'),
  natGatewayAttached: defineEvent<NatGatewayEvent>('nebo.networking.nat_gateway.attached.v1'),
  natGatewayDetached: defineEvent<NatGatewayEvent>('nebo.networking.nat_gateway.detached.v1'),
  auditWritten: defineEvent<AuditEvent>('nebo.networking.audit.written.v1'),
};
