import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { type EnvEntry } from '@nebo/contracts';
import { pythonPackages } from '../builds/plan.js';

/**
 * Variables by which programs of an artifact find the packages that its build put beside them: for its server, for jobs and
 * for whatever else starts in it.
 * @param dir of the artifact on this host
 * @param inside the same as its programs see it
 * @param path without the artifact's own programs
 */
export function artifactEnv(dir: string, inside: string, path: string): EnvEntry[] {
  if (!existsSync(join(dir, pythonPackages))) return [];
  const packages = join(inside, pythonPackages);
  return [
    { name: 'PYTHONPATH', value: packages, secret: false },
    { name: 'PATH', value: `${join(packages, 'bin')}:${path}`, secret: false },
  ];
}
