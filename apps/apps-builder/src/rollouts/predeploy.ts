import { randomUUID } from 'node:crypto';
import { start } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';
import { orderPort } from '../networks/port.rows.js';
import type { RolloutApp, RolloutRevision } from './rollout.rows.js';

/** So long the command may take; milliseconds. */
const timeoutMs = 15 * 60_000;

/** How the command of a version stands. */
export interface Predeploy {
  id: string;
  status: 'queued' | 'running' | 'success' | 'error' | 'timeout' | 'cancelled';
  error: string | null;
}

/** Whether a version has a command to run before it serves: one that was deployed and has a server to run it in. */
export const hasPredeploy = (app: RolloutApp, revision: RolloutRevision | null): boolean =>
  revision?.cause === 'deploy' && revision.artifact_kind === 'server' && Boolean(app.predeploy_command);

/**
 * The run of a version's command, begun by the first who asks: a replica of that version with its variables, its size and its
 * network, once. A change of the command afterwards is the next deploy's.
 */
export async function predeployRun(tx: Sql, app: RolloutApp, revision: RolloutRevision): Promise<Predeploy> {
  const read = () =>
    tx.query<Predeploy>(
      "select id, status, error from job_run where revision_id = $1::uuid and kind = 'predeploy'",
      [revision.id],
    );
  const [known] = await read();
  if (known) return known;
  const id = randomUUID();
  const made = await tx.query(
    `insert into job_run (id, account_id, app_id, revision_id, build_id, region_id, kind, command, timeout_ms, triggered_by)
     select $1::uuid, a.account_id, a.id, $3::uuid, $4::uuid, a.region_id, 'predeploy', $5, $6::int, 'deploy' from app a
     where a.id = $2::uuid on conflict do nothing returning 1 as made`,
    [id, app.id, revision.id, revision.build_id, app.predeploy_command, timeoutMs],
  );
  if (made.length > 0) {
    const port = await orderPort(tx, app.id, app.vpc_id, { run_id: id });
    if (port !== null)
      await tx.query('update job_run set port_id = $2::uuid where id = $1::uuid', [id, port]);
    await start(tx, 'job_run', id, 'queued');
  }
  return (await read())[0]!;
}

/** Why the version does not go on, as its build says it; null while the command runs, or when it was well. */
export function predeployFault({ id, status, error }: Predeploy): string | null {
  if (status === 'queued' || status === 'running' || status === 'success') return null;
  return `the pre-deploy command failed: ${error ?? status} (its log is in job run ${id})`;
}
