import { existsSync, realpathSync } from 'node:fs';
import { createRequire } from 'node:module';
import { delimiter, dirname, join } from 'node:path';

/** The Node and npm that builds and replicas run on. */
export interface Toolchain {
  /** This process's own executable: the version that Nebo itself was tested with. */
  node: string;
  /** npm's package folder, or null when the host has none. */
  npm: string | null;
  /** Further certificate authorities that the operator gave this process (`NODE_EXTRA_CA_CERTS`), or null. */
  authorities: string | null;
}

/**
 * Finds npm: beside this Node, in the workspace's node_modules, in any folder of PATH, in the usual system folders.
 * npm is plain JavaScript, so whichever is found runs on this Node.
 */
export function findToolchain(env: Record<string, string | undefined> = process.env): Toolchain {
  const node = realpathSync(process.execPath);
  const places = [join(dirname(node), '../lib/node_modules/npm')];
  try {
    places.push(dirname(createRequire(import.meta.url).resolve('npm/package.json')));
  } catch {
    // npm is no dependency of the workspace; the host's is used.
  }
  for (const folder of (env['PATH'] ?? '').split(delimiter)) {
    const binary = join(folder, 'npm');
    if (!folder || !existsSync(binary)) continue;
    // …/npm/bin/npm-cli.js
    places.push(dirname(dirname(realpathSync(binary))));
  }
  places.push('/usr/local/lib/node_modules/npm', '/usr/lib/node_modules/npm', '/usr/share/nodejs/npm');
  const npm = places.find((place) => existsSync(join(place, 'bin/npm-cli.js')));
  const extra = env['NODE_EXTRA_CA_CERTS'];
  return {
    node,
    npm: npm ? realpathSync(npm) : null,
    authorities: extra && existsSync(extra) ? realpathSync(extra) : null,
  };
}
