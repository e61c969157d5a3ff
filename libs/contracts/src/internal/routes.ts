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
  /** Its certificate; null or absent: there is none, or the edge makes one by its own CA. */
  certificate?: RouteCertificate | null;
}

/** Which certificate a route has. A renewed one has the same id and another fingerprint. */
export interface RouteCertificate {
  id: string;
  /** SHA-256 of the leaf, 64 hex digits. */
  fingerprint: string;
}

/** Answer of `GET /internal/v1/certificates/{id}` at apps-builder, for the edge only. */
export interface CertificateBytes extends RouteCertificate {
  /** PEM, leaf first. */
  chain: string;
  /** PEM, PKCS #8. */
  key: string;
}

/**
 * Answer of `GET /internal/v1/acme-challenges/{host}/{token}`: what a certificate authority is to be answered under
 * `/.well-known/acme-challenge/{token}` of that host; 404 when nothing is being ordered for it.
 */
export interface AcmeChallengeAnswer {
  answer: string;
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

/**
 * Answer of `GET /internal/v1/routes?since=<version>&wait=<seconds>&edge=<name>`. The name is the edge's own and stays with
 * it; from its first question on every deploy waits for that edge too, until it is silent or says `DELETE /internal/v1/edges/{name}`.
 */
export interface RoutesAnswer {
  /** Rises with every change; opaque to the reader. */
  version: string;
  /** True: `routes` is everything. False: `routes` replaces those hosts, `removed` hosts are gone. */
  full: boolean;
  routes: Route[];
  removed: string[];
}

/**
 * `POST /internal/v1/routes/applied` at apps-builder, by an edge: what it serves now. A build becomes `live` only when every
 * edge that is there has said so. Repeating it does no harm.
 */
export interface RoutesApplied {
  /** Who serves it; absent: somebody, which is enough while no edge has a name. */
  edge?: string;
  /** The version that is applied. */
  version: string;
  /**
   * Hosts that are served as of that version. A static route counts only when its files are at hand, so one large artifact
   * does not hold up the others. Absent: every route of that version.
   */
  routes?: { host: string; build_id: string | null }[];
}
