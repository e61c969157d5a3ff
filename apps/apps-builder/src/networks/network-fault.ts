import type { Sql } from '@nebo/persistence';
import { isInPlace, isUsable, replicasWanted } from '../rollouts/rollout.replicas.js';
import type { RolloutApp, RolloutReplica, RolloutRevision } from '../rollouts/rollout.rows.js';

/** What serves now. */
export interface Serving {
  current: RolloutRevision;
  /** Replicas of the serving revision, those that failed included. */
  mine: readonly RolloutReplica[];
  /** One of them answers. */
  serves: boolean;
}

/**
 * Shows at the serving build why its replicas are not all in the network that the app names: `stale_serving` while others
 * serve, `failing` otherwise, and `live` again once all are there. What is kept at the app says that the word is this one's:
 * a build that is `stale_serving` for another reason stays so.
 */
export async function showNetwork(
  tx: Sql,
  app: RolloutApp,
  { current, mine, serves }: Serving,
): Promise<void> {
  const fault = faultOf(app, mine);
  if (fault !== null) {
    const shown = await tx.query(
      `update build set deploy_state = $2, boot_error = $3 where id = $1::uuid and (deploy_state = 'live' or $4::boolean)
       returning 1 as shown`,
      [current.build_id, serves ? 'stale_serving' : 'failing', fault, app.network_fault !== null],
    );
    if (shown.length > 0 && fault !== app.network_fault) await keep(tx, app, fault);
    return;
  }
  const settled =
    mine.every((replica) => isInPlace(app, replica)) && mine.filter(isUsable).length >= replicasWanted(app);
  if (app.network_fault === null || !settled) return;
  await tx.query(
    "update build set deploy_state = 'live', boot_error = null where id = $1::uuid and deploy_state in ('stale_serving', 'failing')",
    [current.build_id],
  );
  await keep(tx, app, null);
}

/** A replica without an address, or one that does not come up in the new network while others are in the old one. */
function faultOf(app: RolloutApp, mine: readonly RolloutReplica[]): string | null {
  const moving = mine.some((replica) => !isInPlace(app, replica));
  const failed = mine.find(
    (replica) => replica.state === 'failed' && isInPlace(app, replica) && (replica.refused || moving),
  );
  return failed?.reason ?? mine.find(({ trouble }) => trouble !== null)?.trouble ?? null;
}

const keep = (tx: Sql, { id }: RolloutApp, fault: string | null): Promise<unknown> =>
  tx.query('update app set network_fault = $2 where id = $1::uuid', [id, fault]);
