import { posix } from 'node:path';
import { scriptCommand } from '../../replicas/direct-start.js';
import { type SourceTree } from '../tree.js';
import { readObject } from './package-json.js';

const npmRun = /^npm run ([\w:-]+)$/;

/**
 * A script of package.json itself in place of `npm run …`: npm takes a third of a second of processor time only to wait for it.
 * Where npm would do more than run the script (hooks, an `.npmrc`, settings that scripts read from it) it is left to npm.
 * @returns the script, and the command for `sh -c` in the app's folder; null: npm runs it
 */
export async function directScript(
  tree: SourceTree,
  appDir: string,
  command: string,
): Promise<{ script: string; command: string } | null> {
  const event = npmRun.exec(command.trim())?.[1];
  if (event === undefined) return null;
  const folders = [appDir];
  while (folders.at(-1) !== '.') folders.push(posix.dirname(folders.at(-1)!));
  for (const folder of folders) if (await tree.has(posix.join(folder, '.npmrc'))) return null;
  const pkg = await readObject(tree, posix.join(appDir, 'package.json'));
  const scripts = (pkg?.['scripts'] ?? {}) as Record<string, unknown>;
  const script = scripts[event];
  const hooks = scripts[`pre${event}`] !== undefined || scripts[`post${event}`] !== undefined;
  if (pkg === null || typeof script !== 'string' || script.trim() === '' || hooks) return null;
  if (pkg['config'] !== undefined || script.includes('npm_')) return null;
  const text = (name: string) => (typeof pkg[name] === 'string' ? pkg[name] : null);
  const found = { event, script, name: text('name'), version: text('version') };
  return { script, command: scriptCommand(found, folders.length - 1) };
}
