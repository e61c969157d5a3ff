import { type Envelope, say } from '@nebo/bus';
import { type AuditEvent, computeEvents, type KeyIdentity } from '@nebo/contracts';
import type { Sql } from '@nebo/persistence';

/** All that this service says; what it hears is in `hears.ts`. */
export const says = computeEvents;

/**
 * What a key did, with the line for the account's audit log, in the transaction of the act.
 * @param action operation id
 * @param details names and numbers only, never a value that could be secret
 */
export async function sayAct(
  tx: Sql,
  caller: KeyIdentity,
  action: string,
  on: { kind: 'vm' | 'ssh_key'; id: string; project_id: string | null },
  details: Record<string, unknown> = {},
  ...events: Envelope[]
): Promise<void> {
  const audit: AuditEvent = {
    actor: `key:${caller.key_id}`,
    action,
    resource: `${on.kind}:${on.id}`,
    project_id: on.project_id,
    details,
  };
  await say(tx, says.auditWritten(audit, { account: caller.account_id }), ...events);
}
