import { on } from '@nebo/bus';
import { appsEvents, keyChanged } from '@nebo/contracts';
import { AuditIntake } from './audit/audit-intake.js';

/** All that this service says. */
export const says = { keyChanged };

/** All that it hears: what was done to apps, for the account's audit log. The rest comes by internal operations. */
export const hears = [on(appsEvents.auditWritten, 'identity-billing-audit', AuditIntake)];
