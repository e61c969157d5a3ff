import { type LifeUsage } from '@nebo/contracts';

/** What one life used in one bucket of time. */
export interface Bucket {
  /** Milliseconds since 1970. */
  start: number;
  running_ms: number;
  cpu_us: number;
  /** False: the counter could not be read for all of it. */
  measured: boolean;
  final: boolean;
  /** Number of the measurement that changed it last. */
  seq: number;
  /** Number of the measurement that the control plane has taken; 0: none. */
  told: number;
}

/** One life of a process as it is kept on disk. Times are milliseconds since 1970 by this host's clock. */
export interface LifeRecord {
  /** Name of the life and of its group on the host. */
  id: string;
  kind: LifeUsage['kind'];
  /** The replica or run. */
  owner: string;
  real: boolean;
  /** There is a counter. */
  counted: boolean;
  vcpu: number;
  /** Until when it was measured. */
  at: number;
  /** The counter when it was read last, microseconds, and when that was. */
  cpu_us: number;
  cpu_at: number;
  ended: boolean;
  seq: number;
  buckets: Bucket[];
}

/** What a life is begun with. */
export type NewLife = Pick<LifeRecord, 'id' | 'kind' | 'owner' | 'real' | 'counted' | 'vcpu'>;

export const newLife = (of: NewLife, at: number): LifeRecord => ({
  ...of,
  ...{ at, cpu_us: 0, cpu_at: at, ended: false, seq: 0, buckets: [] },
});

/**
 * Notes that a life went on.
 * @param to now, milliseconds since 1970
 * @param ms how long it is since the last measurement by a clock that nobody sets; the host's clock only says in which bucket
 * @param reading the counter, microseconds; null: it could not be read
 */
export function advance(
  life: LifeRecord,
  bucketMs: number,
  { to, ms, reading }: { to: number; ms: number; reading: number | null },
): void {
  life.seq += 1;
  const { seq } = life;
  const touched = (start: number) => {
    let bucket = life.buckets.find((known) => known.start === start);
    if (!bucket) {
      bucket = { start, running_ms: 0, cpu_us: 0, measured: life.counted, final: false, seq, told: 0 };
      life.buckets.push(bucket);
    }
    bucket.seq = seq;
    return bucket;
  };
  for (const [start, part] of split(to - ms, to, bucketMs)) if (part > 0) touched(start).running_ms += part;
  // By the same unset clock: as long as since the last measurement, and longer when that had no reading.
  const gap = ms + Math.max(0, life.at - life.cpu_at);
  life.at = to;
  if (reading !== null && reading >= life.cpu_us) {
    const used = reading - life.cpu_us;
    const parts = split(to - gap, to, bucketMs);
    let left = used;
    for (const [index, [start, part]] of parts.entries()) {
      // What happened when is not known between two readings: it is shared out by time.
      const share = index === parts.length - 1 ? left : Math.floor((used * part) / gap);
      left -= share;
      const unseen = part === bucketMs && parts.length > 1;
      if (share === 0 && !unseen) continue;
      const bucket = touched(start);
      bucket.cpu_us += share;
      // Nobody looked from its beginning to its end: how much fell into it is not known.
      if (unseen) bucket.measured = false;
    }
    life.cpu_us = reading;
    life.cpu_at = to;
  }
  const seen = life.counted ? life.cpu_at : to;
  for (const bucket of life.buckets) {
    if (bucket.final || bucket.start + bucketMs > seen) continue;
    bucket.final = true;
    bucket.seq = seq;
  }
}

/** Ends a life: nothing more will come of it. What was not read of its last bucket was not measured. */
export function finish(life: LifeRecord): void {
  life.ended = true;
  life.seq += 1;
  for (const bucket of life.buckets) {
    if (bucket.final) continue;
    bucket.final = true;
    bucket.seq = life.seq;
  }
}

/** Marks what lies after the last reading as not measured: the counter is gone. */
export function blind(life: LifeRecord, bucketMs: number): void {
  for (const bucket of life.buckets)
    if (bucket.start + bucketMs > life.cpu_at && bucket.running_ms > 0) bucket.measured = false;
}

/** So many past buckets of a life that goes on are kept: a clock that is set back adds to their totals. */
const keptBuckets = 3;

/** Forgets what is final and has been taken. @returns whether nothing of the life is left to tell */
export function forget(life: LifeRecord, bucketMs: number): boolean {
  const kept = life.ended ? Infinity : life.at - keptBuckets * bucketMs;
  life.buckets = life.buckets.filter(
    (bucket) => !bucket.final || bucket.told < bucket.seq || bucket.start >= kept,
  );
  return life.ended && life.buckets.length === 0;
}

/** A bucket as the control plane is told. */
export const told = (life: LifeRecord, bucket: Bucket): LifeUsage => ({
  kind: life.kind,
  id: life.owner,
  life: life.id,
  hour: new Date(bucket.start).toISOString(),
  seq: bucket.seq,
  cpu_us: bucket.measured ? bucket.cpu_us : null,
  running_ms: bucket.running_ms,
  final: bucket.final,
  real: life.real,
});

/** Cuts a time at the ends of buckets. @returns start of the bucket and milliseconds in it */
function split(from: number, to: number, bucketMs: number): [number, number][] {
  const parts: [number, number][] = [];
  let at = from;
  do {
    const start = Math.floor(at / bucketMs) * bucketMs;
    const end = Math.min(to, start + bucketMs);
    parts.push([start, end - at]);
    at = end;
  } while (at < to);
  return parts;
}
