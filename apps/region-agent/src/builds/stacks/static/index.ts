import { at, noCaches, type Stack } from '../../plan.js';
import { BuildFailure } from '../../tree.js';
import { chosenOutput, siteFolder } from '../../outputs.js';

/** Files that are served as they are, or what explicit commands make of them. */
export const staticSite: Stack = {
  names: ['static', 'html'],
  async detect(look) {
    const { spec, tree, appDir, start, asked } = look;
    const explicit = [spec.install_command, spec.build_command, spec.output_directory, start];
    const there =
      explicit.some((value) => value !== null) ||
      (await tree.has(at(look, 'index.html'))) ||
      (await tree.has(at(look, 'public'), 'folder'));
    if (!there && !asked) return null;
    return {
      stack: 'static',
      ...{ appDir, installDir: appDir, install: null, build: null, after: null, node: false },
      ...{ notes: [], env: {}, caches: noCaches },
      output: async () => {
        const chosen = await chosenOutput(look, appDir);
        if (chosen !== null) return chosen;
        const dir = spec.app_type === 'backend' ? null : await siteFolder(tree, appDir);
        if (dir !== null) return { kind: 'static', dir };
        if (spec.app_type === 'backend')
          throw new BuildFailure(
            'This is a backend app, but nothing to start was found: looked for start_command, a Procfile, a start ' +
              'script or "main" of package.json, server.js, go.mod, requirements.txt and pyproject.toml.',
          );
        throw new BuildFailure(
          'The build left nothing to serve: looked for dist, build, out, public with an index.html. Set ' +
            'output_directory or start_command.',
        );
      },
    };
  },
};
