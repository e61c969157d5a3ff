import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';

interface Stored {
  id?: unknown;
  layer?: unknown;
}

/**
 * Containers in which Podman builds. Its interface removes them but does not say whose they are: what it stores names the layer
 * of each, which is a folder that the build's steps were seen to write into.
 * @param root folder of all that Podman stores
 * @param folders that the build wrote into
 * @returns whole ids
 */
export async function workingContainers(root: string, folders: readonly string[]): Promise<string[]> {
  const parts = new Set(
    folders.filter((folder) => folder.startsWith(`${root}/`)).flatMap((folder) => folder.split('/')),
  );
  const found: string[] = [];
  for (const name of await readdir(root).catch(() => []))
    if (name.endsWith('-containers'))
      for (const file of ['containers.json', 'volatile-containers.json'])
        for (const { id, layer } of await stored(join(root, name, file)))
          if (typeof id === 'string' && /^[0-9a-f]{64}$/.test(id))
            if (typeof layer === 'string' && layer.length === 64 && parts.has(layer)) found.push(id);
  return found;
}

async function stored(file: string): Promise<Stored[]> {
  try {
    const list: unknown = JSON.parse(await readFile(file, 'utf8'));
    return Array.isArray(list) ? list : [];
  } catch {
    // Not there, or being written: another time.
    return [];
  }
}
