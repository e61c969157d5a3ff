import { say } from '@nebo/bus';
import type { RouteTarget } from '@nebo/contracts';
import type { Sql } from '@nebo/persistence';
import { says } from '../events.js';

/**
 * Sets what the edge serves for all hosts of an app that are shown to be its own. Unchanged routes stay untouched, so calling
 * it again costs the edge nothing.
 */
export async function writeRoutes(
  tx: Sql,
  app: { id: string; account_id: string },
  buildId: string | null,
  target: RouteTarget,
): Promise<void> {
  const written = await tx.query<{ host: string }>(
    `insert into route (host, account_id, app_id, build_id, target)
     select host, account_id, app_id, $2::uuid, $3::jsonb from app_domain where app_id = $1::uuid and verified_at is not null
       for share
     on conflict (host) do update set account_id = excluded.account_id, app_id = excluded.app_id, build_id = excluded.build_id,
       target = excluded.target, removed_at = null
     where (route.app_id, route.build_id, route.target, route.removed_at)
       is distinct from (excluded.app_id, excluded.build_id, excluded.target, null::timestamptz)
     returning host`,
    [app.id, buildId, JSON.stringify(target)],
  );
  const removed = await tx.query<{ host: string }>(
    `update route set removed_at = now() where app_id = $1::uuid and removed_at is null
       and not exists (select 1 from app_domain d where d.host = route.host and d.app_id = $1::uuid and d.verified_at is not null)
     returning host`,
    [app.id],
  );
  const hosts = [...written, ...removed].map(({ host }) => host);
  if (hosts.length > 0)
    await say(tx, says.routeChanged({ app_id: app.id, hosts }, { account: app.account_id }));
}

/** Who serves an app's routes as they are now. */
export interface Witness {
  /** At least one edge serves all of them. */
  confirmed: boolean;
  /** Edges that were seen a moment ago. */
  edges: number;
  /** Those of them that do not serve all of them yet, by name. */
  behind: string[];
}

/**
 * Asks who serves an app's routes. An edge counts while it was heard of within `seenMs`; one that was overdue before counts
 * again when it has confirmed something since.
 */
export async function witness(tx: Sql, appId: string, seenMs: number): Promise<Witness> {
  const [row] = await tx.query<Witness>(
    `with wanted as (
       select host, change, coalesce(confirmed >= change, false) as served
       from route where app_id = $1::uuid and removed_at is null
     ), present as (
       select id, exists (
         select 1 from wanted w left join edge_route e on e.edge_id = edge.id and e.host = w.host
         where w.change is null or e.confirmed is null or e.confirmed < w.change) as behind
       from edge where seen_at > clock_timestamp() - make_interval(secs => $2::float8 / 1000) and overdue_at is null
     )
     select coalesce((select bool_and(served) from wanted), true) as confirmed, (select count(*)::int from present) as edges,
       coalesce((select array_agg(id order by id) from present where behind), '{}') as behind`,
    [appId, seenMs],
  );
  return row!;
}

/** Whether every edge serves all routes of an app as they are now. */
export async function routesConfirmed(tx: Sql, appId: string, seenMs: number): Promise<boolean> {
  const { confirmed, behind } = await witness(tx, appId, seenMs);
  return confirmed && behind.length === 0;
}

/** What a deploy waits for, as a sentence; null: for nothing. */
export function waitingFor({ confirmed, edges, behind }: Witness): string | null {
  if (!confirmed) return 'no edge has confirmed the routes';
  if (behind.length === 0) return null;
  const names = behind.slice(0, 3).map((id) => id.slice(0, 8));
  const more = behind.length > names.length ? ' and others' : '';
  const verb = behind.length === 1 ? 'has' : 'have';
  return `${behind.length} of ${edges} edges ${verb} not confirmed the routes yet: ${names.join(', ')}${more}`;
}

/** Edges that had all the time there is: nobody waits for them until they confirm something again. */
export async function passOverEdges(tx: Sql, ids: readonly string[]): Promise<void> {
  await tx.query('update edge set overdue_at = now() where id = any($1::text[]) and overdue_at is null', [
    ids,
  ]);
}
