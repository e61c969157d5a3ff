import { type Envelope, say } from '@nebo/bus';
import { type AuditEvent, type KeyIdentity, networkingEvents } from '@nebo/contracts';
import type { Sql } from '@nebo/persistence';

/** All that this service says; it hears nothing yet. */
export const says = networkingEvents;

/** Who did something to what an account has: `key:<id>`, `service:<name>`. */
export interface Actor {
  account_id: string;
  actor: string;
}

/** A key as the one who acts. */
export const actorOf = ({ account_id, key_id }: KeyIdentity): Actor => ({
  account_id,
  actor: `key:${key_id}`,
});

/**
 * The line for the account's audit log of what was done, in the transaction of the act, with the events that tell of it.
 * @param action operation id
 * @param resource `vpc:<id>`, `floating_ip:<id>`
 * @param details names and numbers only, never a value that could be secret
 */
export async function sayAct(
  tx: Sql,
  by: KeyIdentity | Actor,
  action: string,
  resource: string,
  details: Record<string, unknown> = {},
  ...events: Envelope[]
): Promise<void> {
  const { account_id, actor } = 'actor' in by ? by : actorOf(by);
  const audit: AuditEvent = { actor, action, resource, project_id: null, details };
  await say(tx, says.auditWritten(audit, { account: account_id }), ...events);
}
