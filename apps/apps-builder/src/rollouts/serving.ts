import type { Sql } from '@nebo/persistence';
import { showNetwork } from '../networks/network-fault.js';
import type { Settings } from '../shared/settings.js';
import {
  fits,
  isCrashing,
  isDue,
  isInPlace,
  isUsable,
  nothing,
  plan,
  replicasWanted,
  revisionOf,
  targetOf,
} from './rollout.replicas.js';
import {
  lockApp,
  orderReplicas,
  postponeRetirement,
  removeReplicas,
  replaceIn,
  retireReplicas,
  type RolloutApp,
  type RolloutReplica,
  type RolloutRevision,
} from './rollout.rows.js';
import { routesConfirmed, writeRoutes } from './route.rows.js';
import { settleSpan } from './span.rows.js';

/** What serves while nothing rolls: kept as it shall be, with its routes. */
export class Serving {
  constructor(
    private readonly settings: Pick<Settings, 'drainMs' | 'edgeSeenMs' | 'readyTimeoutMs' | 'idleTimeoutMs'>,
  ) {}

  /**
   * Keeps the serving revision as it shall be: as many replicas as wanted, crashed ones replaced, routes to ready ones only.
   * @returns milliseconds after which to look again
   */
  async keep(tx: Sql, app: RolloutApp): Promise<number> {
    if ((await lockApp(tx, app.id)) === null) return 0;
    const retired = app.replicas.filter((replica) => !replica.gone && isDue(replica.retire_in));
    const retiredIds = retired.map(({ id }) => id);
    let postponed = Infinity;
    // As long as no edge has said that it sends elsewhere, requests may still come to them.
    if (retired.length === 0 || (await routesConfirmed(tx, app.id, this.settings.edgeSeenMs)))
      await removeReplicas(tx, retiredIds);
    else {
      postponed = this.settings.drainMs;
      await postponeRetirement(tx, retiredIds, postponed);
    }
    let again = Math.min(
      postponed,
      ...app.replicas.map(({ gone, retire_in }) =>
        !gone && retire_in !== null && retire_in > 0 ? retire_in : Infinity,
      ),
    );
    const current = revisionOf(app, app.current_revision_id);
    const mine = app.replicas.filter(
      (replica) => replica.revision_id === current?.id && !replica.gone && replica.retire_in === null,
    );
    const failed = mine.filter((replica) => replica.state === 'failed');
    await removeReplicas(
      tx,
      failed.map(({ id }) => id),
    );
    // Left over by a revision that was overtaken or failed after the routes had led to it.
    const strays = app.replicas.filter(
      (replica) => replica.revision_id !== current?.id && !replica.gone && replica.retire_in === null,
    );
    await retireReplicas(
      tx,
      strays.map(({ id }) => id),
      this.settings.drainMs,
    );
    if (strays.length > 0) again = Math.min(again, this.settings.drainMs);
    const alive = mine.filter((replica) => replica.state !== 'failed');
    if (current?.artifact_kind === 'server') {
      const wanted = replicasWanted(app);
      const right = alive.filter((replica) => fits(app, replica));
      const leaving = await this.leaveNetwork(tx, app);
      const { missing, surplus } = plan(app, right);
      if (missing > 0 && !leaving) {
        const pause = await replaceIn(tx, current.id, app.vpc_id);
        if (pause === 0) await orderReplicas(tx, app, current.id, missing, this.settings);
        else again = Math.min(again, pause);
      }
      // From on demand to permanent, or back: those of before go when the others are there.
      const replaced = right.filter(isUsable).length >= wanted;
      if (replaced) surplus.push(...alive.filter((replica) => !fits(app, replica)));
      await retireReplicas(
        tx,
        surplus.map(({ id }) => id),
        this.settings.drainMs,
      );
      for (const replica of surplus) replica.retire_in = this.settings.drainMs;
      if (surplus.length > 0) again = Math.min(again, this.settings.drainMs);
      const serves = alive.some((replica) => isUsable(replica) && !isCrashing(replica));
      await this.showHealth(tx, current, serves, failed[0] ?? alive.find(isCrashing) ?? null);
      await showNetwork(tx, app, { current, mine, serves });
    }
    await this.routesOfCurrent(tx, app);
    await settleSpan(tx, app, current);
    return again;
  }

  /**
   * `recreate`: nothing runs in the new network beside the old one. Rolling replicas leave one by one (`plan`).
   * @returns whether the region still has some of the old one
   */
  private async leaveNetwork(tx: Sql, app: RolloutApp): Promise<boolean> {
    if (app.deploy_strategy !== 'recreate') return false;
    const away = app.replicas.filter((replica) => !isInPlace(app, replica));
    await removeReplicas(
      tx,
      away.map(({ id }) => id),
    );
    for (const replica of away) replica.gone = true;
    return away.length > 0;
  }

  /**
   * `failing` with the last crash and the end of its log once a live build has no replica left that answers, `live` again
   * when one does, or sleeps soundly.
   */
  private async showHealth(
    tx: Sql,
    current: RolloutRevision,
    ready: boolean,
    failed: RolloutReplica | null,
  ): Promise<void> {
    if (ready) {
      await tx.query(
        "update build set deploy_state = 'live', boot_error = null where id = $1::uuid and deploy_state = 'failing'",
        [current.build_id],
      );
    } else if (failed) {
      await tx.query(
        "update build set deploy_state = 'failing', boot_error = $2 where id = $1::uuid and deploy_state in ('live', 'failing')",
        [current.build_id, failed.reason ?? 'the replica stopped'],
      );
    }
  }

  /** What visitors read says nothing of the app's inside: why it did not start stands in the build's `boot_error`. */
  async routesOfCurrent(tx: Sql, app: RolloutApp): Promise<void> {
    const current = revisionOf(app, app.current_revision_id);
    if (current) await writeRoutes(tx, app, current.build_id, targetOf(app, current));
    else
      await writeRoutes(
        tx,
        app,
        null,
        nothing(app.never_booted ? 'the newest deploy did not start' : 'nothing is deployed yet'),
      );
  }
}
