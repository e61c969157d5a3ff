import { existsSync } from 'node:fs';
import { type EnvEntry } from '@nebo/contracts';
import { type Toolchain } from '../../system/toolchain.js';
import { type Enclosure } from './bwrap.js';

const system = '/usr/local/bin:/usr/bin:/bin';
const bundle = '/etc/ssl/certs/ca-certificates.crt';

/** What is below /usr (but not in /usr/local) every sandbox sees as it is. */
const inSight = (path: string): boolean => path.startsWith('/usr/') && !path.startsWith('/usr/local/');

/**
 * Go and Python of this host as a sandbox has them: read-only, on its PATH. Replicas have Python only; what Go builds needs
 * nothing.
 */
export function languagesInside(
  { go, python }: Toolchain,
  use: 'build' | 'replica',
): { binds: Enclosure['binds']; env: EnvEntry[]; path: string } {
  const binds: Enclosure['binds'] = [];
  const path: string[] = [];
  const env: EnvEntry[] = [];
  const add = (name: string, from: string) => {
    const inside = inSight(from) ? from : `/usr/local/${name}`;
    if (!inSight(from)) binds.push({ from, to: inside, writable: false });
    return inside;
  };
  if (use === 'build' && go) path.push(`${add('go', go.root)}/bin`);
  if (use === 'build') {
    // Its parts of a program are too large for a folder in memory.
    env.push({ name: 'GOTMPDIR', value: '/home/nebo', secret: false });
    if (existsSync(bundle)) env.push({ name: 'PIP_CERT', value: bundle, secret: false });
    env.push({ name: 'UV_NATIVE_TLS', value: 'true', secret: false });
  }
  // Its own prefix is /usr where it is the system's.
  if (python && python.prefix !== '/usr') path.push(`${add('python', python.prefix)}/bin`);
  const value = [...path, system].join(':');
  env.push({ name: 'PATH', value, secret: false });
  return { binds, env, path: value };
}
