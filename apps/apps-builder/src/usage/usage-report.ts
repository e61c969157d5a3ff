import type { LifeUsage, UsageReport } from '@nebo/contracts';
import { idOrNull, isItem, itemsOf, refuseItem, timeOrNull } from '@nebo/service-kit';

const maxItems = 500;

/** Unlike `isCount`: beyond PostgreSQL's integer too. */
const isWhole = (value: unknown): value is number =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;

/**
 * What an agent says of usage, checked by its form.
 * @throws ApiError 422 naming the item and the field
 */
export function parseUsage(body: unknown, bucketMs: number): UsageReport {
  const bucket_seconds = bucketMs / 1_000;
  const items = itemsOf(body, 'items', maxItems);
  if (!isItem(body) || body['bucket_seconds'] !== bucket_seconds)
    refuseItem(
      ['bucket_seconds'],
      `must be ${bucket_seconds}: NEBO_USAGE_BUCKET differs between agent and control plane`,
    );
  return { bucket_seconds, items: items.map((item, index) => parseItem(item, index, bucketMs)) };
}

function parseItem(item: unknown, index: number, bucketMs: number): LifeUsage {
  const wrong = (field: string, msg: string): never => refuseItem(['items', index, field], msg);
  if (!isItem(item)) refuseItem(['items', index], 'must be an object');
  const { kind, id, life, hour, seq, cpu_us, running_ms, final, real } = item;
  if (kind !== 'replica' && kind !== 'run') return wrong('kind', 'must be replica or run');
  const known = typeof id === 'string' ? idOrNull(id) : null;
  if (known === null) return wrong('id', 'must be an id');
  if (typeof life !== 'string' || !/^[A-Za-z0-9_-]{1,64}$/.test(life)) return wrong('life', 'must be a name');
  const at = timeOrNull(hour);
  if (at === null) return wrong('hour', 'must be a time in RFC 3339');
  if (Date.parse(at) % bucketMs !== 0) return wrong('hour', 'must be the beginning of a bucket');
  if (!isWhole(seq) || seq === 0) return wrong('seq', 'must be a whole number above zero');
  if (cpu_us !== null && !isWhole(cpu_us)) return wrong('cpu_us', 'must be a whole number or null');
  if (!isWhole(running_ms)) return wrong('running_ms', 'must be a whole number');
  if (typeof final !== 'boolean') return wrong('final', 'must be true or false');
  if (typeof real !== 'boolean') return wrong('real', 'must be true or false');
  return { kind, id: known, life, hour: at, seq, cpu_us, running_ms, final, real };
}
