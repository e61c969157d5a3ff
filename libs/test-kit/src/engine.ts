import { request } from 'node:http';
import { existsSync } from 'node:fs';
import { sayOnce, type Found } from './parts.js';

/** A container engine that answered. */
export interface Engine {
  /** What was asked, as DOCKER_HOST writes it. */
  host: string;
}

/** Where the engine would be: DOCKER_HOST, else the usual socket. */
function engineHost(): string | null {
  if (process.env['DOCKER_HOST']) return process.env['DOCKER_HOST'];
  return existsSync('/var/run/docker.sock') ? 'unix:///var/run/docker.sock' : null;
}

/**
 * One request to the engine's API.
 * @returns status and body text; status 0 when nobody answered within `limit` ms
 */
export function askEngine(
  host: string,
  method: string,
  path: string,
  limit = 1_000,
): Promise<{ status: number; body: string }> {
  const url = new URL(host);
  const where =
    url.protocol === 'unix:' ? { socketPath: url.pathname } : { host: url.hostname, port: url.port || 2375 };
  return new Promise((resolve) => {
    const none = { status: 0, body: '' };
    const ask = request({ ...where, method, path, timeout: limit, agent: false }, (answer) => {
      let body = '';
      answer.setEncoding('utf8');
      answer.on('data', (chunk: string) => (body += chunk));
      answer.on('end', () => resolve({ status: answer.statusCode ?? 0, body }));
      answer.on('error', () => resolve(none));
    });
    ask.on('timeout', () => ask.destroy());
    ask.on('error', () => resolve(none));
    ask.end();
  });
}

/** Asks the container engine whether it is there; cheap (no library is loaded, at most 1 s). */
export async function findEngine(): Promise<Found<Engine>> {
  const host = engineHost();
  if (host === null)
    return { found: null, reason: 'no container engine (DOCKER_HOST unset, no /var/run/docker.sock)' };
  if (!/^(unix|tcp|http):\/\//.test(host))
    return { found: null, reason: `DOCKER_HOST ${host} is of a kind not asked here` };
  const { status } = await askEngine(host, 'GET', '/_ping');
  if (status !== 200) return { found: null, reason: `the container engine at ${host} does not answer` };
  return { found: { host }, reason: null };
}

/**
 * What NEBO_TEST_PARTS says, or for one part NEBO_TEST_PARTS_POSTGRES, _NATS, _KAFKA (an engine without a registry may lack
 * one image).
 * @throws Error on an unknown word
 */
export function wantedForm(part?: string): 'auto' | 'containers' | 'local' {
  const own = part === undefined ? undefined : process.env[`NEBO_TEST_PARTS_${part.toUpperCase()}`];
  const wanted = own || process.env['NEBO_TEST_PARTS'] || 'auto';
  if (wanted !== 'auto' && wanted !== 'containers' && wanted !== 'local') {
    throw new Error(`NEBO_TEST_PARTS is ${wanted}; it must be containers, local or auto`);
  }
  return wanted;
}

/**
 * Starts a part as a container or from local binaries, as NEBO_TEST_PARTS says; `auto` takes a container where an engine
 * answers and goes on locally when that start fails (no image, no registry). Says which one and why, once.
 * @throws Error when the form that was asked for cannot be had
 */
export async function chooseForm<T>(
  part: string,
  container: () => Promise<T>,
  local: () => Promise<T>,
  localWords: string,
): Promise<T> {
  const wanted = wantedForm(part);
  if (wanted === 'local') {
    sayOnce(part, `${localWords} (NEBO_TEST_PARTS=local)`);
    return local();
  }
  const { found, reason } = await findEngine();
  if (found === null) {
    if (wanted === 'containers') throw new Error(`NEBO_TEST_PARTS=containers, but ${reason}`);
    sayOnce(part, `${localWords} (${reason})`);
    return local();
  }
  if (wanted === 'containers') {
    sayOnce(part, `container by testcontainers on ${found.host} (NEBO_TEST_PARTS=containers)`);
    return container();
  }
  try {
    const started = await container();
    sayOnce(part, `container by testcontainers on ${found.host} (the engine answers)`);
    return started;
  } catch (error) {
    sayOnce(
      part,
      `${localWords} (the engine at ${found.host} could not start it: ${(error as Error).message})`,
    );
    return local();
  }
}
