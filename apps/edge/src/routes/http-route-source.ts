import { type Readable } from 'node:stream';
import { request } from 'undici';
import { type RoutesAnswer, type RoutesApplied } from '@nebo/contracts';
import { type RouteSource } from './route-source.js';

export interface HttpRouteSourceOptions {
  /** Origin of apps-builder. */
  baseUrl: string;
  /** Headers that sign one call; asked for each call. */
  sign?: (
    method: string,
    path: string,
    body: string | null,
  ) => Record<string, string> | Promise<Record<string, string>>;
}

/** Longest answer to a routes call, bytes. */
const MAX_ANSWER = 256 * 1024 * 1024;

/**
 * Routes and artifacts over the internal HTTP calls: `GET /internal/v1/routes?since=&wait=` (seconds),
 * `GET /internal/v1/blobs/{sha256}` and `POST /internal/v1/routes/applied`.
 * @throws from its methods on anything but a 2xx
 */
export function httpRouteSource(options: HttpRouteSourceOptions): RouteSource {
  const call = async (
    method: 'GET' | 'POST',
    path: string,
    signal: AbortSignal,
    body: string | null = null,
  ) => {
    const headers: Record<string, string> = { ...(await options.sign?.(method, path, body)) };
    if (body !== null) headers['content-type'] = 'application/json';
    // The long poll and large artifacts have limits of their own, given by the signal.
    const answer = await request(new URL(path, options.baseUrl), {
      method,
      headers,
      body,
      signal,
      headersTimeout: 0,
      bodyTimeout: 0,
    });
    if (answer.statusCode < 200 || answer.statusCode > 299) {
      await answer.body.dump();
      throw new Error(`${method} ${path.split('?', 1)[0]} answered ${answer.statusCode}`);
    }
    return answer.body;
  };
  return {
    async fetchRoutes(since, signal, waitMs) {
      const query = new URLSearchParams({ wait: String(Math.floor(waitMs / 1000)) });
      if (since !== null) query.set('since', since);
      const body = await call('GET', `/internal/v1/routes?${query}`, signal);
      const parts: Buffer[] = [];
      let length = 0;
      for await (const chunk of body) {
        length += (chunk as Buffer).length;
        if (length > MAX_ANSWER) throw new Error('the routes are too many for one answer');
        parts.push(chunk as Buffer);
      }
      return JSON.parse(Buffer.concat(parts).toString('utf8')) as RoutesAnswer;
    },
    fetchArtifact: async (sha256, signal): Promise<Readable> =>
      call('GET', `/internal/v1/blobs/${sha256}`, signal),
    async confirm(version, routes, signal) {
      const applied: RoutesApplied = {
        version,
        routes: routes.map(({ host, build_id }) => ({ host, build_id })),
      };
      await (await call('POST', '/internal/v1/routes/applied', signal, JSON.stringify(applied))).dump();
    },
  };
}
