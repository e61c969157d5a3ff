import { toolAdvice } from '../../../system/toolchain.js';
import { chosenOutput } from '../../outputs.js';
import { at, pythonPackages, type Look, type Stack } from '../../plan.js';
import { BuildFailure } from '../../tree.js';
import { installCommand, pythonCaches, requirements } from './packages.js';
import { pythonServer } from './server.js';

const marks = [
  'requirements.txt',
  'pyproject.toml',
  'Pipfile',
  'manage.py',
  'main.py',
  'app.py',
  'server.py',
];

/** Python: Django and Flask behind gunicorn, FastAPI behind uvicorn, else a file that starts a server itself. */
export const python: Stack = {
  names: ['python', 'django', 'flask', 'fastapi'],
  async detect(look) {
    const { tree, appDir, tools, asked, start } = look;
    const there = await Promise.all(marks.map((name) => tree.has(at(look, name))));
    if (!there.includes(true)) {
      if (!asked) return null;
      throw new BuildFailure(`framework asks for Python, but there is none of ${marks.join(', ')}.`);
    }
    const found = await requirements(look);
    const server = await pythonServer(look, found);
    // A site whose tools happen to be Python's is still a site.
    if (server === null && start === null && !asked && (await isSite(look))) return null;
    const { python: tool } = tools;
    const lacks = tool === null ? toolAdvice.python : tool.pip ? null : toolAdvice.pip;
    const install = installCommand(found, start === null ? (server?.adds ?? null) : null);
    if (tool === null || (lacks !== null && install !== null))
      throw new BuildFailure(
        `The source is Python, for which this region lacks something: its operator has to install ${lacks}.`,
      );
    const adds =
      start === null && server?.adds ? [`note: ${server.adds} is added, which the source does not name`] : [];
    return {
      ...{ stack: server?.name ?? 'python', appDir, installDir: appDir, after: null, node: false },
      install,
      build: server?.build ?? null,
      notes: [`Python ${tool.version}`, ...adds],
      env: {
        ...{ PYTHONUNBUFFERED: '1', PIP_DISABLE_PIP_VERSION_CHECK: '1', PIP_NO_INPUT: '1' },
        // From the app's folder, where its commands run.
        PYTHONPATH: pythonPackages,
      },
      caches: pythonCaches(look, found, install, tool),
      output: async () => {
        const chosen = await chosenOutput(look, appDir);
        if (chosen !== null) return chosen;
        if (server !== null) return { kind: 'server', dir: appDir, start: server.start };
        throw new BuildFailure(
          'Nothing to start was found: looked for manage.py of Django, an app of FastAPI or Flask, main.py, app.py and ' +
            'server.py. Set start_command.',
        );
      },
    };
  },
};

async function isSite(look: Look): Promise<boolean> {
  return (
    look.spec.output_directory !== null ||
    (await look.tree.has(at(look, 'index.html'))) ||
    (await look.tree.has(at(look, 'public'), 'folder'))
  );
}
