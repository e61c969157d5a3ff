import { at, type Stack } from '../../plan.js';
import { BuildFailure } from '../../tree.js';

/** A Dockerfile needs a container engine, which no driver of this region has. Never taken for something else silently. */
export const dockerfile: Stack = {
  names: ['dockerfile', 'docker'],
  async detect(look) {
    const { spec, tree, asked } = look;
    const explicit = [spec.install_command, spec.build_command, spec.start_command, spec.output_directory];
    if (!asked && explicit.some((value) => value !== null)) return null;
    if (!(await tree.has(at(look, 'Dockerfile')))) {
      if (!asked) return null;
      throw new BuildFailure('framework asks for a Dockerfile, but the source has none.');
    }
    throw new BuildFailure(
      'The source has a Dockerfile, and this region has no container engine that builds it. Set framework (such as ' +
        'node, next, go, python or static) or build_command and start_command to build it without, or build the image ' +
        'elsewhere and deploy it as a docker_image.',
    );
  },
};
