import { type Envelope, say } from '@nebo/bus';
import { appsEvents, type AuditEvent, type KeyIdentity } from '@nebo/contracts';
import type { Sql } from '@nebo/persistence';

/** All that this service says; what it hears is in `hears.ts`. */
export const says = appsEvents;

/**
 * What a key did, with the line for the account's audit log, in the transaction of the act.
 * @param action operation id
 * @param app whose app it was done to
 * @param details names and numbers only, never a value that could be secret
 */
export async function sayAct(
  tx: Sql,
  caller: KeyIdentity,
  action: string,
  app: { id: string; project_id: string },
  details: Record<string, unknown> = {},
  ...events: Envelope[]
): Promise<void> {
  const audit: AuditEvent = {
    actor: `key:${caller.key_id}`,
    action,
    resource: `app:${app.id}`,
    project_id: app.project_id,
    details,
  };
  await say(tx, says.auditWritten(audit, { account: caller.account_id }), ...events);
}
