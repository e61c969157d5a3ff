import { type Sql, sqlArray, type SqlValue } from '@nebo/persistence';

/** The lease is lost: another worker has the thing, and what this one wanted to write was refused. */
export class LeaseLost extends Error {
  override name = 'LeaseLost';
  constructor(kind: string, id: string, state: string) {
    super(`the lease of ${kind} ${id} was lost in state ${state}; its write is refused`);
  }
}

/** A thing that this worker holds, as of its last read. */
export interface Claim {
  kind: string;
  id: string;
  state: string;
  fence: bigint;
  wakes: bigint;
  attempt: number;
  /** Whether the worker before neither wrote the end of its step nor gave the lease back: it was killed, say. */
  orphaned: boolean;
  enteredAt: Date;
  /** Milliseconds in this state at the time of reading, by PostgreSQL's clock. */
  ageMs: number;
  reason: string | null;
}

/** What can be seen of a life from outside. */
export interface LifecycleRow {
  state: string;
  reason: string | null;
  attempt: number;
  enteredAt: Date;
  deadlineAt: Date | null;
  endedAt: Date | null;
}

const ms = (parameter: string) => `${parameter}::float8 * interval '1 millisecond'`;

/**
 * Begins the life of a thing, in the transaction that makes it. A worker takes its first step at once after the commit.
 * A life that has ended may begin again.
 * @param firstAt when the first step is due, if its state would only wait until then; now when absent
 * @throws Error when it already lives
 */
export async function start(
  tx: Sql,
  kind: string,
  id: string,
  state: string,
  firstAt: Date | null = null,
): Promise<void> {
  const rows = await tx.query(
    `insert into lifecycle as l (kind, id, state, run_at)
     values ($1::text, $2::uuid, $3::text, coalesce($4::timestamptz, now()))
     on conflict (kind, id) do update set state = excluded.state, entered_at = now(), run_at = excluded.run_at, deadline_at = null,
       attempt = 0, fence = l.fence + 1, wakes = l.wakes + 1, lease_owner = null, lease_until = null, reason = null,
       ended_at = null
     where l.ended_at is not null
     returning 1 as begun`,
    [kind, id, state, firstAt],
  );
  if (rows.length === 0) throw new Error(`${kind} ${id} already has a life`);
}

/**
 * Has the next step taken now, in the transaction that changed what is wanted. Never lost: a step that runs meanwhile
 * is followed by another one, whatever it decides.
 * @returns false when the thing has no life or it has ended
 */
export async function wake(tx: Sql, kind: string, id: string): Promise<boolean> {
  const rows = await tx.query(
    `update lifecycle set wakes = wakes + 1, run_at = now()
     where kind = $1::text and id = $2::uuid and ended_at is null returning 1 as woken`,
    [kind, id],
  );
  return rows.length === 1;
}

/** The same for several things of a kind, in one statement. The caller holds their rows, so that nobody meets it half-way. */
export async function wakeAll(tx: Sql, kind: string, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  await tx.query(
    `update lifecycle set wakes = wakes + 1, run_at = now()
     where kind = $1::text and id = any($2::uuid[]) and ended_at is null`,
    [kind, ids],
  );
}

/** The life of a thing as it is now, null when it never had one. */
export async function look(sql: Sql, kind: string, id: string): Promise<LifecycleRow | null> {
  const [row] = await sql.query<LifecycleRow>(
    `select state, reason, attempt, entered_at as "enteredAt", deadline_at as "deadlineAt", ended_at as "endedAt"
     from lifecycle where kind = $1::text and id = $2::uuid`,
    [kind, id],
  );
  return row ?? null;
}

/** A step that has failed so often in a row, over about a quarter of a minute, will not get better by itself. */
const failingAfter = 5;

/**
 * How many things of each kind are in which state, and of how many the step goes on failing, for metrics; ended ones are left
 * out.
 */
export async function countStates(
  sql: Sql,
): Promise<{ kind: string; state: string; count: number; failing: number }[]> {
  return sql.query(
    `select kind, state, count(*)::int as count, (count(*) filter (where attempt >= ${failingAfter}))::int as failing
     from lifecycle where ended_at is null group by 1, 2`,
  );
}

/** What a look at the table brought. */
export interface Taken {
  claims: Claim[];
  /** Milliseconds until something else is due that nobody holds, 0 or less when it is; Infinity when nothing will be. */
  leftMs: number;
}

/** Takes the lease of up to `limit` things that are due and that nobody holds, and says when the next one is due. */
export async function claim(
  sql: Sql,
  kinds: readonly string[],
  limit: number,
  owner: string,
  leaseMs: number,
): Promise<Taken> {
  const rows = await sql.query<Claim & { kind: string | null; leftMs: number | null }>(
    `with due as materialized (
       select kind, id, lease_owner is not null as orphaned from lifecycle
       where ended_at is null and run_at <= now() and (lease_until is null or lease_until < now())
         and kind = any($1::text[])
       order by run_at limit $2::int for update skip locked
     ), taken as (
       update lifecycle l set fence = l.fence + 1, attempt = l.attempt + 1, lease_owner = $3::text,
         lease_until = now() + ${ms('$4')}
       from due where l.kind = due.kind and l.id = due.id
       returning l.kind, l.id, l.state, l.fence, l.wakes, l.attempt, due.orphaned, l.entered_at as "enteredAt", l.reason,
         (extract(epoch from now() - l.entered_at) * 1000)::float8 as "ageMs"
     ), next as (
       select run_at from lifecycle l
       where ended_at is null and run_at < 'infinity' and (lease_until is null or lease_until < now())
         and kind = any($1::text[]) and not exists (select 1 from due where due.kind = l.kind and due.id = l.id)
       order by run_at limit 1
     )
     select taken.*, (select (extract(epoch from run_at - now()) * 1000)::float8 from next) as "leftMs"
     from (values (1)) one left join taken on true`,
    [kinds, limit, owner, leaseMs],
  );
  const leftMs = rows[0]?.leftMs ?? Infinity;
  return {
    claims: rows.filter(({ kind }) => kind !== null).map(({ leftMs: _left, ...taken }) => taken),
    leftMs,
  };
}

/** How often things in hand have been woken, without touching them. @returns those still held by this fence */
export function wakesOf(
  sql: Sql,
  held: readonly { kind: string; id: string; fence: bigint }[],
): Promise<{ kind: string; id: string; fence: bigint; wakes: bigint }[]> {
  return sql.query(
    `select l.kind, l.id, l.fence, l.wakes from lifecycle l
     join unnest($1::text[], $2::uuid[], $3::bigint[]) as h (kind, id, fence)
       on l.kind = h.kind and l.id = h.id and l.fence = h.fence
     where l.ended_at is null`,
    [
      sqlArray(held.map(({ kind }) => kind)),
      sqlArray(held.map(({ id }) => id)),
      sqlArray(held.map(({ fence }) => fence)),
    ],
  );
}

/**
 * Renews the leases that are still this worker's. A row that is locked at the moment is skipped, not waited for: nobody
 * can claim it meanwhile, and waiting for one row would let the leases of all others run out. A lease that its step has
 * just given back is not taken again (its fence is still the same, its owner is not).
 * @returns those still held, with their present count of wakes
 */
export async function renew(
  sql: Sql,
  held: readonly { kind: string; id: string; fence: bigint }[],
  leaseMs: number,
): Promise<{ kind: string; id: string; fence: bigint; wakes: bigint }[]> {
  return sql.query(
    `with held as (select * from unnest($1::text[], $2::uuid[], $3::bigint[]) as h (kind, id, fence)),
     free as (
       select l.kind, l.id from lifecycle l join held h on l.kind = h.kind and l.id = h.id and l.fence = h.fence
       where l.ended_at is null and l.lease_owner is not null for update of l skip locked
     ),
     renewed as (
       update lifecycle l set lease_until = now() + ${ms('$4')} from free where l.kind = free.kind and l.id = free.id
     )
     select l.kind, l.id, l.fence, l.wakes from lifecycle l
     join held h on l.kind = h.kind and l.id = h.id and l.fence = h.fence
     where l.ended_at is null and l.lease_owner is not null`,
    [
      held.map(({ kind }) => kind),
      held.map(({ id }) => id),
      held.map(({ fence }) => fence.toString()),
      leaseMs,
    ],
  );
}

const mine = 'where kind = $1::text and id = $2::uuid and fence = $3::bigint and ended_at is null';
const free = 'lease_owner = null, lease_until = null';
const key = (held: Claim) => [held.kind, held.id, held.fence.toString()] as const;

/** Fails in PostgreSQL when it writes nothing: a commit that travels with it must not happen then. */
const guarded = (update: string) =>
  `with written as (${update}) select written.* from (values (1)) one left join written on true
   where lease_held((select count(*) from written))`;

/** The refusal of a guarded write. */
export function lostIn(error: unknown, { kind, id, state }: Pick<Claim, 'kind' | 'id' | 'state'>): unknown {
  return (error as { code?: string } | null)?.code === 'NBLSE' ? new LeaseLost(kind, id, state) : error;
}

async function write<R>(tx: Sql, held: Claim, update: string, values: readonly SqlValue[]): Promise<R> {
  try {
    return (await tx.query<R>(guarded(update), [...key(held), ...values]))[0]!;
  } catch (error) {
    throw lostIn(error, held);
  }
}

/**
 * Writes the next state and keeps the lease. The fence rises too when `newFence` is set: then nothing that the old
 * state's method still does can be written.
 * @throws LeaseLost
 */
export async function writeGo(
  tx: Sql,
  held: Claim,
  next: {
    state: string;
    deadlineMs: number | null;
    reason: string | null;
    leaseMs: number;
    newFence: boolean;
  },
): Promise<Claim> {
  return write<Claim>(
    tx,
    held,
    // Its time stays the one that it was claimed at: the lease says that it is in hand, and the index need not hear of it.
    `update lifecycle set state = $4::text, entered_at = now(), deadline_at = now() + ${ms('$5')},
       attempt = 1, reason = $6::text, lease_until = clock_timestamp() + ${ms('$7')}, fence = fence + $8::int
     ${mine}
     returning kind, id, state, fence, wakes, attempt, false as orphaned, entered_at as "enteredAt", reason, 0::float8 as "ageMs"`,
    [next.state, next.deadlineMs, next.reason, next.leaseMs, next.newFence ? 1 : 0],
  );
}

/**
 * Writes the next state, which waits to be woken, and gives the lease back.
 * @returns milliseconds until it is due, 0 or less when it was woken meanwhile
 * @throws LeaseLost
 */
export async function writeRest(
  tx: Sql,
  held: Claim,
  next: { state: string; deadlineMs: number | null; reason: string | null },
): Promise<number> {
  const { left } = await write<{ left: number | null }>(
    tx,
    held,
    `update lifecycle set ${free}, state = $4::text, entered_at = now(), attempt = 0, reason = $6::text,
       deadline_at = now() + ${ms('$5')},
       run_at = case when wakes <> $7::bigint then now() else coalesce(now() + ${ms('$5')}, 'infinity') end
     ${mine} returning case when run_at < 'infinity' then (extract(epoch from run_at - now()) * 1000)::float8 end as left`,
    [next.state, next.deadlineMs, next.reason, held.wakes.toString()],
  );
  return left ?? Infinity;
}

/**
 * Writes that the state waits and gives the lease back. A wake that came in since the step's subject was read makes it
 * due at once; the deadline makes it due at the latest.
 * @param waitMs null until woken
 * @returns milliseconds until it is due, 0 or less when it is already; Infinity when nothing but a wake makes it so
 * @throws LeaseLost
 */
export async function writeWait(
  tx: Sql,
  held: Claim,
  next: { waitMs: number | null; deadlineMs: number | null; reason: string | null; attempt: number },
): Promise<number> {
  const { left } = await write<{ left: number | null }>(
    tx,
    held,
    `update lifecycle set ${free}, attempt = $7::int, reason = coalesce($6::text, reason),
       deadline_at = entered_at + ${ms('$5')},
       run_at = case when wakes <> $8::bigint then now()
         else least(coalesce(now() + ${ms('$4')}, 'infinity'), entered_at + ${ms('$5')}) end
     ${mine} returning case when run_at < 'infinity' then (extract(epoch from run_at - now()) * 1000)::float8 end as left`,
    [next.waitMs, next.deadlineMs, next.reason, next.attempt, held.wakes.toString()],
  );
  return left ?? Infinity;
}

/** Writes the end of a life. @throws LeaseLost */
export async function writeEnd(tx: Sql, held: Claim, reason: string | null): Promise<void> {
  await write(
    tx,
    held,
    `update lifecycle set ${free}, ended_at = now(), run_at = 'infinity', deadline_at = null, reason = $4::text
     ${mine} returning 1 as written`,
    [reason],
  );
}

/** Gives a lease back undone, at shutdown; the fence rises, so that a step which still runs can write nothing. */
export async function release(sql: Sql, held: Claim): Promise<void> {
  await sql.query(
    `update lifecycle set ${free}, run_at = now(), attempt = greatest(attempt - 1, 0), fence = fence + 1 ${mine}`,
    [...key(held)],
  );
}

/** Deletes lives that ended longer than `keepMs` ago, in batches. @returns number of rows deleted */
export async function pruneEnded(sql: Sql, keepMs: number, batch = 1_000): Promise<number> {
  for (let total = 0; ;) {
    const rows = await sql.query(
      `delete from lifecycle where (kind, id) in (
         select kind, id from lifecycle where ended_at < now() - ${ms('$1')} limit $2::int for update skip locked)
       returning 1 as gone`,
      [keepMs, batch],
    );
    total += rows.length;
    if (rows.length < batch) return total;
  }
}
