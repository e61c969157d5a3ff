import type { RouteTarget } from '@nebo/contracts';
import type { RolloutApp, RolloutReplica, RolloutRevision } from './rollout.rows.js';

/** How many replicas an app shall have in its region: on demand (0) it is one, which may sleep; suspended none. */
export const replicasWanted = (app: RolloutApp): number =>
  app.suspended ? 0 : Math.max(1, app.replica_count);

/** Whether a replica is of the kind that the app wants now: one that may sleep, or one that runs always. */
export const fits = (app: RolloutApp, replica: RolloutReplica): boolean =>
  replica.on_demand === (app.replica_count === 0);

/** Whether a replica is in the private network that the app names now, or in none if it names none. */
export const isInPlace = (app: RolloutApp, replica: RolloutReplica): boolean => replica.vpc_id === app.vpc_id;

/** What is to be done about the replicas of the serving revision. */
export interface Plan {
  /** So many are to be ordered. */
  missing: number;
  /** They go when what they serve has been handed over. */
  surplus: RolloutReplica[];
}

/**
 * The next step to as many replicas as wanted, all in the app's network. One that is added comes up before one of the other
 * network goes, so as many as wanted always serve, and one more at most is there meanwhile.
 * @param right replicas of the serving revision, of the kind that is wanted and not failed
 */
export function plan(app: RolloutApp, right: readonly RolloutReplica[]): Plan {
  const wanted = replicasWanted(app);
  const byWorth = (some: readonly RolloutReplica[]) => [
    // Those that are not ready go first, then the youngest.
    ...some.filter(isUsable),
    ...some.filter((replica) => !isUsable(replica)),
  ];
  const here = byWorth(right.filter((replica) => isInPlace(app, replica)));
  const away = byWorth(right.filter((replica) => !isInPlace(app, replica)));
  const serving = Math.min(wanted, here.filter(isUsable).length);
  const surplus = [...here.slice(wanted), ...away.slice(wanted - serving)];
  const lacking = Math.max(0, wanted - here.length);
  if (away.length === 0) return { missing: lacking, surplus };
  const starting = here.some((replica) => !isUsable(replica));
  return { missing: Math.min(lacking, Math.max(starting ? 0 : 1, wanted - right.length)), surplus };
}

/**
 * Whether requests may be sent to a replica. One that may sleep has proved once that it comes up; from then on the edge
 * asks the agent, whatever was reported last: what is seen here is always a little old.
 */
export function isUsable(replica: RolloutReplica): boolean {
  const { state, gone, retire_in, on_demand, wakeable, proven, host, port } = replica;
  if (gone || retire_in !== null) return false;
  if (on_demand && wakeable)
    return proven && (state === 'ready' || state === 'sleeping' || state === 'starting');
  return state === 'ready' && host !== null && port !== null;
}

/** Whether a replica has crashed and was not ready since. */
export const isCrashing = (replica: RolloutReplica): boolean =>
  replica.state === 'failed' || (replica.crashes > 0 && replica.state !== 'ready');

export const nothing = (reason: string): RouteTarget => ({ kind: 'none', reason });

/** Where the edge shall send the requests of a revision. */
export function targetOf(app: RolloutApp, revision: RolloutRevision): RouteTarget {
  const { artifact_kind, artifact_sha256, artifact_bytes } = revision;
  if (artifact_kind === 'static') return { kind: 'static', artifact_sha256, artifact_bytes };
  // At once, whatever still runs: nobody may wake what nobody pays for.
  if (app.suspended) return nothing('the app is suspended; its owner can read why');
  const usable = app.replicas.filter((replica) => replica.revision_id === revision.id && isUsable(replica));
  const wanted = usable.filter((replica) => fits(app, replica));
  const others = usable.filter((replica) => !fits(app, replica));
  // From on demand to permanent and back: the replicas of before serve until the new ones are all there.
  const serving = wanted.length >= replicasWanted(app) || others.length === 0 ? wanted : others;
  serving.sort((a, b) => (a.id < b.id ? -1 : 1));
  const here = serving.filter((replica) => isInPlace(app, replica));
  const sleepy = [...here, ...serving].find(({ on_demand, wakeable }) => on_demand && wakeable);
  if (sleepy) return { kind: 'replicas', replicas: [], wake: { id: sleepy.id } };
  const replicas = serving.map(({ id, host, port }) => ({ id, host: host!, port: port! }));
  return replicas.length > 0 ? { kind: 'replicas', replicas } : nothing('no replica of the app is ready');
}

/** Whether a time that is so many milliseconds ahead has come; null: there is none. */
export const isDue = (inMs: number | null): boolean => inMs !== null && inMs <= 0;

export const revisionOf = (app: RolloutApp, id: string | null): RolloutRevision | null =>
  app.revisions.find((revision) => revision.id === id) ?? null;
