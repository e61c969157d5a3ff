import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import ignore, { type Ignore } from 'ignore';

/** Names that never go into a source archive, at any depth (panel-and-cli.md section 8 "Archive"). */
export function alwaysOut(name: string): boolean {
  if (name === '.git' || name === 'node_modules' || name.startsWith('.nebo')) return true;
  return name === '.env' || (name.startsWith('.env.') && !/\.(example|sample|template)$/.test(name));
}

export interface IgnoreRules {
  /** The file that ruled, or null when there is none. */
  ruledBy: '.neboignore' | '.gitignore' | null;
  /** True when the path (relative, forward slashes) stays out. */
  out(path: string, directory: boolean): boolean;
}

async function rules(dir: string, name: string): Promise<Ignore | null> {
  try {
    return ignore().add(await readFile(join(dir, name), 'utf8'));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
}

/** The rules of a source folder: `.neboignore`, or else the root `.gitignore` unless `gitignore` is false. */
export async function sourceRules(dir: string, gitignore: boolean): Promise<IgnoreRules> {
  const own = await rules(dir, '.neboignore');
  const git = own || !gitignore ? null : await rules(dir, '.gitignore');
  const matcher = own ?? git;
  return {
    ruledBy: own ? '.neboignore' : git ? '.gitignore' : null,
    out: (path, directory) => {
      const name = path.slice(path.lastIndexOf('/') + 1);
      return alwaysOut(name) || (matcher?.ignores(directory ? `${path}/` : path) ?? false);
    },
  };
}

/** Everything is kept: artifacts, where node_modules and built files are the point. */
export const keepAll: IgnoreRules = { ruledBy: null, out: () => false };
