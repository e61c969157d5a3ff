import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { join } from 'node:path';

/** The repository's root folder, absolute. */
export const root = fileURLToPath(new URL('../../', import.meta.url)).replace(/\/$/, '');

/**
 * Path of a Node binary that can run Nebo: this process's own when it is new enough, otherwise the one that
 * the devDependency `node` brought (undici 8 and testcontainers 12 do not load on Node 20).
 */
export function nodeBinary() {
  const [major, minor] = process.versions.node.split('.').map(Number);
  if (major > 22 || (major === 22 && minor >= 22)) return process.execPath;
  const brought = join(root, 'node_modules/node/bin/node');
  if (!existsSync(brought)) {
    throw new Error(
      `Node ${process.versions.node} is too old for the services and node_modules/node is missing: run "npm install" first.`,
    );
  }
  return brought;
}
