import { Injectable } from '@nestjs/common';
import type { Envelope } from '@nebo/bus';
import type { AuditEvent } from '@nebo/contracts';
import type { Sql } from '@nebo/persistence';
import { AuditService } from './audit.service.js';

/** Takes lines for the audit log that other services say in the transaction of the act, each one once. */
@Injectable()
export class AuditIntake {
  constructor(private readonly audit: AuditService) {}

  /** The event's id is the entry's: even an inbox that has forgotten it lets no double in. */
  async handle(tx: Sql, { id, time, account, data }: Envelope<AuditEvent>): Promise<void> {
    const { actor, action, resource, project_id, details } = data;
    await this.audit.write(
      tx,
      {
        account,
        actor,
        action,
        resource,
        details: { ...details, ...(project_id === null ? {} : { project_id }) },
        // When it was done, not when it was heard.
        at: new Date(time),
      },
      id,
    );
  }
}
