import { homedir } from 'node:os';
import { isAbsolute, resolve } from 'node:path';
import { isRouteHost } from './http/host.js';

export interface EdgeSettings {
  port: number;
  tlsPort: number;
  /** Absolute path. */
  home: string;
  appsDomain: string;
  /** Origin of apps-builder; null serves what is stored on disk. */
  appsBuilderUrl: string | null;
}

/**
 * Settings of the edge from the environment: `NEBO_EDGE_PORT` (8080), `NEBO_EDGE_TLS_PORT` (8443), `NEBO_HOME` (`.nebo`),
 * `NEBO_APPS_DOMAIN` (apps.localhost), `NEBO_APPS_BUILDER_URL`.
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
  return { port, tlsPort, home: isAbsolute(path) ? path : resolve(path), appsDomain, appsBuilderUrl: url };
}

function portOf(env: Record<string, string | undefined>, name: string, usual: number): number {
  const text = env[name];
  if (text === undefined || text === '') return usual;
  const port = /^\d{1,5}$/.test(text) ? Number(text) : NaN;
  if (!(port >= 0 && port <= 65_535))
    throw new Error(`${name} must be a port from 0 to 65535, not "${text}"`);
  return port;
}
