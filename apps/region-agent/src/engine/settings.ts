import { join } from 'node:path';

/** Where container engines are looked for, and what their builds may reach. */
export interface EngineSettings {
  /** Unix sockets in the order in which they are tried; empty: none is looked for. */
  sockets: readonly string[];
  /** Whether the operator named the engine: then it builds even where its steps cannot be held to the limits. */
  named: boolean;
  /** Network of the engine that `RUN` steps have; `none`: no network. */
  network: string;
}

/** Never: they are the host's own, or somebody else's. */
const forbidden = /^(host|container:|ns:|slirp4netns|pasta|private)/i;

/**
 * `NEBO_CONTAINER_ENGINE`: `off`, or the path of a Unix socket; not set: the usual sockets of Docker and Podman.
 * `NEBO_CONTAINER_ENGINE_NETWORK`: a network of the engine, default `none`.
 * @throws Error that names the setting
 */
export function engineSettings(env: Record<string, string | undefined>): EngineSettings {
  const network = env['NEBO_CONTAINER_ENGINE_NETWORK']?.trim() || 'none';
  if (forbidden.test(network) || !/^[A-Za-z0-9][A-Za-z0-9_.-]*$/.test(network))
    throw new Error(
      `NEBO_CONTAINER_ENGINE_NETWORK must be "none" or the name of a network of the engine, not "${network}"`,
    );
  const named = Boolean(env['NEBO_CONTAINER_ENGINE']?.trim());
  return { sockets: socketsOf(env), named, network };
}

function socketsOf(env: Record<string, string | undefined>): string[] {
  const text = env['NEBO_CONTAINER_ENGINE']?.trim() ?? '';
  if (text === 'off') return [];
  if (text === '') {
    const own = env['XDG_RUNTIME_DIR'];
    const usual = ['/var/run/docker.sock', '/run/podman/podman.sock'];
    return own ? [...usual, join(own, 'docker.sock'), join(own, 'podman/podman.sock')] : usual;
  }
  const path = text.replace(/^unix:\/\//, '');
  if (!path.startsWith('/') || path.includes('\0'))
    throw new Error(
      `NEBO_CONTAINER_ENGINE must be "off" or the path of a Unix socket that begins with "/", not "${text}"`,
    );
  return [path];
}
