import { lstat, readFile, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { writeByRename } from './config.js';
import { usageError } from './errors.js';

/** `.nebo-link.json`: which app a folder is. Holds no secret. */
export interface Link {
  api_url: string;
  project_id: string;
  app_id: string;
}

/** `.nebo/` is the server's data folder, so the link is a file of its own. */
export const linkName = '.nebo-link.json';

/**
 * The link of exactly this folder, or null.
 * @throws CliError usage when the file is there and broken: ignoring it would make a second app
 */
export async function readLink(folder: string): Promise<Link | null> {
  const path = join(folder, linkName);
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '')) return null;
    throw error;
  }
  let value: Partial<Link> | null = null;
  try {
    value = JSON.parse(text) as Partial<Link>;
  } catch {
    // Said below, together with missing fields.
  }
  const { api_url, project_id, app_id } = value ?? {};
  if (typeof api_url !== 'string' || typeof project_id !== 'string' || typeof app_id !== 'string')
    throw usageError(`${path} is not a folder link (api_url, project_id, app_id)`, {
      hint: 'Make a new one with "nebo app link", or remove the file.',
    });
  return { api_url, project_id, app_id };
}

/**
 * The link that holds for a working folder: its own or that of the nearest folder above, up to the root of the
 * repository. A file from further up would be somebody else's.
 */
export async function findLink(folder: string): Promise<{ link: Link; folder: string } | null> {
  for (let here = folder; ; here = dirname(here)) {
    const link = await readLink(here);
    if (link) return { link, folder: here };
    const repository = await lstat(join(here, '.git')).catch(() => null);
    if (repository || dirname(here) === here) return null;
  }
}

/** Writes the link of a folder. */
export async function writeLink(folder: string, link: Link): Promise<void> {
  await writeByRename(join(folder, linkName), `${JSON.stringify(link, null, 2)}\n`, 0o644);
}

/** Removes the link of a folder. */
export async function removeLink(folder: string): Promise<void> {
  await rm(join(folder, linkName), { force: true });
}

/**
 * A link made for another installation is refused: its ids mean nothing here, and following its address would send the
 * key wherever a cloned repository says.
 * @throws CliError usage
 */
export function checkLink(link: Link, folder: string, apiUrl: string): Link {
  if (sameAddress(link.api_url, apiUrl)) return link;
  throw usageError(
    `${join(folder, linkName)} links this folder to ${link.api_url}, but the address in use is ${apiUrl}`,
    {
      hint: `Use that installation (--api-url ${link.api_url} or --profile), or remove the link: nebo app unlink`,
    },
  );
}

const sameAddress = (a: string, b: string) => a.replace(/\/+$/, '') === b.replace(/\/+$/, '');
