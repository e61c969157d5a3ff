import type { PriceRef, SliceSettlement, UsageFacts } from '@nebo/contracts';
import { sqlArray, type SqlValue } from '@nebo/persistence';
import { asUuid } from '../database/ids.js';

/** A settlement that the database can take, with its place in the batch. */
export interface SettlementRow extends Omit<SliceSettlement, 'key_slice_id'> {
  ord: number;
  key_slice_id: string | null;
}

const counts = [
  'price_version',
  'input_tokens',
  'cached_tokens',
  'output_tokens',
  'reasoning_tokens',
] as const satisfies readonly (keyof UsageFacts)[];

class Malformed extends Error {}

/**
 * Reads one settlement of a batch by hand: the wrong one is refused with its reason, where a body class would refuse the
 * whole batch, and the router would send it for ever.
 */
export function readSettlement(
  given: unknown,
  ord: number,
): SettlementRow | { operation_id: string; reason: string } {
  const fields = (typeof given === 'object' && given !== null ? given : {}) as Record<string, unknown>;
  try {
    const month = text(fields, 'month', 7);
    if (!/^\d{4}-(0[1-9]|1[0-2])$/.test(month) || month < '2000') throw new Malformed('month');
    const amount = text(fields, 'amount', 18);
    if (!/^\d+$/.test(amount)) throw new Malformed('amount');
    return {
      ord,
      operation_id: text(fields, 'operation_id', 200, 1),
      account_id: id(fields, 'account_id'),
      key_id: id(fields, 'key_id'),
      slice_id: id(fields, 'slice_id'),
      key_slice_id: fields['key_slice_id'] == null ? null : id(fields, 'key_slice_id'),
      month: `${month}-01`,
      amount,
      description: text(fields, 'description', 500),
      prices: prices(fields['prices']),
      usage: usage(fields['usage'], id(fields, 'key_id')),
      at: time(text(fields, 'at', 40)),
    };
  } catch (error) {
    if (!(error instanceof Malformed)) throw error;
    return { operation_id: String(fields['operation_id'] ?? ''), reason: `malformed: ${error.message}` };
  }
}

/** The call of the function that charges; its parameters: the router's id, the service, and what `listsOf` makes. */
export const sliceSettle =
  'slice_settle($1::uuid, $2, $3::jsonb, $4::integer[], $5::text[], $6::bigint[], $7::timestamptz[], $8::jsonb)';

/** The lists that `slice_settle` takes: what many rows have in common goes once, and is found by its place from 1. */
export function listsOf(rows: readonly SettlementRow[]): SqlValue[] {
  const places = new Map<string, number>();
  const placeOf = rows.map((row) => {
    const { account_id, key_id, slice_id, key_slice_id, month, description, prices, usage } = row;
    const { kind, model } = usage;
    const common = { account_id, key_id, slice_id, key_slice_id, month, description, prices, kind, model };
    const text = JSON.stringify(common);
    let place = places.get(text);
    if (place === undefined) places.set(text, (place = places.size + 1));
    return place;
  });
  return [
    `[${[...places.keys()].join()}]`,
    sqlArray(placeOf),
    sqlArray(rows.map(({ operation_id }) => operation_id)),
    sqlArray(rows.map(({ amount }) => amount)),
    sqlArray(rows.map(({ at }) => at)),
    JSON.stringify(rows.map(({ usage }) => usage)),
  ];
}

/** Text that PostgreSQL can keep: no NUL, no half of a surrogate pair. */
function storable(value: unknown, name: string, max: number, min = 0): string {
  const isGood =
    typeof value === 'string' &&
    value.length >= min &&
    value.length <= max &&
    !value.includes('\0') &&
    value.isWellFormed();
  if (!isGood) throw new Malformed(name);
  return value;
}

const text = (fields: Record<string, unknown>, name: string, max: number, min = 0): string =>
  storable(fields[name], name, max, min);

function id(fields: Record<string, unknown>, name: string): string {
  const found = typeof fields[name] === 'string' ? asUuid(fields[name]) : null;
  if (found === null) throw new Malformed(name);
  return found;
}

function time(value: string): string {
  const isTime = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2})$/i.test(value);
  const at = new Date(value);
  if (!isTime || Number.isNaN(at.getTime())) throw new Malformed('at');
  return at.toISOString();
}

function prices(value: unknown): PriceRef[] {
  if (!Array.isArray(value) || value.length > 20) throw new Malformed('prices');
  return value.map((price: Partial<PriceRef> | null) => {
    if (!Number.isSafeInteger(price?.version)) throw new Malformed('prices');
    return { id: storable(price?.id, 'prices', 200, 1), version: price!.version! };
  });
}

/** Counts become numbers of the panel and of the export: nothing else may stand there. */
function usage(value: unknown, keyId: string): UsageFacts {
  const given = (typeof value === 'object' && value !== null ? value : {}) as Record<string, unknown>;
  if (given['kind'] !== 'inference' && given['kind'] !== 'compute') throw new Malformed('usage');
  const facts: UsageFacts = { kind: given['kind'], key_id: keyId };
  if (given['model'] != null) facts.model = storable(given['model'], 'usage', 200);
  for (const name of counts) {
    const count = given[name];
    if (count == null) continue;
    if (!Number.isSafeInteger(count) || (count as number) < 0) throw new Malformed('usage');
    facts[name] = count as number;
  }
  return facts;
}
