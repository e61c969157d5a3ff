import { type Sql } from '@nebo/persistence';
import { activeTraceparent } from '@nebo/telemetry';
import { encodeEnvelope, type Envelope } from './envelope.js';

/**
 * Says an event: writes it to the outbox in the caller's transaction, so it is said exactly when the cause is committed.
 * An `OutboxRelay` carries it to the bus.
 * An event without a trace gets that of the request at hand, so that its handlers show in the same trace.
 * @param tx the transaction of the cause
 * @param events one or several envelopes, made by an event definition
 * @throws TypeError or RangeError for an envelope that no bus would take; the transaction should then fail
 */
export async function say(tx: Sql, ...events: readonly Envelope[]): Promise<void> {
  if (events.length === 0) return;
  const trace = activeTraceparent();
  const row = (at: number) => `($${at}::uuid, $${at + 1}, $${at + 2}::jsonb)`;
  await tx.query(
    `insert into outbox (id, subject, envelope) values ${events.map((_, index) => row(index * 3 + 1)).join(', ')}`,
    events.flatMap((event) => [
      event.id,
      event.type,
      encodeEnvelope(event.trace === null && trace !== null ? { ...event, trace } : event),
    ]),
  );
}
