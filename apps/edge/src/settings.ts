import { homedir } from 'node:os';
import { isAbsolute, resolve } from 'node:path';
import { parseWakeAddress, type WakeAddress } from '@nebo/contracts';
import { isRouteHost } from './http/host.js';
import { type EdgeTuning } from './edge.js';

export interface EdgeSettings {
  port: number;
  tlsPort: number;
  /** Absolute path. */
  home: string;
  appsDomain: string;
  /** Origin of apps-builder; null serves what is stored on disk. */
  appsBuilderUrl: string | null;
  /** Where the region's agent is asked to wake apps; null: it is in this process, or nobody is. */
  wakeDoor: { address: WakeAddress; token: string | null } | null;
  tuning: Pick<EdgeTuning, 'wakeQueue' | 'wakeQueueTotal' | 'wakeTimeoutMs' | 'codedAnswers'>;
}

/**
 * Settings of the edge from the environment: `NEBO_EDGE_PORT` (8080), `NEBO_EDGE_TLS_PORT` (8443), `NEBO_HOME` (`.nebo`),
 * `NEBO_APPS_DOMAIN` (apps.localhost), `NEBO_APPS_BUILDER_URL`, `NEBO_WAKE` and `NEBO_WAKE_TOKEN` (none), `NEBO_WAKE_QUEUE`
 * (200), `NEBO_WAKE_QUEUE_TOTAL` (2000), `NEBO_WAKE_TIMEOUT` (150 s), `NEBO_EDGE_COMPRESS` (256 answers at once).
 * @throws Error that names the setting when its value is none
 */
export function edgeSettings(env: Record<string, string | undefined> = process.env): EdgeSettings {
  const port = portOf(env, 'NEBO_EDGE_PORT', 8080);
  const tlsPort = portOf(env, 'NEBO_EDGE_TLS_PORT', 8443);
  if (port === tlsPort && port !== 0)
    throw new Error(`NEBO_EDGE_TLS_PORT must differ from NEBO_EDGE_PORT (${port})`);
  const appsDomain = (env['NEBO_APPS_DOMAIN'] || 'apps.localhost').toLowerCase();
  if (!isRouteHost(appsDomain) || appsDomain.startsWith('*')) {
    throw new Error(`NEBO_APPS_DOMAIN must be a domain name, not "${appsDomain}"`);
  }
  const home = env['NEBO_HOME'] || '.nebo';
  if (home.includes('\0')) throw new Error('NEBO_HOME must be a path');
  const url = env['NEBO_APPS_BUILDER_URL'] || null;
  if (url !== null && !/^https?:$/.test(URL.parse(url)?.protocol ?? '')) {
    throw new Error(`NEBO_APPS_BUILDER_URL must be an http or https URL, not "${url}"`);
  }
  const path = home.startsWith('~/') ? homedir() + home.slice(1) : home;
  return {
    port,
    tlsPort,
    home: isAbsolute(path) ? path : resolve(path),
    appsDomain,
    appsBuilderUrl: url,
    wakeDoor: wakeDoorOf(env),
    tuning: {
      wakeQueue: countOf(env, 'NEBO_WAKE_QUEUE', 200, 100_000),
      wakeQueueTotal: countOf(env, 'NEBO_WAKE_QUEUE_TOTAL', 2_000, 1_000_000),
      wakeTimeoutMs: countOf(env, 'NEBO_WAKE_TIMEOUT', 150, 3_600) * 1_000,
      codedAnswers: countOf(env, 'NEBO_EDGE_COMPRESS', 256, 100_000, 0),
    },
  };
}

function wakeDoorOf(env: Record<string, string | undefined>): EdgeSettings['wakeDoor'] {
  const text = env['NEBO_WAKE'] || null;
  if (text === null) return null;
  try {
    return { address: parseWakeAddress(text), token: env['NEBO_WAKE_TOKEN'] || null };
  } catch (error) {
    throw new Error(`NEBO_WAKE: ${(error as Error).message}`, { cause: error });
  }
}

function countOf(
  env: Record<string, string | undefined>,
  name: string,
  usual: number,
  max: number,
  min = 1,
): number {
  const text = env[name];
  if (text === undefined || text === '') return usual;
  const count = /^\d{1,7}$/.test(text) ? Number(text) : NaN;
  if (!(count >= min && count <= max))
    throw new Error(`${name} must be a whole number from ${min} to ${max}, not "${text}"`);
  return count;
}

function portOf(env: Record<string, string | undefined>, name: string, usual: number): number {
  const text = env[name];
  if (text === undefined || text === '') return usual;
  const port = /^\d{1,5}$/.test(text) ? Number(text) : NaN;
  if (!(port >= 0 && port <= 65_535))
    throw new Error(`${name} must be a port from 0 to 65535, not "${text}"`);
  return port;
}
