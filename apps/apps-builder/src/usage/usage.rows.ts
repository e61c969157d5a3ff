import type { ComputeUsageFree, LifeUsage, UsageRefusal } from '@nebo/contracts';
import type { Sql } from '@nebo/persistence';

/** Whose usage it is, and how large. */
export interface Owner {
  kind: LifeUsage['kind'];
  id: string;
  account_id: string;
  app_id: string;
  vcpu: number;
  memory_mb: number;
  on_demand: boolean;
  /** Null: its row is gone, earlier reports of it are known. */
  created_at: Date | null;
}

/** What is known of a life in an hour. */
export interface LifeRow {
  owner_id: string;
  life: string;
  vcpu: number;
  memory_mb: number;
  seq: bigint;
  cpu_us: bigint | null;
  running_ms: bigint;
  final: boolean;
  late: boolean;
  real: boolean;
}

/** The replicas and runs of a region that a report names, by kind and id. */
export async function ownersOf(
  tx: Sql,
  regionId: string,
  items: readonly LifeUsage[],
): Promise<Map<string, Owner>> {
  const rows = await tx.query<Owner>(
    `select 'replica' as kind, p.id, p.account_id, p.app_id, r.vcpu, r.memory_mb, p.idle_ms is not null as on_demand, p.created_at
     from replica p join revision r on r.id = p.revision_id where p.id = any($1::uuid[]) and p.region_id = $2::uuid
     union all
     select 'run', j.id, j.account_id, j.app_id, r.vcpu, r.memory_mb, true, j.created_at
     from job_run j join revision r on r.id = j.revision_id where j.id = any($1::uuid[]) and j.region_id = $2::uuid`,
    [items.map(({ id }) => id), regionId],
  );
  const owners = new Map(rows.map((row) => [ownerKey(row), row]));
  const gone = items.filter((item) => !owners.has(ownerKey(item))).map(({ id }) => id);
  if (gone.length === 0) return owners;
  const before = await tx.query<Owner>(
    `select distinct on (h.kind, l.owner_id) h.kind, l.owner_id as id, h.account_id, h.app_id, l.vcpu, l.memory_mb, true as on_demand,
       null::timestamptz as created_at
     from usage_life l join usage_hour h on h.id = l.hour_id where l.owner_id = any($1::uuid[]) and l.region_id = $2::uuid`,
    [gone, regionId],
  );
  for (const row of before) if (!owners.has(ownerKey(row))) owners.set(ownerKey(row), row);
  return owners;
}

export const ownerKey = ({ kind, id }: { kind: string; id: string }): string => `${kind}/${id}`;

/** A total that counts from now on, what changes nothing, or why it is refused. */
export type Judged = { row: LifeRow; cut: boolean } | 'old' | UsageRefusal;

/**
 * Judges one total beside what is known of its hour.
 * @param lives all lives of the hour
 * @param late whether the hour's time to be reported is over
 */
export function judge(
  item: LifeUsage,
  owner: Owner,
  lives: readonly LifeRow[],
  bucketMs: number,
  late: boolean,
): Judged {
  const known = lives.find(({ owner_id, life }) => owner_id === item.id && life === item.life);
  if (known && BigInt(item.seq) <= known.seq) return 'old';
  const cpu = item.cpu_us === null || known?.cpu_us === null ? null : BigInt(item.cpu_us);
  const running = BigInt(item.running_ms);
  if (known && (running < known.running_ms || (cpu !== null && cpu < known.cpu_us!))) return 'total_fell';
  // A replica has one process at a time: its lives share the hour.
  const others = lives
    .filter((life) => life.owner_id === item.id && life !== known)
    .reduce((sum, { running_ms }) => sum + running_ms, 0n);
  const vcpu = known?.vcpu ?? owner.vcpu;
  const room = BigInt(bucketMs) - others;
  const time = running < room ? running : room;
  const most = cpuLimit(vcpu, time);
  const row: LifeRow = {
    ...{ owner_id: item.id, life: item.life, vcpu, memory_mb: known?.memory_mb ?? owner.memory_mb },
    seq: BigInt(item.seq),
    cpu_us: cpu !== null && cpu > most ? most : cpu,
    running_ms: time,
    final: item.final || (known?.final ?? false),
    late: (known?.late ?? false) || (late && !known?.final),
    real: item.real,
  };
  return { row, cut: row.running_ms !== running || row.cpu_us !== cpu };
}

/** What a group of so many processors can have used in a time: the kernel's own limit is exact to its periods. Microseconds. */
const cpuLimit = (vcpu: number, ms: bigint): bigint =>
  (BigInt(vcpu) * ms * 1_000n * 105n) / 100n + 1_000_000n;

/** An hour as its life sees it. */
export interface UsageHour {
  id: string;
  account_id: string;
  app_id: string;
  kind: LifeUsage['kind'];
  starts_at: Date;
  changed: boolean;
  /** Milliseconds until it is over, and until what was not reported is given up. */
  closes_in: number;
  late_in: number;
  /** Every life that is known of it has been reported to its end. */
  complete: boolean;
  /** A part that is made and not taken yet. */
  part: UsagePart | null;
}

export interface UsagePart {
  part: number;
  cpu_us: number;
  /** Decimal. */
  memory_mb_ms: string;
  free: ComputeUsageFree | null;
  description: string;
}

export async function loadHour(tx: Sql, id: string, lateMs: number): Promise<UsageHour | null> {
  const [row] = await tx.query<UsageHour>(
    `select h.id, h.account_id, h.app_id, h.kind, h.starts_at, h.changed,
       (extract(epoch from h.ends_at - now()) * 1000)::float8 as closes_in,
       (extract(epoch from h.ends_at - now()) * 1000)::float8 + $2::float8 as late_in,
       not exists (select 1 from usage_life l where l.hour_id = h.id and not l.final) as complete,
       (select jsonb_build_object('part', p.part, 'cpu_us', p.cpu_us, 'memory_mb_ms', p.memory_mb_ms::text, 'free', p.free,
           'description', p.description)
         from usage_part p where p.hour_id = h.id and p.sent_at is null order by p.part limit 1) as part
     from usage_hour h where h.id = $1::uuid`,
    [id, lateMs],
  );
  return row ?? null;
}

/**
 * Makes the next part of an hour: what was used beyond the parts before. Nothing when nothing is new. The hour's row is held, so
 * that no report comes between.
 */
export async function makePart(tx: Sql, id: string): Promise<void> {
  await tx.query('select 1 from usage_hour where id = $1::uuid for update', [id]);
  await tx.query(
    `with used as (
       select
         case when not bool_or(real) then 'simulated' when bool_or(real and (cpu_us is null or late or not final)) then 'cpu_unmeasured' end as free,
         coalesce(sum(cpu_us) filter (where real), 0)::bigint as cpu,
         coalesce(sum(running_ms::numeric * memory_mb) filter (where real), 0) as memory
       from usage_life where hour_id = $1::uuid
     ), target as (
       select h.*, coalesce(h.free, u.free) as free_now, u.memory as memory_now,
         -- Once not measured, an hour's processor time stays free; what was charged before stays charged.
         case when coalesce(h.free, u.free) is null then greatest(u.cpu, h.charged_cpu_us) else h.charged_cpu_us end as cpu_now
       from usage_hour h, used u where h.id = $1::uuid
     ), made as (
       insert into usage_part (hour_id, account_id, part, cpu_us, memory_mb_ms, free, description)
       select t.id, t.account_id, t.parts + 1, t.cpu_now - t.charged_cpu_us, t.memory_now - t.charged_memory, t.free_now,
         coalesce((select a.name from app a where a.id = t.app_id), 'a deleted app')
           || case t.kind when 'run' then ', job runs, ' else ', on demand, ' end
           || to_char(t.starts_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI "UTC"')
       from target t
       where t.parts = 0 or t.cpu_now > t.charged_cpu_us or t.memory_now > t.charged_memory or t.free_now is distinct from t.free
       returning hour_id)
     update usage_hour h set changed = false, free = t.free_now, charged_cpu_us = t.cpu_now, charged_memory = t.memory_now,
       parts = h.parts + (select count(*)::int from made)
     from target t where h.id = t.id`,
    [id],
  );
}
