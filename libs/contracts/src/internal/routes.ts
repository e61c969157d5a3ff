import type { CompiledRouting } from '@nebo/routing';

/** What the edge serves for one host name. */
export interface Route {
  /** Lower case, without port and trailing dot; `*.x` matches one label. */
  host: string;
  app_id: string;
  account_id: string;
  build_id: string | null;
  target: RouteTarget;
  /** Rules of the build's routing file; null or absent: it has none. They switch together with the target. */
  routing?: CompiledRouting | null;
}

export type RouteTarget =
  /** Files of an artifact (gzip tar), fetched once by hash and kept on disk. */
  | { kind: 'static'; artifact_sha256: string; artifact_bytes: number }
  /**
   * Ready replicas, used in turn. With `wake` there is one on-demand replica instead, which may sleep: the edge asks its
   * agent where it answers (`WakeDesk`), and `replicas` is empty. An edge that does not know `wake` sees an app that is not
   * running.
   */
  | { kind: 'replicas'; replicas: { id: string; host: string; port: number }[]; wake?: { id: string } }
  /** Known host, nothing to serve yet: 503 with the reason. */
  | { kind: 'none'; reason: string };

/** Answer of `GET /internal/v1/routes?since=<version>`. */
export interface RoutesAnswer {
  /** Rises with every change; opaque to the reader. */
  version: string;
  /** True: `routes` is everything. False: `routes` replaces those hosts, `removed` hosts are gone. */
  full: boolean;
  routes: Route[];
  removed: string[];
}

/**
 * `POST /internal/v1/routes/applied` at apps-builder, by the edge: what it serves now. A build becomes `live` only by it.
 * Repeating it does no harm.
 */
export interface RoutesApplied {
  /** The version that is applied. */
  version: string;
  /**
   * Hosts that are served as of that version. A static route counts only when its files are at hand, so one large artifact
   * does not hold up the others. Absent: every route of that version.
   */
  routes?: { host: string; build_id: string | null }[];
}
