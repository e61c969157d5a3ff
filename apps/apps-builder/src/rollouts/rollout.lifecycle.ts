import { Inject, Injectable } from '@nestjs/common';
import { Lifecycle, minutes, type Outcome, seconds, State, type StepContext, wake } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import { RUNTIME, type Runtime } from '@nebo/service-kit';
import { Settings } from '../shared/settings.js';
import {
  endOvertaken,
  loadRollout,
  lockApp,
  makeRevision,
  orderReplicas,
  removeReplicas,
  retireReplicas,
  type RolloutApp,
  type RolloutReplica,
  type RolloutRevision,
} from './rollout.rows.js';
import {
  fits,
  isDue,
  isInPlace,
  isUsable,
  nothing,
  replicasWanted,
  revisionOf,
  targetOf,
} from './rollout.replicas.js';
import { hasPredeploy, predeployFault, predeployRun } from './predeploy.js';
import { passOverEdges, waitingFor, type Witness, witness, writeRoutes } from './route.rows.js';
import { Serving } from './serving.js';
import { settleSpan } from './span.rows.js';

/** What the region might have lost without a word is compared this often. */
const compareMs = seconds(30);
/** An edge that has fallen silent stops being waited for without a word: looked at this often. */
const silenceMs = seconds(5);

/**
 * Life of an app in its region; one row an app, so that deploys, restarts, scaling and deletion never run at once.
 * idle ⇄ [preparing →] starting → switching → idle; failed back to idle; deleting → end.
 *
 * A new revision's replicas are started beside the old ones; when all are ready the routes switch, and when every edge that is
 * there has confirmed that, the build is `live` and the old replicas go after a drain time. If the new ones fail, the old revision
 * has never stopped serving. `recreate` takes the old ones away first.
 *
 * An app on demand (`replica_count` 0) has one replica that may sleep. It is started once, to prove that it comes up, before
 * the routes lead to it; when it sleeps and wakes afterwards is between edge and agent, and only seen here.
 */
@Injectable()
export class RolloutLifecycle extends Lifecycle<RolloutApp> {
  override readonly kind = 'rollout';
  private readonly serving: Serving;
  private readonly log: Runtime['log'];

  constructor(
    private readonly database: Database,
    private readonly settings: Settings,
    @Inject(RUNTIME) { log }: Runtime,
  ) {
    super();
    this.serving = new Serving(settings);
    this.log = log;
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
    const again = await this.database.transaction((tx) => this.serving.keep(tx, app));
    return this.wait(Math.min(again, app.restart_in ?? Infinity, compareMs));
  }

  /**
   * The new version's own command runs, once, before anything of it serves: a change of a database, say. One that has begun is
   * not cut off by a newer deploy, which waits for its end.
   */
  @State({ deadline: minutes(35), onMissed: 'failed' })
  async preparing(app: RolloutApp): Promise<Outcome> {
    if (app.deleted) return this.go('deleting');
    const rolling = revisionOf(app, app.rolling_revision_id);
    if (rolling === null) return this.go('idle');
    if (app.suspended) return this.fail('the balance is used up and the account is suspended', 'failed');
    const run = await this.database.transaction((tx) => predeployRun(tx, app, rolling));
    const fault = predeployFault(run);
    if (fault !== null) return this.fail(fault, 'failed');
    if (run.status === 'success') return this.go('starting');
    return this.wait(compareMs, 'the pre-deploy command has not ended');
  }

  /** The replicas of the new revision start; the old ones serve. */
  @State({ deadline: minutes(10), onMissed: 'failed' })
  async starting(app: RolloutApp): Promise<Outcome> {
    if (app.deleted) return this.go('deleting');
    const rolling = revisionOf(app, app.rolling_revision_id);
    // A newer version may have been named while the former one's beginning was written.
    if (rolling !== null && (await this.awaitsCommand(app, rolling))) return this.go('preparing');
    if (isDue(app.restart_in)) return this.go('starting', (tx) => this.restart(tx, app));
    if (app.target_revision_id !== app.rolling_revision_id) return this.begin(app);
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

  /** The routes lead to the new revision; waits until the edges serve them. */
  @State({ deadline: minutes(1), onMissed: 'unverified' })
  switching(app: RolloutApp): Promise<Outcome> {
    return this.confirm(app);
  }

  /** Not every edge has confirmed in time: said so, and waited on. Only here may a newer revision overtake. */
  @State({ deadline: minutes(5), onMissed: 'overdue' })
  async unverified(app: RolloutApp, { reason }: StepContext): Promise<Outcome> {
    if (!app.deleted && isDue(app.restart_in)) return this.go('unverified', (tx) => this.restart(tx, app));
    if (!app.deleted && app.target_revision_id !== app.rolling_revision_id) return this.begin(app, true);
    const rolling = revisionOf(app, app.rolling_revision_id);
    if (rolling && !app.deleted) {
      await this.database.transaction((tx) =>
        tx.query(
          "update build set deploy_state = 'unverified', boot_error = $2 where id = $1::uuid and deploy_state = 'rolling'",
          [rolling.build_id, reason ?? 'no edge has confirmed the routes'],
        ),
      );
    }
    return this.confirm(app);
  }

  /** An edge that is there and takes no routes must not hold up every deploy for ever: it is passed over, and that is told. */
  @State()
  async overdue(app: RolloutApp): Promise<Outcome> {
    const { confirmed, behind } = await this.witness(app);
    if (confirmed && behind.length > 0) {
      this.log.warn({ app: app.id, edges: behind }, 'edges that take no routes are not waited for any more');
      await this.database.transaction((tx) => passOverEdges(tx, behind));
    }
    return this.go('unverified');
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
      await this.serving.routesOfCurrent(tx, { ...app, never_booted: true });
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
    const wanted = revisionOf(app, app.target_revision_id);
    return this.go(hasPredeploy(app, wanted) ? 'preparing' : 'starting', async (tx) => {
      if ((await lockApp(tx, app.id)) === null) return;
      const before = revisionOf(app, app.rolling_revision_id);
      // Once the routes led to it, an edge may be sending it requests: then it stays until the next one is confirmed.
      if (before && !switched) await removeReplicas(tx, idsOf(app.replicas, before.id));
      await tx.query('update app set rolling_revision_id = target_revision_id where id = $1::uuid', [app.id]);
      await endOvertaken(tx, app.id);
    });
  }

  private async awaitsCommand(app: RolloutApp, rolling: RolloutRevision): Promise<boolean> {
    if (!hasPredeploy(app, rolling)) return false;
    const run = await this.database.transaction((tx) => predeployRun(tx, app, rolling));
    return run.status !== 'success';
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
    const found = await this.database.transaction(async (tx) => {
      await this.switchRoutes(tx, app, rolling);
      return witness(tx, app.id, this.settings.edgeSeenMs);
    });
    const missing = waitingFor(found);
    if (missing !== null) return this.wait(found.confirmed ? silenceMs : compareMs, missing);
    return this.go('idle', (tx) => this.promote(tx, app, rolling));
  }

  private witness(app: RolloutApp): Promise<Witness> {
    return this.database.transaction((tx) => witness(tx, app.id, this.settings.edgeSeenMs));
  }

  /** The edges serve the new revision: it is the current one, and the others may finish what they have begun. */
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

  private async switchRoutes(tx: Sql, app: RolloutApp, rolling: RolloutRevision): Promise<void> {
    if ((await lockApp(tx, app.id)) === null) return;
    await writeRoutes(tx, app, rolling.build_id, targetOf(app, rolling));
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
    if (base?.artifact_kind !== 'server') return;
    // A version that was deployed and has not begun yet still has its command before it.
    const begun = base.id === app.current_revision_id || base.id === app.rolling_revision_id;
    await makeRevision(tx, app.id, base.build_id, begun ? 'restart' : base.cause);
  }

  private restartOr(app: RolloutApp, ms: number): number {
    return Math.min(app.restart_in ?? Infinity, ms);
  }
}

const idsOf = (replicas: RolloutReplica[], revisionId: string) =>
  replicas.filter((replica) => replica.revision_id === revisionId).map(({ id }) => id);

/** What needs replicas begins once its account is in order again; until then its target waits. */
const mayBegin = (app: RolloutApp): boolean =>
  !app.suspended || revisionOf(app, app.target_revision_id)?.artifact_kind === 'static';
