import { on } from '@nebo/bus';
import {
  accountResumed,
  accountSuspended,
  appsEvents,
  balanceEmpty,
  balanceLow,
  computeEvents,
  inferenceEvents,
  keyChanged,
  networkingEvents,
  priceChanged,
  sliceRecall,
} from '@nebo/contracts';
import { AuditIntake } from './audit/audit-intake.js';

/** All that this service says. */
export const says = {
  keyChanged,
  priceChanged,
  sliceRecall,
  balanceLow,
  balanceEmpty,
  accountSuspended,
  accountResumed,
};

/** All that it hears: what was done to apps, models, machines and networks, for the audit log. The rest comes by internal operations. */
export const hears = [
  on(appsEvents.auditWritten, 'identity-billing-audit', AuditIntake),
  on(inferenceEvents.auditWritten, 'identity-billing-audit-inference', AuditIntake),
  on(computeEvents.auditWritten, 'identity-billing-audit-compute', AuditIntake),
  on(networkingEvents.auditWritten, 'identity-billing-audit-networking', AuditIntake),
];
