import type { Observed } from '@nebo/contracts';
import { validationError } from './errors.js';
import { idOrNull } from './ids.js';

/** What agents send is checked by hand: a batch may hold thousands of items, for which decorated classes cost too much. */
export type Item = Readonly<Record<string, unknown>>;

/** What every observation has, whatever it is of (`Observed` of the agent protocol). */
export interface Seen<K extends string> {
  kind: K;
  id: string;
  generation: number;
  state: unknown;
  reason: string | null;
  /** RFC 3339. */
  at: string;
}

/** @throws ApiError 422 that names the place in the body */
export function refuseItem(loc: (string | number)[], msg: string): never {
  throw validationError([{ loc: ['body', ...loc], msg, type: 'value_error' }]);
}

export const isItem = (value: unknown): value is Item =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** A whole number that fits PostgreSQL's integer. */
export const isCount = (value: unknown): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 2_147_483_647;

/** A time in RFC 3339, written anew: JavaScript takes dates that PostgreSQL refuses (30 February). Null: it is none. */
export function timeOrNull(value: unknown): string | null {
  const shape = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/;
  if (typeof value !== 'string' || !shape.test(value) || Number.isNaN(Date.parse(value))) return null;
  return new Date(value).toISOString();
}

/** A sentence of an agent as PostgreSQL takes it, at most 4,000 characters. */
export const sentence = (text: string): string =>
  text.replaceAll('\0', '\ufffd').slice(0, 4_000).toWellFormed();

/**
 * Facts of an agent as PostgreSQL takes them: they hold words of users' files and programs, and what cannot be stored of one
 * must not keep the observations behind it from being taken.
 */
function storable(value: unknown): unknown {
  if (typeof value === 'string') return value.replaceAll('\0', '\ufffd').toWellFormed();
  if (Array.isArray(value)) return value.map(storable);
  if (!isItem(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [storable(name), storable(one)]));
}

/** The list of a body. @throws ApiError 422 */
export function itemsOf(body: unknown, field: string, most: number): unknown[] {
  const list = isItem(body) ? body[field] : undefined;
  if (!Array.isArray(list)) refuseItem([field], 'must be a list');
  if (list.length > most) refuseItem([field], `must have at most ${most} items`);
  return list;
}

/**
 * The part of an observation that is the same for every kind.
 * @param states words by kind; other kinds are refused
 * @throws ApiError 422 that names the field
 */
export function seenOf<K extends string>(
  item: unknown,
  index: number,
  states: Readonly<Record<K, readonly Observed['state'][]>>,
): { seen: Seen<K>; facts: Item } {
  const at = (field: string) => ['items', index, field];
  if (!isItem(item)) refuseItem(['items', index], 'must be an object');
  const { generation, state, reason, facts } = item;
  const kinds = Object.keys(states) as K[];
  const kind = kinds.find((known) => known === item['kind']);
  if (kind === undefined) refuseItem(at('kind'), `must be ${kinds.join(' or ')}`);
  const id = typeof item['id'] === 'string' ? idOrNull(item['id']) : null;
  if (id === null) refuseItem(at('id'), 'must be an id');
  if (!isCount(generation)) refuseItem(at('generation'), 'must be a whole number');
  if (!(states[kind] as readonly unknown[]).includes(state))
    refuseItem(at('state'), `must be one of ${states[kind].join(', ')}`);
  if (reason !== null && reason !== undefined && typeof reason !== 'string')
    refuseItem(at('reason'), 'must be a text or null');
  const time = timeOrNull(item['at']);
  if (time === null) refuseItem(at('at'), 'must be a time in RFC 3339');
  const seen = {
    kind,
    id,
    generation,
    state,
    reason: typeof reason === 'string' ? sentence(reason) : null,
    at: time,
  };
  return { seen, facts: isItem(facts) ? (storable(facts) as Item) : {} };
}

/** Milliseconds of a long poll from its query, at most 60 s; anything else counts as none. */
export function pollMs(wait: unknown): number {
  return typeof wait === 'string' && /^\d{1,3}$/.test(wait) ? Math.min(60, Number(wait)) * 1_000 : 0;
}
