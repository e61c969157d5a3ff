import { createHash } from 'node:crypto';
import { type PythonTool } from '../../../system/toolchain.js';
import { at, pythonPackages, quoted, type Look, type PlanCaches, type ToolCache } from '../../plan.js';

/** How a source says which packages it needs. */
export interface Requirements {
  /** Files that fix them; the first one tells the tool. */
  files: readonly string[];
  /** Puts them into the artifact's folder of packages. */
  install: string;
  /** Every version is fixed by a lock file. */
  locked: boolean;
  /** All text that names packages, lower case. */
  text: string;
  caches: readonly ToolCache[];
}

const target = `--target ${pythonPackages}`;
const pip = `python3 -m pip install --no-warn-script-location --root-user-action=ignore ${target}`;
const pipCache: ToolCache = { name: 'pip', variables: ['PIP_CACHE_DIR'], wanted: 'install' };
const uvCache: ToolCache = { name: 'uv', variables: ['UV_CACHE_DIR'], wanted: 'install' };
const tools: ToolCache = { name: 'python-tools', variables: ['PYTHON_TOOLS'], wanted: 'install' };

/** A tool of Python's own, kept with the cache of the app: its list of packages goes into a file that pip or uv reads. */
const withTool = (packages: string, command: string): string =>
  `[ -d "$PYTHON_TOOLS/${packages.split(' ')[0]}" ] || python3 -m pip install -q --root-user-action=ignore ` +
  `--target "$PYTHON_TOOLS/${packages.split(' ')[0]}" ${packages}; ` +
  `PYTHONPATH="$PYTHON_TOOLS/${packages.split(' ')[0]}" python3 -m ${command}`;
const list = '"$TMPDIR/requirements.txt"';
const uvInstall = (from: string) => withTool('uv', `uv pip install --python python3 ${target} -r ${from}`);

const ways: readonly {
  files: readonly string[];
  locked: boolean;
  install: string;
  caches: readonly ToolCache[];
}[] = [
  {
    files: ['uv.lock', 'pyproject.toml'],
    locked: true,
    install: `${withTool('uv', `uv export -q --frozen --no-dev --no-hashes --no-emit-project -o ${list}`)} && ${uvInstall(list)}`,
    caches: [tools, pipCache, uvCache],
  },
  {
    files: ['poetry.lock', 'pyproject.toml'],
    locked: true,
    install: `${withTool('poetry poetry-plugin-export', `poetry export --without-hashes -o ${list}`)} && ${pip} -r ${list}`,
    caches: [tools, pipCache],
  },
  {
    files: ['pdm.lock', 'pyproject.toml'],
    locked: true,
    install: `${withTool('pdm', `pdm export --prod --without-hashes -o ${list}`)} && ${pip} -r ${list}`,
    caches: [tools, pipCache],
  },
  {
    files: ['Pipfile.lock', 'Pipfile'],
    locked: true,
    install: `${withTool('pipenv', `pipenv requirements`)} > ${list} && ${pip} -r ${list}`,
    caches: [tools, pipCache],
  },
  {
    files: ['requirements.txt'],
    locked: false,
    install: `${pip} -r requirements.txt`,
    caches: [pipCache],
  },
  {
    files: ['pyproject.toml'],
    locked: false,
    install: uvInstall('pyproject.toml'),
    caches: [tools, pipCache, uvCache],
  },
  {
    files: ['Pipfile'],
    locked: false,
    install: `${withTool('pipenv', 'pipenv lock -q')} && ${withTool('pipenv', 'pipenv requirements')} > ${list} && ${pip} -r ${list}`,
    caches: [tools, pipCache],
  },
];

/** How this source names its packages; null: it needs none. */
export async function requirements(look: Look): Promise<Requirements | null> {
  const { tree } = look;
  for (const way of ways) {
    if (!(await tree.has(at(look, way.files[0]!)))) continue;
    let text = '';
    for (const name of way.files) text += ((await tree.read(at(look, name))) ?? '').toLowerCase();
    // Every line of requirements.txt fixes one version: as good as a lock file.
    const lines = text.split(/\r?\n/).map((line) => line.replace(/#.*/, '').trim());
    const pinned =
      way.files[0] === 'requirements.txt' &&
      lines.every((line) => line === '' || /^[\w.-]+(\[[\w,.-]+\])?==[^\s*]+$/.test(line));
    return { ...way, locked: way.locked || pinned, text };
  }
  return null;
}

/** Whether a package is among them. */
export function needs(found: Requirements | null, name: string): boolean {
  return found !== null && new RegExp(`(^|[^\\w.-])${name}($|[^\\w.-])`, 'm').test(found.text);
}

/** The step that brings them, and a server that the source does not name itself. */
export function installCommand(found: Requirements | null, server: string | null): string | null {
  const parts = [found?.install, server === null ? null : `${pip} ${quoted(server)}`];
  return parts.filter(Boolean).join(' && ') || null;
}

/** Installed packages are taken whole while all that fixes them is the same. */
export function pythonCaches(
  look: Look,
  found: Requirements | null,
  install: string | null,
  tool: PythonTool,
): PlanCaches {
  if (install === null) return { tools: [], tree: [], installed: null };
  const caches = found?.caches ?? [pipCache];
  const hash = createHash('sha256').update(
    `${tool.version} ${process.arch} ${install}\n${found?.text ?? ''}`,
  );
  for (const { name, value } of look.spec.env) hash.update(`\n${name}=${value}`);
  const sound = found === null || (found.locked && !/(^|\s)(-e|--editable|file:|\.\/)/m.test(found.text));
  return {
    tools: caches,
    tree: [],
    installed: sound
      ? { key: hash.digest('hex'), folders: () => Promise.resolve([at(look, pythonPackages)]) }
      : null,
  };
}
