import { type IdentitySigner, identityHeader, type RoutesAnswer, type RoutesApplied } from '@nebo/contracts';
import { readText, type ServiceTarget, type TargetAnswer } from '@nebo/service-kit';
import { type RouteSource } from './route-source.js';

/** Longest answer to a routes call, bytes. */
const maxAnswer = 256 * 1024 * 1024;

/**
 * Routes and artifacts from apps-builder, in this process or another, by signed internal calls:
 * `GET /internal/v1/routes?since=&wait=` (seconds), `GET /internal/v1/blobs/{sha256}`, `POST /internal/v1/routes/applied`.
 * @throws Error from its methods on anything but a 2xx
 */
export function targetRouteSource(target: ServiceTarget, signer: IdentitySigner): RouteSource {
  const call = async (
    method: string,
    path: string,
    signal: AbortSignal,
    body?: string,
  ): Promise<TargetAnswer> => {
    const answer = await target.call({
      method,
      path,
      headers: {
        [identityHeader]: signer.sign({ kind: 'service', service: 'edge', account_id: null }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body }),
      signal,
    });
    if (answer.status < 200 || answer.status > 299) {
      answer.body.resume();
      throw new Error(`${method} ${path.split('?', 1)[0]} answered ${answer.status}`);
    }
    return answer;
  };
  return {
    async fetchRoutes(since, signal, waitMs) {
      const query = new URLSearchParams({
        wait: String(Math.floor(waitMs / 1000)),
        ...(since === null ? {} : { since }),
      });
      const { body } = await call('GET', `/internal/v1/routes?${query}`, signal);
      return JSON.parse(await readText(body, maxAnswer)) as RoutesAnswer;
    },
    async fetchArtifact(sha256, signal) {
      return (await call('GET', `/internal/v1/blobs/${sha256}`, signal)).body;
    },
    async confirm(version, routes, signal) {
      const applied: RoutesApplied = {
        version,
        routes: routes.map(({ host, build_id }) => ({ host, build_id })),
      };
      (await call('POST', '/internal/v1/routes/applied', signal, JSON.stringify(applied))).body.resume();
    },
  };
}
