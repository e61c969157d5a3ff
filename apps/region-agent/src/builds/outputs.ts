import { posix } from 'node:path';
import { at, quoted, type BuildOutput, type Look } from './plan.js';
import { BuildFailure, type SourceTree } from './tree.js';

/** A server that starts in the app's folder, packed with what it needs from `root`. */
export function serverIn(root: string, appDir: string, start: string): BuildOutput {
  if (root === appDir) return { kind: 'server', dir: appDir, start };
  // node_modules lie at the workspace's root, so all of it goes along.
  const inner = posix.relative(root === '.' ? '' : root, appDir);
  return { kind: 'server', dir: root, start: `cd ${quoted(inner)} && ${start}` };
}

/**
 * What the settings say: the start command before the folder. Null when they say nothing.
 * @param root what a server is packed from
 * @throws BuildFailure when the folder that they name is not there
 */
export async function chosenOutput(look: Look, root: string): Promise<BuildOutput | null> {
  const { spec, tree, appDir, start } = look;
  if (spec.start_command !== null) return serverIn(root, appDir, spec.start_command);
  if (spec.output_directory !== null && spec.app_type !== 'backend') {
    const named = spec.output_directory;
    const dir = await tree.folder('output_directory', named.startsWith('/') ? named : at(look, named));
    if (!(await tree.filled(dir)))
      throw new BuildFailure(`output_directory "${named}" is empty after the build.`);
    return { kind: 'static', dir };
  }
  return start === null ? null : serverIn(root, appDir, start);
}

const usualFolders = ['dist', 'build', 'out', 'public'];

/** The folder of a site that a build has left, or the app's own when an index.html stands there. */
export async function siteFolder(
  tree: SourceTree,
  appDir: string,
  folders: readonly string[] = usualFolders,
): Promise<string | null> {
  for (const name of folders) {
    const dir = posix.join(appDir, name);
    if (!(await tree.filled(dir))) continue;
    if (await tree.has(posix.join(dir, 'index.html'))) return dir;
    // Some put the site one or two levels deeper: dist/browser, dist/<name>/browser.
    const inner = (await tree.list(dir)).flatMap((child) => [child, `${child}/browser`]);
    for (const path of ['browser', 'client', ...inner.filter((child) => child.endsWith('/browser'))])
      if (await tree.has(posix.join(dir, path, 'index.html'))) return posix.join(dir, path);
    if (name === 'public') return dir;
  }
  return (await tree.has(posix.join(appDir, 'index.html'))) ? appDir : null;
}
