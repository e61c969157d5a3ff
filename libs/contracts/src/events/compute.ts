import { defineEvent } from '@nebo/bus';
import type { AuditEvent } from './apps.js';

/** `vm.ordered`, `vm.provisioned` and `vm.gone`. */
export interface VmEvent {
  vm_id: string;
  project_id: string;
  region_id: string;
}

/** All that compute says. Payloads only gain optional fields; the account stands in the envelope. */
export const computeEvents = {
  vmOrdered: defineEvent<VmEvent>('nebo.compute.vm.ordered.v1'),
  vmProvisioned: defineEvent<VmEvent>('nebo.compute.vm.provisioned.v1'),
  vmGone: defineEvent<VmEvent>('nebo.compute.vm.gone.v1'),
  auditWritten: defineEvent<AuditEvent>('nebo.compute.audit.written.v1'),
};
