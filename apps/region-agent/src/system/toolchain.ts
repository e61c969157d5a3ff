import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, realpathSync } from 'node:fs';
import { createRequire } from 'node:module';
import { delimiter, dirname, join } from 'node:path';

/** Go's tool chain, for builds only. */
export interface GoTool {
  /** GOROOT. */
  root: string;
  /** "1.24.1". */
  version: string;
}

/** Python, for builds and for replicas. */
export interface PythonTool {
  executable: string;
  /** Where its library is: the folder above `bin` and `lib`. */
  prefix: string;
  /** "3.11.2". */
  version: string;
  /** Whether it can install packages. */
  pip: boolean;
}

/** What builds and replicas run on. */
export interface Toolchain {
  /** This process's own executable: the version that Nebo itself was tested with. */
  node: string;
  /** npm's package folder, or null when the host has none. */
  npm: string | null;
  go: GoTool | null;
  python: PythonTool | null;
  /** Further certificate authorities that the operator gave this process (`NODE_EXTRA_CA_CERTS`), or null. */
  authorities: string | null;
}

type Env = Record<string, string | undefined>;

/** Looks at this host: what builds and replicas can run on. */
export function findToolchain(env: Env = process.env): Toolchain {
  const node = realpathSync(process.execPath);
  const extra = env['NODE_EXTRA_CA_CERTS'];
  return {
    node,
    npm: findNpm(env, node),
    go: findGo(env),
    python: findPython(env),
    authorities: extra && existsSync(extra) ? realpathSync(extra) : null,
  };
}

/** What to install for a tool that is missing: for users' failures and for `admin doctor`. */
export const toolAdvice = {
  npm: 'npm, which comes with Node',
  go: 'Go (in /usr/local/go, or the package golang-go)',
  python: 'Python 3 (the package python3)',
  pip: 'pip for Python 3 (the package python3-pip)',
} as const;

function folders(env: Env): string[] {
  return (env['PATH'] ?? '').split(delimiter).filter((folder) => folder !== '');
}

/**
 * Finds npm: beside this Node, in the workspace's node_modules, in any folder of PATH, in the usual system folders.
 * npm is plain JavaScript, so whichever is found runs on this Node.
 */
function findNpm(env: Env, node: string): string | null {
  const places = [join(dirname(node), '../lib/node_modules/npm')];
  try {
    places.push(dirname(createRequire(import.meta.url).resolve('npm/package.json')));
  } catch {
    // npm is no dependency of the workspace; the host's is used.
  }
  for (const folder of folders(env)) {
    const binary = join(folder, 'npm');
    if (!existsSync(binary)) continue;
    // …/npm/bin/npm-cli.js
    places.push(dirname(dirname(realpathSync(binary))));
  }
  places.push('/usr/local/lib/node_modules/npm', '/usr/lib/node_modules/npm', '/usr/share/nodejs/npm');
  const npm = places.find((place) => existsSync(join(place, 'bin/npm-cli.js')));
  return npm ? realpathSync(npm) : null;
}

/** By GOROOT, PATH, the usual folders. */
function findGo(env: Env): GoTool | null {
  const places = env['GOROOT'] ? [env['GOROOT']] : [];
  for (const folder of folders(env)) {
    const binary = join(folder, 'go');
    if (existsSync(binary)) places.push(dirname(dirname(realpathSync(binary))));
  }
  places.push('/usr/local/go', '/usr/lib/go');
  for (const place of places) {
    const version = existsSync(join(place, 'bin/go')) ? versionFile(join(place, 'VERSION')) : null;
    if (version !== null) return { root: realpathSync(place), version };
  }
  return null;
}

function versionFile(path: string): string | null {
  try {
    return /^go(\d[^\s]*)/.exec(readFileSync(path, 'utf8'))?.[1] ?? null;
  } catch {
    return null;
  }
}

/** The system's own before one of PATH, which may be a person's; one with pip before one without. */
function findPython(env: Env): PythonTool | null {
  const names = ['/usr/bin/python3', ...folders(env).map((folder) => join(folder, 'python3'))];
  let without: PythonTool | null = null;
  for (const name of new Set(names)) {
    const found = existsSync(name) ? askPython(name) : null;
    if (found?.pip) return found;
    without ??= found;
  }
  return without;
}

const question =
  'import importlib.util as u, os, platform, sys; print(os.path.realpath(sys.executable)); print(sys.base_prefix); ' +
  'print(platform.python_version()); print(u.find_spec("pip") is not None)';

function askPython(name: string): PythonTool | null {
  try {
    // Isolated: nobody's variables or packages have a say.
    const env = { PATH: '/usr/local/bin:/usr/bin:/bin', HOME: '/nonexistent' };
    const text = execFileSync(name, ['-I', '-c', question], {
      ...{ encoding: 'utf8', env, timeout: 10_000 },
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    const [executable, prefix, version, pip] = text.trim().split('\n');
    if (!executable || !prefix || !/^3\.\d/.test(version ?? '')) return null;
    return { executable, prefix, version: version!, pip: pip === 'True' };
  } catch {
    return null;
  }
}
