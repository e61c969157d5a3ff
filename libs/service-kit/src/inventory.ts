import type { Inventory, InventoryItem, ServiceIdentity } from '@nebo/contracts';
import type { Database } from '@nebo/persistence';
import { forbidden, validationError } from './errors.js';

const pageSize = 5_000;

/**
 * A page of `GET /internal/v1/inventory` (libs/contracts/src/internal/inventory.ts).
 * @param everything SQL of rows `kind, id (text), account_id, refers (text[]), state`
 * @throws ApiError 403 for a service that acts for one account, 422 for an `after` that is no `kind:id`
 */
export async function inventoryPage(
  database: Database,
  everything: string,
  caller: ServiceIdentity,
  after: unknown,
): Promise<Inventory> {
  if (caller.account_id !== null) throw forbidden('all accounts');
  const [, kind, id] = /^([a-z_]+):([0-9a-f./-]+)$/.exec(typeof after === 'string' ? after : '') ?? [];
  if (after !== undefined && (kind === undefined || id === undefined))
    throw validationError([{ loc: ['query', 'after'], msg: 'must be a kind:id', type: 'value_error' }]);
  const items = await database.transaction((tx) =>
    tx.query<InventoryItem>(
      `select kind, id, account_id, refers, state from (${everything}) as everything
       where $1::text is null or (kind, id) > ($1::text, $2::text) order by kind, id limit $3::int`,
      [kind ?? null, id ?? null, pageSize],
    ),
  );
  const last = items.length === pageSize ? items[pageSize - 1] : undefined;
  return { items, next: last ? `${last.kind}:${last.id}` : null };
}
