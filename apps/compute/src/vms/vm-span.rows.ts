import { start, wake } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';
import type { HourlyQuote } from '../catalogue/prices.js';
import { randomUUID } from 'node:crypto';

/** Begins the span of a machine that is billed by the second, in the transaction of its order: at its creation. */
export async function openSpan(
  tx: Sql,
  vm: { id: string; account_id: string },
  quote: HourlyQuote,
  description: string,
): Promise<void> {
  const id = randomUUID();
  // To the millisecond, as it goes over the wire: a repeated opening must say the same.
  await tx.query(
    `insert into vm_span (id, account_id, vm_id, description, amount_per_hour, amount_per_month, prices, started_at)
     select $1::uuid, account_id, id, $3, $4::numeric, $5::numeric, $6::jsonb, date_trunc('milliseconds', created_at)
     from vm where id = $2::uuid`,
    [
      id,
      vm.id,
      description,
      quote.amount_per_hour.toString(),
      quote.amount_per_month.toString(),
      JSON.stringify(quote.prices),
    ],
  );
  await start(tx, 'vm_span', id, 'opening');
}

/**
 * Ends a machine's span, in the transaction that ends the machine; the first end counts.
 * @param free it never ran: its span ends where it began and costs nothing
 */
export async function endSpan(tx: Sql, vmId: string, free = false): Promise<void> {
  const [span] = await tx.query<{ id: string }>(
    `update vm_span set ended_at = case when $2::boolean then started_at
       else greatest(started_at, date_trunc('milliseconds', now())) end
     where vm_id = $1::uuid and ended_at is null returning id`,
    [vmId, free],
  );
  if (span) await wake(tx, 'vm_span', span.id);
}
