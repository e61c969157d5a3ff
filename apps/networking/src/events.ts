import { say } from '@nebo/bus';
import { type AuditEvent, type KeyIdentity, networkingEvents } from '@nebo/contracts';
import type { Sql } from '@nebo/persistence';

/** All that this service says; it hears nothing yet. */
export const says = networkingEvents;

/**
 * The line for the account's audit log of what a key did, in the transaction of the act.
 * @param action operation id
 * @param resource `vpc:<id>`, `floating_ip:<id>`
 * @param details names and numbers only, never a value that could be secret
 */
export async function sayAct(
  tx: Sql,
  caller: KeyIdentity,
  action: string,
  resource: string,
  details: Record<string, unknown> = {},
): Promise<void> {
  const audit: AuditEvent = {
    actor: `key:${caller.key_id}`,
    action,
    resource,
    project_id: null,
    details,
  };
  await say(tx, says.auditWritten(audit, { account: caller.account_id }));
}
