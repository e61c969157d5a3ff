import { existsSync } from 'node:fs';
import { createServer } from 'node:net';
import { join, resolve } from 'node:path';
import type { Config } from '@nebo/service-kit/config';

/** Ports that people address, with their settings. */
const ports = [
  ['NEBO_API_PORT', 4000],
  ['NEBO_AI_PORT', 4001],
  ['NEBO_EDGE_PORT', 8080],
  ['NEBO_EDGE_TLS_PORT', 8443],
  ['NEBO_DNS_PORT', 5354],
] as const;

/**
 * Where this machine reaches what listens on the address of a setting, as it stands in a URL.
 * @param setting one that stands in for `NEBO_BIND` where it is set
 */
export function reachableHost(config: Config, setting = 'NEBO_BIND'): string {
  const bind = config.text(setting, config.text('NEBO_BIND', '127.0.0.1'));
  if (bind === '0.0.0.0' || bind === '::') return '127.0.0.1';
  return bind.includes(':') ? `[${bind}]` : bind;
}

/**
 * Finds what is in the way of the doors before anything is made.
 * @throws Error naming the setting: a port is taken, two are one, or the address is none of this machine's
 */
export async function checkPorts(config: Config): Promise<void> {
  const bind = config.text('NEBO_BIND', '127.0.0.1');
  const settings = new Map<number, string>();
  for (const [setting, fallback] of ports) {
    const port = config.port(setting, fallback);
    if (port === 0) continue;
    const other = settings.get(port);
    if (other) throw new Error(`${other} and ${setting} are both ${port}; choose another for one of them`);
    settings.set(port, setting);
    await new Promise<void>((resolve, reject) => {
      const probe = createServer();
      probe.once('error', (error: NodeJS.ErrnoException) =>
        reject(new Error(whyNot(bind, port, setting, error))),
      );
      probe.listen(port, bind, () => probe.close(() => resolve()));
    });
  }
}

function whyNot(bind: string, port: number, setting: string, { code }: NodeJS.ErrnoException): string {
  if (code === 'EADDRINUSE') return `port ${port} is taken; choose another with ${setting}`;
  if (code === 'EACCES') return `port ${port} cannot be used (${code}); choose another with ${setting}`;
  return `NEBO_BIND: ${bind} is no address of this machine (${code})`;
}

/**
 * A database whose key is gone opens for nobody: a new key in its place would only hide that.
 * @throws Error saying which file has to come back
 */
export function checkMasterKey(config: Config, home: string): void {
  const keyFile = resolve(config.text('NEBO_MASTER_KEY_FILE', `${home}/master.key`));
  const data = join(home, 'postgres');
  if (config.optional('DATABASE_URL') || existsSync(keyFile) || !existsSync(join(data, 'PG_VERSION'))) return;
  throw new Error(
    `${keyFile} is not there, and nothing else opens the database in ${data}: put it back, or choose another folder with NEBO_HOME`,
  );
}
