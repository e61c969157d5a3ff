import { randomUUID } from 'node:crypto';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { type EdgeLogger } from '../observe/logger.js';

/**
 * The name by which the control plane knows this edge among others, kept beside its routes: after a restart it is the same
 * edge, and nobody waits for the one that was.
 * @returns a UUID; one for this process alone where none can be kept
 */
export async function edgeId(path: string, logger: EdgeLogger): Promise<string> {
  const kept = await readFile(path, 'utf8').catch(() => '');
  if (/^[0-9a-f-]{36}$/.test(kept.trim())) return kept.trim();
  const id = randomUUID();
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    await writeFile(`${path}.next`, `${id}\n`, { mode: 0o600 });
    await rename(`${path}.next`, path);
  } catch (error) {
    logger.warn({ err: error }, 'the name of this edge cannot be kept; after a restart it is another one');
  }
  return id;
}
