import { chmod, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { usageError } from './errors.js';

/** One installation with one key. */
export interface Profile {
  api_url: string;
  api_key?: string;
  project_id?: string;
}

/** `$XDG_CONFIG_HOME/nebo/config.json`. */
export interface Config {
  current: string;
  profiles: Record<string, Profile>;
}

/** Where the profiles are kept. @param env the environment */
export function configPath(env: Readonly<Record<string, string | undefined>>): string {
  return join(env['XDG_CONFIG_HOME'] || join(env['HOME'] || homedir(), '.config'), 'nebo', 'config.json');
}

/**
 * The profiles, empty when there is no file yet.
 * @throws CliError usage when the file is not what it should be: a broken file is never overwritten silently
 */
export async function readConfig(path: string): Promise<Config> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return { current: 'default', profiles: {} };
    throw error;
  }
  const broken = () =>
    usageError(`${path} is not a profiles file of nebo`, { hint: 'Mend it, or remove it and log in again.' });
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw broken();
  }
  const config = value as Partial<Config> | null;
  if (
    typeof config !== 'object' ||
    config === null ||
    typeof config.profiles !== 'object' ||
    config.profiles === null
  )
    throw broken();
  for (const profile of Object.values(config.profiles))
    if (typeof profile?.api_url !== 'string' || !['string', 'undefined'].includes(typeof profile.api_key))
      throw broken();
  return {
    ...config,
    current: typeof config.current === 'string' ? config.current : 'default',
    profiles: config.profiles,
  };
}

/** Writes the profiles: folder 0700, file 0600, by rename, so that a crash leaves the old file or the new one. */
export async function writeConfig(path: string, config: Config): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  await chmod(dirname(path), 0o700);
  await writeByRename(path, `${JSON.stringify(config, null, 2)}\n`, 0o600);
}

/** Replaces a file in one step. @param mode permission bits of the new file */
export async function writeByRename(path: string, text: string, mode: number): Promise<void> {
  const next = `${path}.${process.pid}.${Date.now()}.tmp`;
  try {
    await writeFile(next, text, { mode, flag: 'wx' });
    await rename(next, path);
  } catch (error) {
    await rm(next, { force: true });
    throw error;
  }
}
