import { posix } from 'node:path';
import { toolAdvice } from '../../../system/toolchain.js';
import { chosenOutput } from '../../outputs.js';
import { at, quoted, type Look, type PlanCaches, type Stack } from '../../plan.js';
import { BuildFailure, type SourceTree } from '../../tree.js';

const caches: PlanCaches = {
  tools: [
    { name: 'go-build', variables: ['GOCACHE'], wanted: 'always' },
    { name: 'go-mod', variables: ['GOMODCACHE'], wanted: 'always' },
  ],
  tree: [],
  installed: null,
};

/** Go: a module, a workspace, or a main.go alone; one static binary `out`. */
export const go: Stack = {
  names: ['go', 'golang'],
  async detect(look) {
    const { tree, appDir, tools, asked } = look;
    const files = await Promise.all(['go.mod', 'go.work', 'main.go'].map((name) => tree.has(at(look, name))));
    const module = await moduleRoot(tree, appDir);
    if (!files.includes(true) && module === null) {
      if (!asked) return null;
      throw new BuildFailure('framework asks for Go, but there is no go.mod, go.work or main.go.');
    }
    if (tools.go === null)
      throw new BuildFailure(
        `The source is Go, which this region lacks: its operator has to install ${toolAdvice.go}.`,
      );
    const explicit = look.spec.build_command !== null;
    const { target, notes } = explicit ? { target: '.', notes: [] } : await findTarget(look);
    const requires = /^[ \t]*require\b/m.test((await tree.read(at(look, 'go.mod'))) ?? '');
    const vendored = await tree.has(at(look, 'vendor'), 'folder');
    return {
      ...{ stack: 'go', appDir, installDir: appDir, after: null, node: false },
      install: requires && !vendored ? 'go mod download' : null,
      build: `go build -ldflags='-w -s' -o out ${quoted(target)}`,
      notes: [`Go ${tools.go.version}`, ...notes],
      // A static binary: it runs whatever the replica's system is.
      env: { CGO_ENABLED: '0', GOFLAGS: '-buildvcs=false -modcacherw', GOTELEMETRY: 'off' },
      caches,
      output: async () => {
        const chosen = await chosenOutput(look, appDir);
        if (chosen !== null) return chosen;
        if (!(await tree.has(at(look, 'out'))))
          throw new BuildFailure('The build left no program "out" to start. Set start_command.');
        return { kind: 'server', dir: appDir, start: './out' };
      },
    };
  },
};

/** The module or workspace above an app's folder that holds Go files itself. */
async function moduleRoot(tree: SourceTree, appDir: string): Promise<string | null> {
  if (!(await tree.list(appDir)).some((name) => name.endsWith('.go'))) return null;
  for (let dir = appDir; dir !== '.';) {
    dir = posix.dirname(dir);
    for (const name of ['go.mod', 'go.work']) if (await tree.has(posix.join(dir, name))) return dir;
  }
  return null;
}

/** Names that a server's folder usually has, where there are several programs. */
const usualNames = ['server', 'web', 'api', 'app', 'main'];

/**
 * What to build: the app's folder, else a folder of `cmd`, else a module of the workspace.
 * @throws BuildFailure when no program is found
 */
async function findTarget(look: Look): Promise<{ target: string; notes: string[] }> {
  const { tree, appDir } = look;
  if (await isProgram(tree, appDir)) return { target: '.', notes: [] };
  const commands = await programs(
    tree,
    (await tree.list(at(look, 'cmd'))).map((name) => at(look, 'cmd', name)),
  );
  const modules = commands.length > 0 ? [] : await programs(tree, await workspaceFolders(look));
  const found = [...commands, ...modules].map((dir) => posix.relative(appDir === '.' ? '' : appDir, dir));
  if (found.length === 0)
    throw new BuildFailure(
      'No Go program was found: looked for "package main" in the folder itself, in cmd/* and in the modules of go.work. ' +
        'Set build_command and start_command.',
    );
  const own = (await moduleName(look))?.split('/').at(-1);
  const chosen = [own, ...usualNames]
    .map((name) => found.find((dir) => posix.basename(dir) === name))
    .find((dir) => dir !== undefined);
  const target = `./${chosen ?? found[0]!}`;
  const notes =
    found.length > 1
      ? [`note: ${found.join(', ')} are programs; ${target} is built. Set build_command for another.`]
      : [];
  return { target, notes };
}

async function programs(tree: SourceTree, dirs: readonly string[]): Promise<string[]> {
  const found: string[] = [];
  for (const dir of dirs) if (await isProgram(tree, dir)) found.push(dir);
  return found;
}

async function isProgram(tree: SourceTree, dir: string): Promise<boolean> {
  for (const name of await tree.list(dir)) {
    if (!name.endsWith('.go') || name.endsWith('_test.go')) continue;
    const text = (await tree.read(posix.join(dir, name))) ?? '';
    if (/^package main\b/m.test(text) && !/^\/\/go:build ignore\b/m.test(text)) return true;
  }
  return false;
}

async function workspaceFolders(look: Look): Promise<string[]> {
  const text = (await look.tree.read(at(look, 'go.work'))) ?? '';
  const open = /\buse\s*\(/.exec(text);
  const begin = open === null ? 0 : open.index + open[0].length;
  // Without an end there is no block, and the text before the first bracket is none either.
  const block = open === null ? '' : text.slice(begin, Math.max(begin, text.indexOf(')', begin)));
  const single = [...text.matchAll(/^use\s+([^\s(]+)/gm)].map((match) => match[1]!);
  const named = [...block.split(/\s+/), ...single]
    .map((word) => word.replaceAll('"', ''))
    .filter((word) => word !== '');
  return named.map((word) => at(look, word));
}

async function moduleName(look: Look): Promise<string | null> {
  return /^module\s+(\S+)/m.exec((await look.tree.read(at(look, 'go.mod'))) ?? '')?.[1] ?? null;
}
