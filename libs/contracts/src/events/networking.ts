import { defineEvent } from '@nebo/bus';
import type { AuditEvent } from './apps.js';

/** All that networking says. */
export const networkingEvents = {
  auditWritten: defineEvent<AuditEvent>('nebo.networking.audit.written.v1'),
};
