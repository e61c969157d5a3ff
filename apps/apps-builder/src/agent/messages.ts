import type { LogBatch, Observed } from '@nebo/contracts';
import { idOrNull, validationError } from '@nebo/service-kit';

/**
 * What agents send, checked by hand: a batch may hold thousands of lines, for which decorated classes cost too much.
 */
const states = {
  build: ['building', 'success', 'error', 'cancelled'],
  replica: ['starting', 'ready', 'sleeping', 'failed', 'gone'],
  run: ['running', 'success', 'error', 'timeout', 'cancelled'],
} as const;

const maxItems = 5_000;

function refuse(loc: (string | number)[], msg: string): never {
  throw validationError([{ loc: ['body', ...loc], msg, type: 'value_error' }]);
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isTime = (value: unknown): value is string =>
  typeof value === 'string' &&
  /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/.test(value) &&
  !Number.isNaN(Date.parse(value));
const isCount = (value: unknown): value is number =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;

function listOf(body: unknown, field: string): unknown[] {
  const list = isObject(body) ? body[field] : undefined;
  if (!Array.isArray(list)) refuse([field], 'must be a list');
  if (list.length > maxItems) refuse([field], `must have at most ${maxItems} items`);
  return list;
}

const maxApps = 1_000;

/** @returns ids of apps @throws ApiError 422 naming the item */
export function parseAppIds(body: unknown): string[] {
  const list = listOf(body, 'app_ids');
  if (list.length > maxApps) refuse(['app_ids'], `must have at most ${maxApps} items`);
  return list.map((id, index) => {
    const known = typeof id === 'string' ? idOrNull(id) : null;
    if (known === null) refuse(['app_ids', index], 'must be an id');
    return known;
  });
}

/** @throws ApiError 422 naming the item */
export function parseObserved(body: unknown): Observed[] {
  return listOf(body, 'items').map((item, index) => {
    const at = (field: string) => ['items', index, field];
    if (!isObject(item)) refuse(['items', index], 'must be an object');
    const { kind, id, generation, state, reason, facts } = item;
    if (kind !== 'build' && kind !== 'replica' && kind !== 'run')
      refuse(at('kind'), 'must be build, replica or run');
    const known = typeof id === 'string' ? idOrNull(id) : null;
    if (known === null) refuse(at('id'), 'must be an id');
    if (!isCount(generation) || generation > 2_147_483_647)
      refuse(at('generation'), 'must be a whole number');
    if (!(states[kind] as readonly unknown[]).includes(state))
      refuse(at('state'), `must be one of ${states[kind].join(', ')}`);
    if (reason !== null && reason !== undefined && typeof reason !== 'string')
      refuse(at('reason'), 'must be a text or null');
    if (!isTime(item['at'])) refuse(at('at'), 'must be a time in RFC 3339');
    return {
      kind,
      id: known,
      generation,
      state: state as Observed['state'],
      reason:
        typeof reason === 'string' ? reason.replaceAll('\0', '\ufffd').slice(0, 4_000).toWellFormed() : null,
      facts: isObject(facts) ? facts : {},
      // Written anew: JavaScript takes dates that PostgreSQL refuses (30 February).
      at: new Date(item['at']).toISOString(),
    };
  });
}

/** @throws ApiError 422 naming the line */
export function parseLogBatch(body: unknown): LogBatch {
  const lines = listOf(body, 'lines').map((item, index) => {
    if (!isObject(item) || !isCount(item['seq']) || typeof item['line'] !== 'string' || !isTime(item['at'])) {
      refuse(['lines', index], 'must have seq, at and line');
    }
    return { seq: item['seq'], at: new Date(item['at']).toISOString(), line: item['line'] };
  });
  return { lines, done: isObject(body) && body['done'] === true };
}
