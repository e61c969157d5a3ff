import { type Readable } from 'node:stream';
import { type CertificateBytes, type Route, type RoutesAnswer } from '@nebo/contracts';

/**
 * Where the edge learns what to serve. The edge calls it, never the other way round; every call may fail and is repeated.
 * An adapter over the signed internal call implements it (`GET /internal/v1/routes?since=&wait=`,
 * `GET /internal/v1/blobs/{sha256}`); tests implement it in memory.
 */
export interface RouteSource {
  /**
   * @param since the version that the edge has; null asks for everything
   * @param waitMs how long the answer may be held back while nothing changes (long poll); 0 asks for an answer at once
   * @param edge who asks; from then on a deploy is live only when this edge serves it too
   * @returns an empty delta of the same version when nothing has changed
   */
  fetchRoutes(since: string | null, signal: AbortSignal, waitMs: number, edge: string): Promise<RoutesAnswer>;
  /** The bytes of an artifact, a gzip tar. The edge checks length and hash itself. */
  fetchArtifact(sha256: string, signal: AbortSignal): Promise<Readable>;
  /** The certificate that a route names, with its key. Absent: the local CA makes all. */
  fetchCertificate?(id: string, signal: AbortSignal): Promise<CertificateBytes>;
  /** What a certificate authority is to be answered for a token; null: nothing is being ordered for the host. */
  fetchChallenge?(host: string, token: string, signal: AbortSignal): Promise<string | null>;
  /**
   * Told when routes are being served: `routes` are live here as of `version`. Repeated after every full comparison, so a
   * lost call does no harm. A rejection is retried with the next confirmation.
   */
  confirm?(version: string, routes: Route[], signal: AbortSignal, edge: string): Promise<void>;
  /** Told when this edge stops: nobody need wait for it any more. One that dies without a word is noticed by its silence. */
  leave?(edge: string, signal: AbortSignal): Promise<void>;
}
