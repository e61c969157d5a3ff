import { type Route, type RoutesAnswer } from '@nebo/contracts';
import { isCompiledRouting } from '@nebo/routing';
import { isRouteHost } from '../http/host.js';

/**
 * Whether a value has the shape of a route. The control plane is trusted, but one broken row or file must not stop the
 * others from being served.
 */
export function isRoute(value: unknown): value is Route {
  if (!isRecord(value)) return false;
  const { host, app_id, account_id, build_id, target } = value;
  if (typeof host !== 'string' || !isRouteHost(host)) return false;
  if (typeof app_id !== 'string' || typeof account_id !== 'string') return false;
  if (build_id !== null && typeof build_id !== 'string') return false;
  if (!isRecord(target)) return false;
  const { routing } = value;
  if (routing !== undefined && routing !== null && !isCompiledRouting(routing)) return false;
  const { certificate } = value;
  if (certificate !== undefined && certificate !== null && !isRouteCertificate(certificate)) return false;
  switch (target['kind']) {
    case 'static':
      return (
        typeof target['artifact_sha256'] === 'string' &&
        /^[0-9a-f]{64}$/.test(target['artifact_sha256']) &&
        Number.isSafeInteger(target['artifact_bytes'])
      );
    case 'replicas':
      return (
        Array.isArray(target['replicas']) && target['replicas'].every(isReplica) && isWake(target['wake'])
      );
    case 'none':
      return typeof target['reason'] === 'string';
    default:
      return false;
  }
}

function isRouteCertificate(value: unknown): boolean {
  if (!isRecord(value)) return false;
  const { id, fingerprint } = value;
  // Becomes the name of a file.
  return typeof id === 'string' && typeof fingerprint === 'string' && /^[0-9a-f]{64}$/.test(fingerprint);
}
const isWake = (value: unknown): boolean =>
  value === undefined || (isRecord(value) && typeof value['id'] === 'string' && value['id'] !== '');

function isReplica(value: unknown): boolean {
  if (!isRecord(value) || typeof value['id'] !== 'string') return false;
  const { host, port } = value;
  // The name becomes part of an origin: nothing that could end it early.
  return (
    typeof host === 'string' &&
    /^[\w.:-]+$/.test(host) &&
    Number.isInteger(port) &&
    (port as number) > 0 &&
    (port as number) < 65_536
  );
}

/**
 * The usable part of an answer.
 * @returns null when it is no answer at all; `dropped` counts routes that were left out
 */
export function usableAnswer(value: unknown): { answer: RoutesAnswer; dropped: string[] } | null {
  if (!isRecord(value) || typeof value['version'] !== 'string' || typeof value['full'] !== 'boolean')
    return null;
  if (!Array.isArray(value['routes'])) return null;
  const removed = Array.isArray(value['removed'])
    ? value['removed'].filter((host) => typeof host === 'string')
    : [];
  const routes: Route[] = [];
  const dropped: string[] = [];
  for (const route of value['routes']) {
    if (isRoute(route)) routes.push(route);
    else dropped.push(isRecord(route) ? String(route['host']) : '?');
  }
  return { answer: { version: value['version'], full: value['full'], routes, removed }, dropped };
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
