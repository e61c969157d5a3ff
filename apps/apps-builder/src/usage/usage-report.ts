import type { LifeUsage, UsageReport } from '@nebo/contracts';
import { idOrNull, validationError } from '@nebo/service-kit';

const maxItems = 500;

function refuse(loc: (string | number)[], msg: string): never {
  throw validationError([{ loc: ['body', ...loc], msg, type: 'value_error' }]);
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isCount = (value: unknown): value is number =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
const isHour = (value: unknown): value is string =>
  typeof value === 'string' &&
  /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.0+)?Z$/.test(value) &&
  !Number.isNaN(Date.parse(value));

/**
 * What an agent says of usage, checked by its form.
 * @throws ApiError 422 naming the item and the field
 */
export function parseUsage(body: unknown, bucketMs: number): UsageReport {
  if (!isObject(body)) refuse([], 'must be an object');
  const seconds = body['bucket_seconds'];
  if (seconds !== bucketMs / 1_000)
    refuse(
      ['bucket_seconds'],
      `must be ${bucketMs / 1_000}: NEBO_USAGE_BUCKET differs between agent and control plane`,
    );
  const { items } = body;
  if (!Array.isArray(items)) refuse(['items'], 'must be a list');
  if (items.length > maxItems) refuse(['items'], `must have at most ${maxItems} items`);
  return {
    bucket_seconds: bucketMs / 1_000,
    items: items.map((item, index) => parseItem(item, index, bucketMs)),
  };
}

function parseItem(item: unknown, index: number, bucketMs: number): LifeUsage {
  const wrong = (field: string, msg: string): never => refuse(['items', index, field], msg);
  if (!isObject(item)) refuse(['items', index], 'must be an object');
  const { kind, id, life, hour, seq, cpu_us, running_ms, final, real } = item;
  if (kind !== 'replica' && kind !== 'run') return wrong('kind', 'must be replica or run');
  const known = typeof id === 'string' ? idOrNull(id) : null;
  if (known === null) return wrong('id', 'must be an id');
  if (typeof life !== 'string' || !/^[A-Za-z0-9_-]{1,64}$/.test(life)) return wrong('life', 'must be a name');
  if (!isHour(hour)) return wrong('hour', 'must be a time in UTC, RFC 3339');
  if (Date.parse(hour) % bucketMs !== 0) return wrong('hour', 'must be the beginning of a bucket');
  if (!isCount(seq) || seq === 0) return wrong('seq', 'must be a whole number above zero');
  if (cpu_us !== null && !isCount(cpu_us)) return wrong('cpu_us', 'must be a whole number or null');
  if (!isCount(running_ms)) return wrong('running_ms', 'must be a whole number');
  if (typeof final !== 'boolean') return wrong('final', 'must be true or false');
  if (typeof real !== 'boolean') return wrong('real', 'must be true or false');
  const at = new Date(hour).toISOString();
  return { kind, id: known, life, hour: at, seq, cpu_us, running_ms, final, real };
}
