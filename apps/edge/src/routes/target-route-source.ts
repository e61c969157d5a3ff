import {
  type AcmeChallengeAnswer,
  type CertificateBytes,
  type IdentitySigner,
  identityHeader,
  type RoutesAnswer,
  type RoutesApplied,
} from '@nebo/contracts';
import { readText, type ServiceTarget, type TargetAnswer } from '@nebo/service-kit';
import { type RouteSource } from './route-source.js';

/** Longest answer to a routes call, bytes. */
const maxAnswer = 256 * 1024 * 1024;
/** Longest certificate with its chain and key. */
const maxCertificate = 1024 * 1024;

/**
 * Routes and artifacts from apps-builder, in this process or another, by signed internal calls:
 * `GET /internal/v1/routes?since=&wait=&edge=` (seconds), `GET /internal/v1/blobs/{sha256}`, `POST /internal/v1/routes/applied`,
 * `DELETE /internal/v1/edges/{id}`, `GET /internal/v1/certificates/{id}`, `GET /internal/v1/acme-challenges/{host}/{token}`.
 * @throws Error from its methods on anything but a 2xx
 */
export function targetRouteSource(target: ServiceTarget, signer: IdentitySigner): RouteSource {
  const send = (method: string, path: string, signal: AbortSignal, body?: string): Promise<TargetAnswer> =>
    target.call({
      method,
      path,
      headers: {
        [identityHeader]: signer.sign({ kind: 'service', service: 'edge', account_id: null }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body }),
      signal,
    });
  const call = async (
    method: string,
    path: string,
    signal: AbortSignal,
    body?: string,
  ): Promise<TargetAnswer> => {
    const answer = await send(method, path, signal, body);
    if (answer.status < 200 || answer.status > 299) {
      answer.body.resume();
      throw new Error(`${method} ${path.split('?', 1)[0]} answered ${answer.status}`);
    }
    return answer;
  };
  return {
    async fetchRoutes(since, signal, waitMs, edge) {
      const query = new URLSearchParams({
        wait: String(Math.floor(waitMs / 1000)),
        edge,
        ...(since === null ? {} : { since }),
      });
      const { body } = await call('GET', `/internal/v1/routes?${query}`, signal);
      return JSON.parse(await readText(body, maxAnswer)) as RoutesAnswer;
    },
    async fetchArtifact(sha256, signal) {
      return (await call('GET', `/internal/v1/blobs/${sha256}`, signal)).body;
    },
    async fetchCertificate(id, signal) {
      const { body } = await call('GET', `/internal/v1/certificates/${encodeURIComponent(id)}`, signal);
      return JSON.parse(await readText(body, maxCertificate)) as CertificateBytes;
    },
    async fetchChallenge(host, token, signal) {
      const path = `/internal/v1/acme-challenges/${encodeURIComponent(host)}/${encodeURIComponent(token)}`;
      const { status, body } = await send('GET', path, signal);
      const text = await readText(body, maxCertificate);
      if (status === 404) return null;
      if (status !== 200) throw new Error(`GET of a challenge answered ${status}`);
      return (JSON.parse(text) as AcmeChallengeAnswer).answer;
    },
    async confirm(version, routes, signal, edge) {
      const applied: RoutesApplied = {
        version,
        edge,
        routes: routes.map(({ host, build_id }) => ({ host, build_id })),
      };
      (await call('POST', '/internal/v1/routes/applied', signal, JSON.stringify(applied))).body.resume();
    },
    async leave(edge, signal) {
      (await call('DELETE', `/internal/v1/edges/${encodeURIComponent(edge)}`, signal)).body.resume();
    },
  };
}
