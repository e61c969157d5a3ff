import { readFile, stat } from 'node:fs/promises';
import { join, resolve, sep } from 'node:path';

/** `npm start`, in the artifact's folder or in one of its folders. */
const npmStart = /^(?:cd '([^']+)' && )?npm (?:run )?start$/;
/** A package.json beyond this is left to npm. */
const maxBytes = 1 << 20;

const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/**
 * The start script itself in place of `npm start`: npm takes a few hundred milliseconds and as much memory as many an app only to
 * wait for it, and ends it early when both are asked to stop. What npm would read beside the script (hooks, an `.npmrc`) leaves
 * it to npm; the variables that scripts know from npm are set.
 * @param folder of the artifact
 * @returns a command for `sh -c` in that folder; the given one where it does not say just `npm start`
 */
export async function directStart(folder: string, command: string): Promise<string> {
  const match = npmStart.exec(command.trim());
  if (!match) return command;
  const inner = match[1] ?? '.';
  const at = resolve(folder, inner);
  if (at !== resolve(folder) && !at.startsWith(resolve(folder) + sep)) return command;
  const found = await readPackage(at);
  if (found === null) return command;
  const enter = match[1] === undefined ? '' : `cd ${quoted(inner)} && `;
  return `${enter}${scriptCommand({ ...found, event: 'start', script: found.start })}`;
}

/**
 * A script with its tools and the variables that scripts know from npm, as a command for `sh -c` in its package's folder.
 * @param parents folders above whose tools it may call too
 */
export function scriptCommand(
  of: { event: string; script: string; name: string | null; version: string | null },
  parents = 0,
): string {
  const { event, script, name, version } = of;
  const tools = Array.from({ length: parents + 1 }, (_, up) => `$PWD/${'../'.repeat(up)}node_modules/.bin`);
  const words = [
    `PATH="${tools.join(':')}:$PATH"`,
    'INIT_CWD="$PWD"',
    'npm_package_json="$PWD/package.json"',
    `npm_lifecycle_event=${event}`,
    `npm_lifecycle_script=${quoted(script)}`,
    ...(name === null ? [] : [`npm_package_name=${quoted(name)}`]),
    ...(version === null ? [] : [`npm_package_version=${quoted(version)}`]),
  ];
  return `export ${words.join(' ')} && ${script}`;
}

async function readPackage(
  folder: string,
): Promise<{ name: string | null; version: string | null; start: string } | null> {
  try {
    const file = join(folder, 'package.json');
    const [info, npmrc] = await Promise.all([stat(file), stat(join(folder, '.npmrc')).catch(() => null)]);
    if (npmrc !== null || info.size > maxBytes) return null;
    const { name, version, scripts } = JSON.parse(await readFile(file, 'utf8')) as Record<string, unknown>;
    const { start, prestart, poststart } = (scripts ?? {}) as Record<string, unknown>;
    if (typeof start !== 'string' || start.trim() === '' || prestart !== undefined || poststart !== undefined)
      return null;
    const text = (value: unknown): string | null => (typeof value === 'string' ? value : null);
    return { name: text(name), version: text(version), start };
  } catch {
    return null;
  }
}
