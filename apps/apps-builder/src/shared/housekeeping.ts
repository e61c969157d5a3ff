import { Inject, Injectable } from '@nestjs/common';
import { Database } from '@nebo/persistence';
import { PeriodicHousekeeping, RUNTIME, type Runtime } from '@nebo/service-kit';
import { Blobs } from './blobs.js';

/** How long things are kept that nobody needs any more. */
const keep = {
  deletedApps: '7 days',
  endedReplicas: '1 day',
  removedRoutes: '1 day',
  silentEdges: '1 day',
  runtimeLog: '7 days',
  /** More than the 7 days in which a delivery must be known again. */
  deliveries: '30 days',
  deletedConnections: '7 days',
  authorizations: '1 day',
  jobRuns: '30 days',
  usage: '60 days',
} as const;

/** Runs of one app that are kept at most: a job of every minute leaves 43,200 in 30 days. */
const keptRuns = 10_000;

/** Forgets what is over: deleted apps with all their rows, ended replicas, old log lines, bytes that no row owns. */
@Injectable()
export class Housekeeping extends PeriodicHousekeeping {
  constructor(
    private readonly database: Database,
    private readonly blobs: Blobs,
    @Inject(RUNTIME) runtime: Runtime,
  ) {
    super('apps-builder', runtime.log);
  }

  async run(): Promise<void> {
    await this.database.transaction(async (tx) => {
      // What goes raises its feed's `pruned`: a reader that is behind it gets everything instead of a delta with a hole.
      await tx.query(
        `with gone as (
           delete from replica where ended_at < now() - interval '${keep.endedReplicas}' returning region_id, change)
         update feed set pruned = greatest(pruned, most) from (select region_id, max(change) as most from gone group by 1) g
         where feed.name = 'wanted:' || g.region_id and most is not null`,
      );
      await tx.query(
        `with gone as (
           delete from route where removed_at < now() - interval '${keep.removedRoutes}' returning change)
         update feed set pruned = greatest(pruned, (select coalesce(max(change), 0) from gone)) where name = 'routes'`,
      );
      await tx.query(`delete from edge where seen_at < now() - interval '${keep.silentEdges}'`);
      await tx.query(
        'delete from edge_route e where not exists (select 1 from route r where r.host = e.host)',
      );
      await tx.query(
        `with old as (
           select id from job_run where created_at < now() - interval '${keep.jobRuns}'
           union select id from (select id, row_number() over (partition by app_id order by seq desc) as place from job_run) n
             where place > ${keptRuns}
         ), gone as (
           delete from job_run r using old where r.id = old.id and r.status not in ('queued', 'running')
             and not exists (select 1 from app_port t where t.run_id = r.id)
           returning r.region_id, r.change)
         update feed set pruned = greatest(pruned, most) from (select region_id, max(change) as most from gone group by 1) g
         where feed.name = 'wanted:' || g.region_id and most is not null`,
      );
      await tx.query(`delete from runtime_log_line where stored_at < now() - interval '${keep.runtimeLog}'`);
      await tx.query(
        `delete from usage_hour h where ends_at < now() - interval '${keep.usage}'
           and not exists (select 1 from lifecycle l where l.kind = 'usage_hour' and l.id = h.id and l.ended_at is null)`,
      );
      await tx.query(`delete from delivery where received_at < now() - interval '${keep.deliveries}'`);
      await tx.query(
        `delete from git_authorization where created_at < now() - interval '${keep.authorizations}'`,
      );
      // Its webhooks are taken away before.
      await tx.query(
        `delete from git_connection c where deleted_at < now() - interval '${keep.deletedConnections}'
           and not exists (select 1 from git_hook h where h.connection_id = c.id)`,
      );
    });
    await this.database.transaction(async (tx) => {
      // An app whose rollout still lives is not over, however long ago it was deleted.
      const apps = await tx.query<{ id: string }>(
        `select id from app a where deleted_at < now() - interval '${keep.deletedApps}'
           and not exists (select 1 from app_domain d where d.app_id = a.id)
           and not exists (select 1 from lifecycle l where l.kind = 'rollout' and l.id = a.id and l.ended_at is null)
           and not exists (select 1 from app_port t where t.app_id = a.id)
           and not exists (select 1 from span s join lifecycle l on l.kind = 'span' and l.id = s.id where s.app_id = a.id and l.ended_at is null)
         limit 100`,
      );
      const ids = apps.map(({ id }) => id);
      await tx.query(
        `update feed set pruned = greatest(pruned, most) from (
           select region_id, max(change) as most from (
             select region_id, change from build where app_id = any($1::uuid[])
             union all select region_id, change from replica where app_id = any($1::uuid[])
             union all select region_id, change from job_run where app_id = any($1::uuid[])) c group by 1) g
         where feed.name = 'wanted:' || g.region_id and most is not null`,
        [ids],
      );
      await tx.query('delete from app where id = any($1::uuid[])', [ids]);
    });
    await this.blobs.collect();
  }
}
