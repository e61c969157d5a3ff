import type { Envelope } from '@nebo/bus';
import type { ZoneStatusEvent } from '@nebo/contracts';
import { wake } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';

/** A zone was delegated, or lost: names of its account that lie in it are looked at now. */
export async function wakeDomainsOf(tx: Sql, event: Envelope<ZoneStatusEvent>): Promise<void> {
  const zone = event.data.name.replace(/\.$/, '').toLowerCase();
  const rows = await tx.query<{ id: string }>(
    `select id from app_domain where account_id = $1::uuid and not is_default and deleted_at is null
       and (host = $2 or right(host, length($2) + 1) = '.' || $2) order by id`,
    [event.account, zone],
  );
  for (const { id } of rows) await wake(tx, 'domain', id);
}
