import { at, noCaches, type Stack } from '../../plan.js';
import { BuildFailure } from '../../tree.js';

/**
 * A Dockerfile, built by a container engine where one answers. Without one it is an error: to build around it silently would deploy
 * something else than was written.
 */
export const dockerfile: Stack = {
  names: ['dockerfile', 'docker'],
  async detect(look) {
    const { spec, tree, asked, appDir } = look;
    const explicit = [spec.install_command, spec.build_command, spec.start_command, spec.output_directory];
    if (!asked && explicit.some((value) => value !== null)) return null;
    if (!(await tree.has(at(look, 'Dockerfile')))) {
      if (!asked) return null;
      throw new BuildFailure('framework asks for a Dockerfile, but the source has none.');
    }
    if (!(await look.engine()))
      throw new BuildFailure(
        'The source has a Dockerfile, and this region has no container engine that builds it. Set framework (such as ' +
          'node, next, go, python or static) or build_command and start_command to build it without, or build the image ' +
          'elsewhere and deploy it as a docker_image.',
      );
    const unused = (['install_command', 'build_command', 'output_directory'] as const).filter(
      (name) => spec[name] !== null,
    );
    return {
      ...{ stack: 'dockerfile', appDir, installDir: appDir, install: null, build: null, after: null },
      ...{ node: false, env: {}, caches: noCaches, container: true },
      notes: unused.map((name) => `note: ${name} is not used: the Dockerfile says how the app is built`),
      output: () => Promise.reject(new Error('what an engine builds is an image')),
    };
  },
};
