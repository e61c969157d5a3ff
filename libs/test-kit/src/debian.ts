import { execFile } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { promisify } from 'node:util';
import type { Found } from './parts.js';

/**
 * No relative imports of values and no syntax that Node cannot strip: tools/test imports this file as it is.
 */

const run = promisify(execFile);
const policy = '/usr/sbin/policy-rc.d';
const environment = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };

/** Is the Debian package installed? */
async function isInstalled(name: string): Promise<boolean> {
  const { stdout } = await run('dpkg-query', ['-W', '-f', '${db:Status-Status}', name]).catch(() => ({
    stdout: '',
  }));
  return stdout === 'installed';
}

/**
 * Installs Debian packages where that is possible: as root, with apt-get. A `policy-rc.d` that answers 101 is written
 * first where there is none, so that no package starts a service (nats-server and docker.io would).
 * @returns the packages that are present now, or null and one sentence why not
 */
export async function ensureDebianPackages(names: readonly string[]): Promise<Found<readonly string[]>> {
  const odd = names.find((name) => !/^[a-z0-9][a-z0-9.+-]+$/.test(name));
  if (odd !== undefined)
    return { found: null, reason: `${JSON.stringify(odd)} is not the name of a Debian package` };
  if (!existsSync('/usr/bin/apt-get')) return { found: null, reason: 'no apt-get here: not a Debian system' };
  const missing: string[] = [];
  for (const name of names) if (!(await isInstalled(name))) missing.push(name);
  if (missing.length === 0) return { found: names, reason: null };
  if (process.getuid?.() !== 0) {
    return {
      found: null,
      reason: `only root can install ${missing.join(', ')} (apt-get install ${missing.join(' ')})`,
    };
  }
  if (!existsSync(policy)) writeFileSync(policy, '#!/bin/sh\nexit 101\n', { mode: 0o755 });
  try {
    await run('apt-get', ['update', '-q'], { env: environment, timeout: 180_000 });
    await run('apt-get', ['install', '-q', '-y', '--no-install-recommends', ...missing], {
      env: environment,
      timeout: 600_000,
      maxBuffer: 16 * 1024 * 1024,
    });
  } catch (error) {
    const words = ((error as { stderr?: string }).stderr || (error as Error).message).trim().split('\n');
    return { found: null, reason: `apt-get could not install ${missing.join(', ')}: ${words.at(-1)}` };
  }
  return { found: names, reason: null };
}
