import type { Envelope } from '@nebo/bus';
import type { KeyChanged } from '@nebo/contracts';
import type { Sql } from '@nebo/persistence';

/** A key that was taken back, or may do something else now, connects nothing any more that it had asked for before. */
export async function endAuthorizationsOf(tx: Sql, { data }: Envelope<KeyChanged>): Promise<void> {
  await tx.query(
    `update git_authorization set status = 'failed', status_reason = 'the key that asked for this was changed meanwhile'
     where key_id = $1 and status in ('pending', 'trading')`,
    [data.key_id],
  );
}
