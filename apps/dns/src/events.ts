import { say } from '@nebo/bus';
import { type AuditEvent, dnsEvents, type KeyIdentity } from '@nebo/contracts';
import type { Sql } from '@nebo/persistence';

/** All that this service says; it hears nothing. */
export const says = dnsEvents;

/**
 * The line for the account's audit log of what a key did, in the transaction of the act.
 * @param action operation id
 * @param zoneId the zone that it was done to
 * @param details names and numbers only: a TXT may hold a secret
 */
export async function sayAct(
  tx: Sql,
  caller: KeyIdentity,
  action: string,
  zoneId: string,
  details: Record<string, unknown> = {},
): Promise<void> {
  const audit: AuditEvent = {
    actor: `key:${caller.key_id}`,
    action,
    resource: `dns_zone:${zoneId}`,
    project_id: null,
    details,
  };
  await say(tx, says.auditWritten(audit, { account: caller.account_id }));
}
