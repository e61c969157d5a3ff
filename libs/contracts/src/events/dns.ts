import { defineEvent } from '@nebo/bus';
import type { AuditEvent } from './apps.js';

/** A zone's delegation was checked and its status changed, or the zone is gone. */
export interface ZoneStatusEvent {
  zone_id: string;
  /** Absolute, with the trailing dot. */
  name: string;
  status: 'pending' | 'active' | 'deleted';
}

/** All that dns says. */
export const dnsEvents = {
  auditWritten: defineEvent<AuditEvent>('nebo.dns.audit.written.v1'),
  zoneStatus: defineEvent<ZoneStatusEvent>('nebo.dns.zone.status.v1'),
};
