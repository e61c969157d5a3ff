import { formatRubles, type V1LedgerEntry } from '@nebo/contracts';
import { type LedgerLine, type Transfer } from '../generated/prisma/client.js';

/** A transfer as the account sees it: what it changed, without the counterparts. */
export function ledgerEntry(row: Transfer & { lines: LedgerLine[] }): V1LedgerEntry {
  const sum = (...books: string[]) =>
    formatRubles(
      row.lines.reduce((total, line) => (books.includes(line.book) ? total + line.amount : total), 0n),
    );
  return {
    id: row.id,
    kind: row.kind,
    amount: sum('money', 'money_held'),
    credits_amount: sum('credits', 'credits_held'),
    held_amount: sum('money_held', 'credits_held'),
    source_service: row.source_service,
    source_id: row.source_id,
    description: row.description,
    created_at: row.created_at.toISOString(),
  };
}
