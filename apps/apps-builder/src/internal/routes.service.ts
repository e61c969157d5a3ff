import { Injectable } from '@nestjs/common';
import type { Route, RoutesAnswer, RoutesApplied, RouteTarget } from '@nebo/contracts';
import { wake } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import { Changes, conflict, cursorOf, type Feed, numberAfter, numberIn } from '@nebo/service-kit';
import type { Topic } from '../shared/topics.js';
import { confirmAtEdge, forgetEdge, seeEdge } from './edges.rows.js';

interface RouteRow {
  host: string;
  app_id: string;
  account_id: string;
  build_id: string | null;
  target: RouteTarget;
  routing: Route['routing'];
  certificate: Route['certificate'];
  removed: boolean;
}

/** What the edge serves, as a feed, and what it says to serve. */
@Injectable()
export class RoutesService {
  constructor(
    private readonly database: Database,
    private readonly changes: Changes<Topic>,
  ) {}

  /**
   * Routes that changed after a version; waits while none does.
   * @param since null, or a version that is too old or another database's: everything
   * @param edge who asks, and is there from now on; null: somebody who serves nobody
   */
  async since(
    since: string | null,
    waitMs: number,
    gone: AbortSignal,
    edge: string | null,
  ): Promise<RoutesAnswer> {
    if (edge !== null) await this.database.transaction((tx) => seeEdge(tx, edge));
    const ear = this.changes.listen('routes');
    const over = AbortSignal.any([gone, this.changes.stopping]);
    const end = Date.now() + waitMs;
    try {
      for (;;) {
        const answer = await this.database.transaction((tx) => this.read(tx, since));
        const left = end - Date.now();
        if (answer.full || answer.routes.length + answer.removed.length > 0 || left <= 0 || over.aborted)
          return answer;
        await ear.next(left, over);
      }
    } finally {
      ear.close();
    }
  }

  /**
   * An edge serves a version. Whoever waits for that (a rollout in `switching`) goes on at once.
   * @throws ApiError 409 `unknown_version` for a version of another database: the edge should ask for everything
   */
  async applied({ version, routes, edge }: RoutesApplied): Promise<number> {
    return this.database.transaction(async (tx) => {
      const [feed] = await tx.query<Feed>("select * from feed where name = 'routes'");
      const number = numberIn(feed!, version);
      if (number === null)
        throw conflict('unknown_version', 'this version was not given here; ask for all routes');
      const list = routes === undefined ? null : JSON.stringify(routes);
      const rows = await tx.query<{ app_id: string }>(
        `update route set confirmed = $1::bigint
         where change <= $1::bigint and confirmed < change
           and ($2::jsonb is null or exists (
             select 1 from jsonb_to_recordset($2::jsonb) as r (host text, build_id uuid)
             where r.host = route.host and r.build_id is not distinct from route.build_id))
         returning app_id`,
        [number.toString(), list],
      );
      const apps = new Set(rows.map(({ app_id }) => app_id));
      // Beside what any edge has said: what this one has. A rollout asks for both.
      if (edge !== undefined) for (const app of await confirmAtEdge(tx, edge, number, list)) apps.add(app);
      for (const app of [...apps].sort()) await wake(tx, 'rollout', app);
      return rows.length;
    });
  }

  /** An edge stops in good order: whoever waits for it looks again. */
  async leave(edge: string): Promise<void> {
    await this.database.transaction(async (tx) => {
      for (const app of await forgetEdge(tx, edge)) await wake(tx, 'rollout', app);
    });
  }

  private async read(tx: Sql, since: string | null): Promise<RoutesAnswer> {
    const [feed] = await tx.query<Feed>('select * from number_routes()');
    const after = numberAfter(feed!, since);
    const rows = await tx.query<RouteRow>(
      `select r.host, r.app_id, r.account_id, r.build_id, r.target, b.routing, r.removed_at is not null as removed,
         (select jsonb_build_object('id', c.id, 'fingerprint', c.fingerprint)
          from app_domain d join certificate c on c.domain_id = d.id and c.fingerprint is not null
          where d.host = r.host and d.app_id = r.app_id and d.verified_at is not null) as certificate
       from route r left join build b on b.id = r.build_id
       where ($1::bigint is null and r.removed_at is null) or r.change > $1::bigint order by r.host`,
      [after?.toString() ?? null],
    );
    return {
      version: cursorOf(feed!),
      full: after === null,
      routes: rows.filter((row) => !row.removed).map(routeRecord),
      removed: rows.filter((row) => row.removed).map(({ host }) => host),
    };
  }
}

function routeRecord({ host, app_id, account_id, build_id, target, routing, certificate }: RouteRow): Route {
  return {
    host,
    app_id,
    account_id,
    build_id,
    target,
    ...(routing ? { routing } : {}),
    ...(certificate ? { certificate } : {}),
  };
}
