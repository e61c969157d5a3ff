import { buildCommand, readProject, toolCaches } from '../../node/package-manager.js';
import { type PackageJson, readPackage } from '../../node/package-json.js';
import { chosenOutput, serverIn, siteFolder } from '../../outputs.js';
import { at, type BuildOutput, type Look, type Stack } from '../../plan.js';
import { BuildFailure } from '../../tree.js';
import { startsServer } from '../../node/servers.js';
import { type SiteTool, siteTools } from './tools.js';

/** Vite and what stands on it, and other tools whose build is a site (or, of some, a server). */
export const sites: Stack = {
  names: siteTools.map(({ name }) => name),
  async detect(look) {
    const { tree, appDir, asked, spec } = look;
    const pkg = await readPackage(tree, appDir);
    const named = asked ? siteTools.find(({ name }) => name === spec.framework?.trim().toLowerCase()) : null;
    const tool = named ?? (pkg ? toolOf(pkg) : null);
    if (!tool) return null;
    if (pkg === null)
      throw new BuildFailure(`framework asks for ${tool.name}, but there is no package.json.`);
    // A tool of this kind beside a server is the server's.
    if (!asked && !tool.server && (spec.app_type === 'backend' || startsServer(pkg))) return null;
    const project = await readProject(look, pkg);
    const script = pkg.scripts['build'] !== undefined;
    return {
      ...{ stack: tool.name, appDir, installDir: project.installDir, install: project.install },
      build: script ? await buildCommand(look, project, 'build') : tool.build,
      ...{ after: null, node: true, notes: [], env: {} },
      caches: await toolCaches(look, project),
      output: () => output(look, tool, pkg, project.installDir),
    };
  },
};

const toolOf = (pkg: PackageJson): SiteTool | null =>
  siteTools.find(({ packages }) => packages.some((name) => pkg.dependencies[name] !== undefined)) ?? null;

async function output(
  look: Look,
  tool: SiteTool,
  pkg: PackageJson,
  installDir: string,
): Promise<BuildOutput> {
  const { tree, appDir, spec } = look;
  const chosen = await chosenOutput(look, installDir);
  if (chosen !== null) return chosen;
  const { server } = tool;
  if (server && (await tree.has(at(look, server.file)))) {
    // Of a workspace too this needs nothing but its own folder: its packages are in it.
    if (server.file.startsWith('.output/')) return { kind: 'server', dir: appDir, start: server.start };
    return serverIn(installDir, appDir, server.start);
  }
  const folders = [...(await ownFolders(look)), ...tool.folders];
  const dir = spec.app_type === 'backend' ? null : await siteFolder(tree, appDir, folders);
  // The app's own folder holds the page that the tool builds from, not the built one.
  if (dir !== null && dir !== appDir) return { kind: 'static', dir };
  if (pkg.scripts['start'] !== undefined && (spec.app_type === 'backend' || startsServer(pkg)))
    return serverIn(installDir, appDir, 'npm start');
  const looked = [...(server ? [server.file] : []), ...folders.map((name) => `${name}/index.html`)];
  throw new BuildFailure(
    `The build (${tool.name}) left nothing to serve: looked for ${looked.join(', ')}. ` +
      `${tool.hint ? `${tool.hint} ` : ''}Or set output_directory or start_command.`,
  );
}

/** Where vite.config says that the site goes. */
async function ownFolders(look: Look): Promise<string[]> {
  for (const end of ['ts', 'js', 'mjs', 'mts', 'cjs']) {
    const text = await look.tree.read(at(look, `vite.config.${end}`));
    const found = text === null ? null : /outDir\s*:\s*['"]([\w./-]+)['"]/.exec(text);
    if (found && !found[1]!.startsWith('/') && !found[1]!.split('/').includes('..')) return [found[1]!];
  }
  return [];
}
