import { defineEvent } from '@nebo/bus';
import type { AuditEvent } from './apps.js';

/** `model.changed`: a model was withdrawn from sale, or is offered again. A hint; the truth is in inference-router's table. */
export interface ModelChanged {
  model_id: string;
  offered: boolean;
}

/** All that inference-router says. */
export const inferenceEvents = {
  modelChanged: defineEvent<ModelChanged>('nebo.inference-router.model.changed.v1'),
  auditWritten: defineEvent<AuditEvent>('nebo.inference-router.audit.written.v1'),
};
