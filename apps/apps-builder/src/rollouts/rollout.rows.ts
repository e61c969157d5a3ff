import { randomUUID } from 'node:crypto';
import type { Sql } from '@nebo/persistence';
import { orderPort } from '../networks/port.rows.js';

/** An app as its rollout sees it, with all that it consists of. */
export interface RolloutApp {
  id: string;
  account_id: string;
  region_id: string;
  deleted: boolean;
  deploy_strategy: string;
  replica_count: number;
  /** Run once by each version that is deployed, before it serves; null or empty: there is none. */
  predeploy_command: string | null;
  /** Its account is: nothing of it runs. */
  suspended: boolean;
  /** The private network that its replicas shall be in; null: none. */
  vpc_id: string | null;
  /** Why they are not all there, as the build shows it; null: it shows nothing of that. */
  network_fault: string | null;
  target_revision_id: string | null;
  rolling_revision_id: string | null;
  current_revision_id: string | null;
  current_build_id: string | null;
  /** Milliseconds until a restart is due; null: none is. */
  restart_in: number | null;
  /** The newest build was made, but its replicas never came up. */
  never_booted: boolean;
  revisions: RolloutRevision[];
  replicas: RolloutReplica[];
}

/** A revision: a build with size and variables. */
export interface RolloutRevision {
  id: string;
  build_id: string;
  /** `restart`: the build is the one of before, with other variables or another size. `rollback`: it is an earlier one. */
  cause: 'deploy' | 'restart' | 'rollback';
  artifact_kind: 'static' | 'server';
  artifact_sha256: string;
  artifact_bytes: number;
  vcpu: number;
  memory_mb: number;
}

/** A replica that the region still has, or shall have. */
export interface RolloutReplica {
  id: string;
  revision_id: string;
  gone: boolean;
  /** Milliseconds until it shall go; null: it shall stay. */
  retire_in: number | null;
  /** As reported for the wanted generation or an earlier one; null: not yet. */
  state: 'starting' | 'ready' | 'sleeping' | 'failed' | 'gone' | null;
  reason: string | null;
  host: string | null;
  port: number | null;
  /** May sleep; what it is made for decides, not what the app has become since. */
  on_demand: boolean;
  /** An edge can have it woken. */
  wakeable: boolean;
  /** It was ready at least once. */
  proven: boolean;
  /** Crashes in a row. */
  crashes: number;
  /** The private network that it was made for; null: none. */
  vpc_id: string | null;
  /** Networking gave it no address and will give none. */
  refused: boolean;
  /** Why it has had no address for ten seconds; null: it has one, needs none, or may get one at any moment. */
  trouble: string | null;
}

/** Reads an app for its rollout; null when its row is gone. */
export async function loadRollout(tx: Sql, id: string): Promise<RolloutApp | null> {
  const [app] = await tx.query<Omit<RolloutApp, 'revisions' | 'replicas'>>(
    `select id, account_id, region_id, deleted_at is not null as deleted, deploy_strategy, replica_count, predeploy_command, suspended, vpc_id,
       network_fault, target_revision_id, rolling_revision_id, current_revision_id, current_build_id,
       (extract(epoch from restart_at - now()) * 1000)::float8 as restart_in,
       coalesce((select deploy_state = 'never_booted' from build where app_id = app.id order by seq desc limit 1), false) as never_booted
     from app where id = $1::uuid`,
    [id],
  );
  if (!app) return null;
  const revisions = await tx.query<RolloutRevision>(
    `select r.id, r.build_id, r.cause, b.artifact_kind, b.artifact_sha256, b.artifact_bytes::float8 as artifact_bytes, r.vcpu, r.memory_mb
     from revision r join build b on b.id = r.build_id where r.id = any($1::uuid[])`,
    [
      [app.target_revision_id, app.rolling_revision_id, app.current_revision_id].filter(
        (revision) => revision !== null,
      ),
    ],
  );
  const replicas = await tx.query<RolloutReplica>(
    `select p.id, p.revision_id, p.gone, (extract(epoch from p.retire_at - now()) * 1000)::float8 as retire_in,
       p.observed_state as state, p.observed_reason as reason, p.host, p.port, p.idle_ms is not null as on_demand, p.wakeable,
       p.ready_at is not null as proven, p.crashes, p.vpc_id, t.refused is not null as refused,
       case when t.created_at < now() - interval '10 seconds' then t.trouble end as trouble
     from replica p left join app_port t on t.id = p.port_id
     where p.app_id = $1::uuid and p.ended_at is null order by p.created_at, p.id`,
    [id],
  );
  return { ...app, revisions, replicas };
}

/** Locks an app for a change by its rollout or build; null when it is deleted: then nothing may be made for it any more. */
export async function lockApp(tx: Sql, id: string): Promise<{ id: string } | null> {
  const [app] = await tx.query<{ id: string }>(
    'select id from app where id = $1::uuid and deleted_at is null for update',
    [id],
  );
  return app ?? null;
}

/**
 * Makes a build with today's size and variables the revision that shall serve.
 * @param cause deploy, restart, or rollback: an earlier build anew
 */
export async function makeRevision(
  tx: Sql,
  appId: string,
  buildId: string,
  cause: RolloutRevision['cause'],
): Promise<string> {
  const id = randomUUID();
  await tx.query(
    `insert into revision (id, account_id, app_id, build_id, cause, vcpu, memory_mb, env)
     select $1::uuid, account_id, id, $3::uuid, $4, replica_vcpu, replica_memory_mb,
       (select coalesce(jsonb_agg(jsonb_build_object('name', name, 'sealed', encode(sealed, 'base64'), 'secret', is_secret) order by name), '[]')
        from env_var where app_id = $2::uuid)
     from app where id = $2::uuid`,
    [id, appId, buildId, cause],
  );
  await tx.query('update app set target_revision_id = $2::uuid where id = $1::uuid', [appId, id]);
  await endOvertaken(tx, appId);
  return id;
}

/**
 * Ends the builds of an app that were on their way and will not go live any more, since nothing of them is wanted or rolls:
 * cancelled (interfaces.md, 10), but for one that served before, which can serve again; the one that serves goes on doing so.
 */
export async function endOvertaken(tx: Sql, appId: string): Promise<void> {
  await tx.query(
    `update build b set status = case when o.served then b.status else 'cancelled' end,
       deploy_state = case when o.serves then 'live' when o.served then 'never_booted' end,
       error = case when o.served then b.error else 'overtaken by a newer build' end,
       boot_error = case when o.serves then null when o.served then 'overtaken by a newer deploy' else b.boot_error end
     from (
       select n.id, n.id is not distinct from a.current_build_id as serves, n.id is not distinct from a.current_build_id
         or exists (select 1 from revision r where r.build_id = n.id and r.cause = 'rollback') as served
       from build n join app a on a.id = n.app_id
       where a.id = $1::uuid and n.status = 'success' and n.deploy_state in ('rolling', 'unverified')
         and not exists (select 1 from revision r where r.build_id = n.id
           and r.id in (a.target_revision_id, a.rolling_revision_id))) o
     where b.id = o.id`,
    [appId],
  );
}

/**
 * Orders replicas of a revision from the region. The readiness path is that of now: a change counts at the next start. They
 * may sleep if the app is on demand now, for as long as they live. In a private network each has a port of its own, and the
 * region hears of it once that is claimed.
 */
export async function orderReplicas(
  tx: Sql,
  app: { id: string },
  revisionId: string,
  count: number,
  times: { readyTimeoutMs: number; idleTimeoutMs: number },
): Promise<void> {
  if (count <= 0) return;
  const [now] = await tx.query<{ vpc_id: string | null }>('select vpc_id from app where id = $1::uuid', [
    app.id,
  ]);
  for (let made = 0; made < count; made += 1) {
    const id = randomUUID();
    const { vpc_id } = now!;
    const port = await orderPort(tx, app.id, vpc_id, { replica_id: id });
    await tx.query(
      `insert into replica (id, account_id, app_id, revision_id, region_id, readiness_path, ready_timeout_ms, idle_ms, vpc_id, port_id)
       select $1::uuid, a.account_id, a.id, r.id, a.region_id, coalesce(a.readiness_path, ''), $3::int,
         case when a.replica_count = 0 then $4::int end, $5::uuid, $6::uuid
       from revision r join app a on a.id = r.app_id where r.id = $2::uuid`,
      [id, revisionId, times.readyTimeoutMs, times.idleTimeoutMs, vpc_id, port],
    );
  }
}

/** Takes replicas away now. */
export async function removeReplicas(tx: Sql, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  await tx.query(
    'update replica set gone = true, generation = generation + 1 where id = any($1::uuid[]) and not gone',
    [ids],
  );
}

/** Lets replicas go on for requests that run, for so many milliseconds; routes must leave them out from now on. */
export async function retireReplicas(tx: Sql, ids: readonly string[], drainMs: number): Promise<void> {
  if (ids.length === 0) return;
  await tx.query(
    `update replica set retire_at = now() + $2::int * interval '1 millisecond' where id = any($1::uuid[]) and not gone and retire_at is null`,
    [ids, drainMs],
  );
}

/** Gives replicas that were about to go their drain time anew. */
export async function postponeRetirement(tx: Sql, ids: readonly string[], drainMs: number): Promise<void> {
  await tx.query(
    `update replica set retire_at = now() + $2::int * interval '1 millisecond' where id = any($1::uuid[]) and not gone`,
    [ids, drainMs],
  );
}

/**
 * Milliseconds until a crashed replica of a revision may be replaced: 2, 4, 8, … s by failures of the last ten minutes, at most
 * 5 min. What failed in another network says nothing of this one.
 */
export async function replaceIn(tx: Sql, revisionId: string, vpcId: string | null): Promise<number> {
  const [row] = await tx.query<{ failures: number; since: number }>(
    `select count(*)::int as failures, coalesce(extract(epoch from now() - max(received_at)) * 1000, 0)::float8 as since
     from replica where revision_id = $1::uuid and observed_state = 'failed' and received_at > now() - interval '10 minutes'
       and vpc_id is not distinct from $2::uuid`,
    [revisionId, vpcId],
  );
  const { failures, since } = row!;
  return failures === 0 ? 0 : Math.max(0, Math.min(300_000, 1_000 * 2 ** failures) - since);
}
