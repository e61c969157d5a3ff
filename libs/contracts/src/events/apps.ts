import { defineEvent } from '@nebo/bus';

/** `app.created` and `app.deleted`. */
export interface AppEvent {
  app_id: string;
  project_id: string;
  region_id: string;
  name: string;
}

/** `build.finished`: a build reached its end, good or bad. */
export interface BuildFinishedEvent {
  build_id: string;
  app_id: string;
  status: 'success' | 'error' | 'cancelled';
  /** Why not `success`. */
  error: string | null;
  duration_ms: number | null;
}

/** `route.changed`: a hint that hosts of an app lead elsewhere; the truth is `GET /internal/v1/routes`. */
export interface RouteChangedEvent {
  app_id: string;
  hosts: string[];
}

/** `domain.status`: a custom domain has another status, or is gone. */
export interface DomainStatusEvent {
  domain_id: string;
  app_id: string;
  host: string;
  status: 'pending' | 'active' | 'error' | 'deleted';
  /** Why, or what is left to do. */
  error: string | null;
}

/** `audit.written`: one line for the account's audit log, said in the transaction of the act. */
export interface AuditEvent {
  /** `key:<id>` or `service:<name>`. */
  actor: string;
  /** Operation id. */
  action: string;
  /** `kind:<id>`. */
  resource: string;
  project_id: string | null;
  /** Never a secret. */
  details: Record<string, unknown>;
}

/** All that apps-builder says. Payloads only gain optional fields; the account stands in the envelope. */
export const appsEvents = {
  appCreated: defineEvent<AppEvent>('nebo.apps-builder.app.created.v1'),
  appDeleted: defineEvent<AppEvent>('nebo.apps-builder.app.deleted.v1'),
  buildFinished: defineEvent<BuildFinishedEvent>('nebo.apps-builder.build.finished.v1'),
  routeChanged: defineEvent<RouteChangedEvent>('nebo.apps-builder.route.changed.v1'),
  domainStatus: defineEvent<DomainStatusEvent>('nebo.apps-builder.domain.status.v1'),
  auditWritten: defineEvent<AuditEvent>('nebo.apps-builder.audit.written.v1'),
};
