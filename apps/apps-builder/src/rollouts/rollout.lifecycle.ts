import { Injectable } from '@nestjs/common';
import { Lifecycle, minutes, type Outcome, seconds, State, type StepContext, wake } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import { showNetwork } from '../networks/network-fault.js';
import { Settings } from '../shared/settings.js';
import {
  loadRollout,
  lockApp,
  makeRevision,
  orderReplicas,
  postponeRetirement,
  removeReplicas,
  replaceIn,
  retireReplicas,
  type RolloutApp,
  type RolloutReplica,
  type RolloutRevision,
  routesConfirmed,
  writeRoutes,
} from './rollout.rows.js';
import {
  fits,
  isCrashing,
  isInPlace,
  isUsable,
  nothing,
  plan,
  replicasWanted,
  targetOf,
} from './rollout.replicas.js';
import { settleSpan } from './span.rows.js';

/** What the region might have lost without a word is compared this often. */
const compareMs = seconds(30);

/**
 * Life of an app in its region; one row an app, so that deploys, restarts, scaling and deletion never run at once.
 * idle ⇄ starting → switching → idle; failed back to idle; deleting → end.
 *
 * A new revision's replicas are started beside the old ones; when all are ready the routes switch, and when the edge has
 * confirmed that, the build is `live` and the old replicas go after a drain time. If the new ones fail, the old revision
 * has never stopped serving. `recreate` takes the old ones away first.
 *
 * An app on demand (`replica_count` 0) has one replica that may sleep. It is started once, to prove that it comes up, before
 * the routes lead to it; when it sleeps and wakes afterwards is between edge and agent, and only seen here.
 */
@Injectable()
export class RolloutLifecycle extends Lifecycle<RolloutApp> {
  override readonly kind = 'rollout';

  constructor(
    private readonly database: Database,
    private readonly settings: Settings,
  ) {
    super();
  }

  override load(tx: Sql, id: string): Promise<RolloutApp | null> {
    return loadRollout(tx, id);
  }

  /** Nothing rolls: keeps what serves as it shall be, and looks out for what is wanted next. */
  @State()
  async idle(app: RolloutApp): Promise<Outcome> {
    if (app.deleted) return this.go('deleting');
    if (isDue(app.restart_in)) return this.go('idle', (tx) => this.restart(tx, app));
    if (
      app.target_revision_id !== null &&
      app.target_revision_id !== app.current_revision_id &&
      mayBegin(app)
    )
      return this.begin(app);
    const again = await this.database.transaction((tx) => this.keep(tx, app));
    return this.wait(Math.min(again, app.restart_in ?? Infinity, compareMs));
  }

  /** The replicas of the new revision start; the old ones serve. */
  @State({ deadline: minutes(10), onMissed: 'failed' })
  async starting(app: RolloutApp): Promise<Outcome> {
    if (app.deleted) return this.go('deleting');
    if (isDue(app.restart_in)) return this.go('starting', (tx) => this.restart(tx, app));
    if (app.target_revision_id !== app.rolling_revision_id) return this.begin(app);
    const rolling = revisionOf(app, app.rolling_revision_id);
    if (rolling === null) return this.go('idle');
    if (rolling.artifact_kind === 'static')
      return this.go('switching', (tx) => this.switchRoutes(tx, app, rolling));
    if (app.suspended) return this.fail('the balance is used up and the account is suspended', 'failed');

    const others = app.replicas.filter(
      (replica) => replica.revision_id !== rolling.id || !isInPlace(app, replica),
    );
    if (app.deploy_strategy === 'recreate' && others.length > 0) {
      await this.database.transaction((tx) => this.clearTheWay(tx, app, others));
      return this.wait(compareMs, 'the old replicas have not stopped');
    }
    const own = app.replicas.filter((replica) => replica.revision_id === rolling.id && !replica.gone);
    const mine = own.filter((replica) => fits(app, replica) && isInPlace(app, replica));
    const failed = mine.find((replica) => replica.state === 'failed');
    if (failed) return this.fail(failed.reason ?? 'a replica failed before it was ready', 'failed');
    const wanted = replicasWanted(app);
    if (mine.length < wanted) {
      await this.database.transaction(async (tx) => {
        const locked = await lockApp(tx, app.id);
        if (locked) await orderReplicas(tx, app, rolling.id, wanted - mine.length, this.settings);
      });
      return this.wait(this.restartOr(app, compareMs), 'the region has not reported the replicas ready');
    }
    // Ordered before the app became on demand or ceased to be, or for another network: nobody is sent there yet.
    const misfits = own.filter((replica) => !mine.includes(replica));
    const surplus = [...mine.slice(wanted), ...misfits].map(({ id }) => id);
    if (surplus.length > 0) await this.database.transaction((tx) => removeReplicas(tx, surplus));
    const ready = mine.slice(0, wanted).filter(isUsable);
    if (ready.length < wanted) {
      const trouble = mine.find((replica) => replica.trouble !== null)?.trouble;
      return this.wait(
        this.restartOr(app, compareMs),
        trouble ?? 'the region has not reported the replicas ready',
      );
    }
    return this.go('switching', (tx) => this.switchRoutes(tx, app, rolling));
  }

  /** The routes lead to the new revision; waits until an edge serves them. */
  @State({ deadline: minutes(1), onMissed: 'unverified' })
  switching(app: RolloutApp): Promise<Outcome> {
    return this.confirm(app);
  }

  /** No edge has confirmed in time: said so, and waited on. Only here may a newer revision overtake. */
  @State()
  async unverified(app: RolloutApp, { reason }: StepContext): Promise<Outcome> {
    if (!app.deleted && isDue(app.restart_in)) return this.go('unverified', (tx) => this.restart(tx, app));
    if (!app.deleted && app.target_revision_id !== app.rolling_revision_id) return this.begin(app, true);
    const rolling = revisionOf(app, app.rolling_revision_id);
    if (rolling && !app.deleted) {
      await this.database.transaction((tx) =>
        tx.query(
          "update build set deploy_state = 'unverified', boot_error = $2 where id = $1::uuid and deploy_state = 'rolling'",
          [rolling.build_id, reason ?? 'no edge has confirmed the routes yet'],
        ),
      );
    }
    return this.confirm(app);
  }

  /** The new revision did not come up: the old one goes on, and the build says why. */
  @State()
  failed(app: RolloutApp, { reason }: StepContext): Outcome {
    return this.go(app.deleted ? 'deleting' : 'idle', async (tx) => {
      const rolling = revisionOf(app, app.rolling_revision_id);
      if (!rolling || (await lockApp(tx, app.id)) === null) return;
      // The same build with other variables or another size: what serves is that build as it was before.
      const word = rolling.build_id === app.current_build_id ? 'stale_serving' : 'never_booted';
      await tx.query('update build set deploy_state = $2, boot_error = $3 where id = $1::uuid', [
        rolling.build_id,
        word,
        reason,
      ]);
      await tx.query(
        `update app set rolling_revision_id = null,
           target_revision_id = case when target_revision_id = rolling_revision_id then current_revision_id else target_revision_id end
         where id = $1::uuid`,
        [app.id],
      );
      await removeReplicas(tx, idsOf(app.replicas, rolling.id));
      await this.routesOfCurrent(tx, { ...app, never_booted: true });
    });
  }

  /** Routes, listing and names went with the DELETE; here the region is emptied. A region that is away finds out later. */
  @State({ deadline: minutes(15), onMissed: 'abandoned' })
  async deleting(app: RolloutApp): Promise<Outcome> {
    const building = await this.database.transaction(async (tx) => {
      await removeReplicas(
        tx,
        app.replicas.map(({ id }) => id),
      );
      await writeRoutes(tx, app, null, nothing('the app is deleted'));
      await settleSpan(tx, app, null);
      const rows = await tx.query<{ id: string }>(
        "select id from build where app_id = $1::uuid and status in ('queued', 'building')",
        [app.id],
      );
      for (const { id } of rows) await wake(tx, 'build', id);
      return rows.length;
    });
    if (building === 0 && app.replicas.length === 0) return this.end();
    return this.wait(building > 0 ? 500 : compareMs, 'the region still has replicas of it');
  }

  @State()
  abandoned(): Outcome {
    return this.end();
  }

  /** Makes the wanted revision the one that rolls; one that had begun before and is not live gives way. */
  private begin(app: RolloutApp, switched = false): Outcome {
    return this.go('starting', async (tx) => {
      if ((await lockApp(tx, app.id)) === null) return;
      const before = revisionOf(app, app.rolling_revision_id);
      const next = revisionOf(app, app.target_revision_id);
      if (before && before.build_id !== next?.build_id && before.build_id !== app.current_build_id) {
        // A build overtaken before it was live ends as cancelled (interfaces.md, 10).
        await tx.query(
          `update build set status = 'cancelled', deploy_state = null, error = 'overtaken by a newer build'
           where id = $1::uuid and status = 'success' and deploy_state in ('rolling', 'unverified')`,
          [before.build_id],
        );
      }
      // Once the routes led to it, an edge may be sending it requests: then it stays until the next one is confirmed.
      if (before && !switched) await removeReplicas(tx, idsOf(app.replicas, before.id));
      await tx.query('update app set rolling_revision_id = target_revision_id where id = $1::uuid', [app.id]);
    });
  }

  private async confirm(app: RolloutApp): Promise<Outcome> {
    if (app.deleted) return this.go('deleting');
    const rolling = revisionOf(app, app.rolling_revision_id);
    if (rolling === null) return this.go('idle');
    const mine = app.replicas.filter((replica) => replica.revision_id === rolling.id);
    if (rolling.artifact_kind === 'server' && !mine.some(isUsable)) {
      const failed = mine.find((replica) => replica.state === 'failed');
      if (failed) return this.fail(failed.reason ?? 'a replica failed right after it was ready', 'failed');
    }
    const confirmed = await this.database.transaction(async (tx) => {
      await this.switchRoutes(tx, app, rolling);
      return routesConfirmed(tx, app.id);
    });
    if (!confirmed) return this.wait(compareMs, 'no edge has confirmed the routes');
    return this.go('idle', (tx) => this.promote(tx, app, rolling));
  }

  /** An edge serves the new revision: it is the current one, and the others may finish what they have begun. */
  private async promote(tx: Sql, app: RolloutApp, rolling: RolloutRevision): Promise<void> {
    if ((await lockApp(tx, app.id)) === null) return;
    await tx.query(
      `update app set current_revision_id = $2::uuid, current_build_id = $3::uuid, rolling_revision_id = null, network_fault = null,
         running_docker_image = b.docker_image, running_docker_image_digest = b.docker_image_digest
       from build b where app.id = $1::uuid and b.id = $3::uuid`,
      [app.id, rolling.id, rolling.build_id],
    );
    await tx.query("update build set deploy_state = 'live', boot_error = null where id = $1::uuid", [
      rolling.build_id,
    ]);
    const others = app.replicas.filter((replica) => replica.revision_id !== rolling.id).map(({ id }) => id);
    await retireReplicas(tx, others, this.settings.drainMs);
    await settleSpan(tx, app, rolling);
  }

  /**
   * Keeps the serving revision as it shall be: as many replicas as wanted, crashed ones replaced, routes to ready ones only.
   * @returns milliseconds after which to look again
   */
  private async keep(tx: Sql, app: RolloutApp): Promise<number> {
    if ((await lockApp(tx, app.id)) === null) return 0;
    const retired = app.replicas.filter((replica) => !replica.gone && isDue(replica.retire_in));
    const retiredIds = retired.map(({ id }) => id);
    let postponed = Infinity;
    // As long as no edge has said that it sends elsewhere, requests may still come to them.
    if (retired.length === 0 || (await routesConfirmed(tx, app.id))) await removeReplicas(tx, retiredIds);
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

  private async switchRoutes(tx: Sql, app: RolloutApp, rolling: RolloutRevision): Promise<void> {
    if ((await lockApp(tx, app.id)) === null) return;
    await writeRoutes(tx, app, rolling.build_id, targetOf(app, rolling));
  }

  /** What visitors read says nothing of the app's inside: why it did not start stands in the build's `boot_error`. */
  private async routesOfCurrent(tx: Sql, app: RolloutApp): Promise<void> {
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

  /** `recreate`: nothing old may run beside the new. */
  private async clearTheWay(tx: Sql, app: RolloutApp, others: RolloutReplica[]): Promise<void> {
    if ((await lockApp(tx, app.id)) === null) return;
    await writeRoutes(tx, app, null, nothing('a new version is starting'));
    await removeReplicas(
      tx,
      others.map(({ id }) => id),
    );
  }

  /** The same build with today's size and variables; nothing to do where nothing runs. */
  private async restart(tx: Sql, app: RolloutApp): Promise<void> {
    if ((await lockApp(tx, app.id)) === null) return;
    const base = revisionOf(app, app.target_revision_id) ?? revisionOf(app, app.current_revision_id);
    await tx.query('update app set restart_at = null where id = $1::uuid', [app.id]);
    if (base?.artifact_kind === 'server') await makeRevision(tx, app.id, base.build_id, 'restart');
  }

  private restartOr(app: RolloutApp, ms: number): number {
    return Math.min(app.restart_in ?? Infinity, ms);
  }
}

const isDue = (inMs: number | null): boolean => inMs !== null && inMs <= 0;
const idsOf = (replicas: RolloutReplica[], revisionId: string) =>
  replicas.filter((replica) => replica.revision_id === revisionId).map(({ id }) => id);
const revisionOf = (app: RolloutApp, id: string | null) =>
  app.revisions.find((revision) => revision.id === id) ?? null;

/** What needs replicas begins once its account is in order again; until then its target waits. */
const mayBegin = (app: RolloutApp): boolean =>
  !app.suspended || revisionOf(app, app.target_revision_id)?.artifact_kind === 'static';
