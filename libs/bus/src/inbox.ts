import { type Database, type Sql } from '@nebo/persistence';
import { type Envelope } from './envelope.js';
import { type BusHandler, type Delivery } from './event-bus.js';

/** Handles an event inside the transaction that also records its receipt: both happen or none. */
export type TransactionalHandler<T = unknown> = (
  tx: Sql,
  event: Envelope<T>,
  delivery: Delivery,
) => Promise<void>;

/** How long ids of received events are kept, in milliseconds; longer than any store can bring an event back. */
export const inboxKeepMs = 7 * 86_400_000;

/**
 * Records the receipt of an event in the caller's transaction.
 * @returns false when this consumer has received it before: the effect must not happen again
 */
export async function receiveOnce(tx: Sql, consumer: string, eventId: string): Promise<boolean> {
  // A concurrent double waits here for the first transaction's end and then sees its row.
  const rows = await tx.query(
    'insert into inbox (consumer, event_id) values ($1, $2::uuid) on conflict do nothing returning 1 as new',
    [consumer, eventId],
  );
  return rows.length === 1;
}

/** A bus handler that opens a transaction, drops doubles and runs `handler` in that same transaction. */
export function once<T>(db: Database, consumer: string, handler: TransactionalHandler<T>): BusHandler<T> {
  return (event, delivery) =>
    db.transaction(async (tx) => {
      if (await receiveOnce(tx, consumer, event.id)) await handler(tx, event, delivery);
    });
}

/**
 * Deletes old receipts in small batches, so that no long lock is held.
 * @returns number of rows deleted
 */
export async function pruneInbox(db: Sql, keepMs: number = inboxKeepMs, batch = 2_000): Promise<number> {
  for (let total = 0; ;) {
    const rows = await db.query(
      `delete from inbox where ctid = any(array(
         select ctid from inbox where received_at < now() - $1::float8 * interval '1 millisecond' limit $2::int))
       returning 1 as gone`,
      [keepMs, batch],
    );
    total += rows.length;
    if (rows.length < batch) return total;
  }
}
