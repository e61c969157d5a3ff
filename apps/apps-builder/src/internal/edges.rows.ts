import type { Sql } from '@nebo/persistence';

/** A word of an edge is written down at most this often, seconds: it asks anew with every change of routes. */
const seenEverySeconds = 5;

/** An edge has asked for routes: it is there. */
export async function seeEdge(tx: Sql, id: string): Promise<void> {
  await tx.query(
    `insert into edge (id) values ($1) on conflict (id) do update set seen_at = clock_timestamp()
     where edge.seen_at < clock_timestamp() - make_interval(secs => $2::int)`,
    [id, seenEverySeconds],
  );
}

/**
 * An edge serves routes as of a change.
 * @param routes null: all up to that change
 * @returns the apps with routes that it did not have before
 */
export async function confirmAtEdge(
  tx: Sql,
  id: string,
  change: bigint,
  routes: string | null,
): Promise<string[]> {
  await seeEdge(tx, id);
  await tx.query('update edge set overdue_at = null where id = $1 and overdue_at is not null', [id]);
  const rows = await tx.query<{ app_id: string }>(
    `with served as (
       select r.host, r.app_id from route r left join edge_route e on e.edge_id = $1 and e.host = r.host
       where r.change <= $2::bigint and (e.confirmed is null or e.confirmed < r.change)
         and ($3::jsonb is null or exists (
           select 1 from jsonb_to_recordset($3::jsonb) as s (host text, build_id uuid)
           where s.host = r.host and s.build_id is not distinct from r.build_id))
       order by r.host
     ), noted as (
       insert into edge_route as e (edge_id, host, confirmed) select $1, host, $2::bigint from served
       on conflict (edge_id, host) do update set confirmed = greatest(e.confirmed, excluded.confirmed)
     )
     select distinct app_id from served`,
    [id, change.toString(), routes],
  );
  return rows.map(({ app_id }) => app_id);
}

/**
 * An edge has said goodbye.
 * @returns the apps that may have waited for it
 */
export async function forgetEdge(tx: Sql, id: string): Promise<string[]> {
  const gone = await tx.query('delete from edge where id = $1 returning id', [id]);
  if (gone.length === 0) return [];
  const rows = await tx.query<{ id: string }>(
    "select id from lifecycle where kind = 'rollout' and state in ('switching', 'unverified') and ended_at is null order by id",
  );
  return rows.map((row) => row.id);
}
