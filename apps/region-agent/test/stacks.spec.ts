import { type BuildSpec } from '@nebo/contracts';
import { type Toolchain } from '../src/system/toolchain.js';
import { pkg, PlanGround } from './plan-kit.js';

let ground: PlanGround;
beforeEach(async () => {
  ground = await PlanGround.make();
});
afterEach(() => ground.end());

const main = 'package main\n\nfunc main() {}\n';
const dep = { dependencies: { a: '1' } };
const nextServer = pkg({
  scripts: { build: 'next build', start: 'next start' },
  dependencies: { next: '16' },
});

describe('stacks', () => {
  it.each<[string, Record<string, string>, Partial<BuildSpec>, object]>([
    [
      'go: the folder itself',
      { 'go.mod': 'module a\n', 'main.go': main, out: '' },
      {},
      {
        stack: 'go',
        install: null,
        build: `go build -ldflags='-w -s' -o out '.'`,
        kept: ['go-build', 'go-mod'],
        out: { kind: 'server', dir: '.', start: './out' },
      },
    ],
    [
      'go: modules are fetched first',
      { 'go.mod': 'module a\n\nrequire b v1.0.0\n', 'main.go': main },
      {},
      { install: 'go mod download', out: /left no program "out"/ },
    ],
    [
      'go: of several programs the server',
      {
        'go.mod': 'module x/shop\n',
        'cmd/a/a.go': main,
        'cmd/server/b.go': main,
        'lib/l.go': 'package lib\n',
      },
      {},
      {
        build: expect.stringContaining(`'./cmd/server'`),
        notes: expect.stringContaining('cmd/a, cmd/server are programs'),
      },
    ],
    [
      'go: the one that is named like the module',
      { 'go.mod': 'module x/shop\n', 'cmd/server/b.go': main, 'cmd/shop/b.go': main },
      {},
      { build: expect.stringContaining(`'./cmd/shop'`) },
    ],
    [
      'go: a module of the workspace',
      { 'go.work': 'go 1.21\nuse (\n  ./lib\n  ./api\n)\n', 'lib/l.go': 'package lib\n', 'api/m.go': main },
      {},
      { build: expect.stringContaining(`'./api'`) },
    ],
    [
      'go: a program below the module',
      { 'go.mod': 'module a\n', 'cmd/api/main.go': main },
      { root_directory: 'cmd/api' },
      { stack: 'go', build: expect.stringContaining(`'.'`) },
    ],
    [
      'a package with scripts before go, one without after',
      { 'go.mod': 'module a\n', 'main.go': main, 'package.json': pkg({ scripts: { start: 'node x' } }) },
      {},
      { stack: 'node' },
    ],
    [
      'go before a package without scripts',
      { 'go.mod': 'module a\n', 'main.go': main, 'package.json': pkg({ main: 'index.js' }), 'index.js': '' },
      {},
      { stack: 'go' },
    ],
    [
      'django',
      {
        'requirements.txt': 'Django==5.2\n',
        'manage.py': `os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'shop.settings')`,
        'shop/settings.py': 'STATIC_ROOT = "static"\n',
        'shop/wsgi.py': '',
      },
      {},
      {
        stack: 'django',
        install: expect.stringMatching(/--target \.nebo\/python -r requirements\.txt && .* 'gunicorn'$/),
        build: 'python3 manage.py collectstatic --noinput',
        reused: expect.any(String),
        out: {
          kind: 'server',
          dir: '.',
          start: expect.stringContaining('gunicorn shop.wsgi:application --bind'),
        },
      },
    ],
    [
      'fastapi by uv',
      {
        'pyproject.toml': '[project]\ndependencies = ["fastapi", "uvicorn"]\n',
        'uv.lock': '',
        'app/main.py': 'from fastapi import FastAPI\napi = FastAPI()\n',
      },
      {},
      {
        stack: 'fastapi',
        install: expect.stringMatching(/uv export .*--frozen.* && .*uv pip install/),
        kept: ['python-tools', 'pip', 'uv'],
        out: { kind: 'server', dir: '.', start: expect.stringContaining('uvicorn app.main:api --host') },
      },
    ],
    [
      'flask with a factory; versions that are not pinned are looked for anew',
      { 'requirements.txt': 'flask>=3\ngunicorn\n', 'app.py': 'def create_app():\n  pass\n' },
      {},
      {
        stack: 'flask',
        reused: null,
        install: expect.not.stringContaining(`'gunicorn'`),
        out: { start: expect.stringContaining(`gunicorn 'app:create_app()'`) },
      },
    ],
    [
      'a python file alone',
      { 'main.py': '' },
      {},
      { stack: 'python', install: null, out: { kind: 'server', start: 'python3 main.py' } },
    ],
    [
      'python by poetry, pdm, pipenv',
      { 'pyproject.toml': '', 'poetry.lock': '', 'main.py': '' },
      {},
      { install: expect.stringContaining('poetry export') },
    ],
    [
      'pdm',
      { 'pyproject.toml': '', 'pdm.lock': '', 'main.py': '' },
      {},
      { install: expect.stringContaining('pdm export') },
    ],
    [
      'pipenv',
      { Pipfile: '', 'Pipfile.lock': '{}', 'main.py': '' },
      {},
      { install: expect.stringContaining('pipenv requirements') },
    ],
    [
      'a site with a requirements.txt of its tools',
      { 'requirements.txt': 'mkdocs\n', 'index.html': '' },
      {},
      { stack: 'static' },
    ],
    [
      'a Procfile, and an explicit command above it',
      {
        Procfile: 'worker: x\nweb: node web.js --port $PORT\n',
        'package.json': pkg({ scripts: { start: 'y' } }),
      },
      {},
      { out: { kind: 'server', dir: '.', start: 'node web.js --port $PORT' } },
    ],
    [
      'an explicit command above a Procfile',
      { Procfile: 'web: a\n', 'package.json': pkg({ scripts: { start: 'y' } }) },
      { start_command: 'b' },
      { out: { start: 'b' } },
    ],
    [
      'next standalone in a workspace',
      {
        'pnpm-workspace.yaml': '',
        'pnpm-lock.yaml': '',
        'package.json': pkg({}),
        'apps/web/package.json': nextServer
          .replace('"16"', '"16","ui":"workspace:*"')
          .replace('{', '{"name":"web",'),
        'apps/web/.next/standalone/apps/web/server.js': '',
      },
      { root_directory: 'apps/web' },
      {
        stack: 'next',
        installDir: '.',
        install: 'npx --yes pnpm@10 install --frozen-lockfile',
        build: `cd '../..' && npx --yes pnpm@10 --filter './apps/web...' run build`,
        kept: ['npm', 'pnpm', 'next'],
        out: {
          kind: 'server',
          dir: 'apps/web/.next/standalone',
          start: `cd 'apps/web' && HOSTNAME="$HOST" node server.js`,
        },
      },
    ],
    [
      'turborepo',
      {
        'package.json': pkg({ workspaces: ['apps/*'], devDependencies: { turbo: '2' } }),
        'turbo.json': '{}',
        'apps/web/package.json': pkg({ name: 'web', scripts: { build: 'x', start: 'y' } }),
      },
      { root_directory: 'apps/web' },
      { build: `cd '../..' && npx turbo run build '--filter=web'` },
    ],
    [
      'nx',
      {
        'nx.json': '{}',
        'package.json': pkg({ devDependencies: { nx: '21' } }),
        'apps/api/project.json': pkg({
          name: 'api',
          targets: { build: { options: { outputPath: 'dist/{projectRoot}' } } },
        }),
        'dist/apps/api/main.js': '',
      },
      { root_directory: 'apps/api' },
      {
        stack: 'nx',
        installDir: '.',
        build: `cd '../..' && npx nx build 'api'`,
        out: { kind: 'server', dir: '.', start: `node 'dist/apps/api/main.js'` },
      },
    ],
    [
      'astro as a server',
      {
        'package.json': pkg({ scripts: { build: 'astro build' }, dependencies: { astro: '5' } }),
        'dist/server/entry.mjs': '',
        'dist/client/index.html': '',
      },
      {},
      { stack: 'astro', out: { kind: 'server', start: 'node ./dist/server/entry.mjs' } },
    ],
    [
      'nuxt without a build script',
      { 'package.json': pkg({ dependencies: { nuxt: '4' } }), '.output/server/index.mjs': '' },
      { app_type: 'backend' },
      { stack: 'nuxt', build: 'npx nuxt build', out: { start: 'node .output/server/index.mjs' } },
    ],
    [
      'sveltekit without an adapter',
      { 'package.json': pkg({ scripts: { build: 'x' }, dependencies: { '@sveltejs/kit': '2', vite: '7' } }) },
      {},
      { stack: 'sveltekit', out: /SvelteKit needs the adapter/ },
    ],
    [
      'vite with a folder of its own',
      {
        'package.json': pkg({ scripts: { build: 'vite build' }, dependencies: { vite: '7' } }),
        'vite.config.ts': `export default { build: { outDir: 'web/out' } }`,
        'web/out/index.html': '',
        'index.html': '',
      },
      {},
      { out: { kind: 'static', dir: 'web/out' } },
    ],
    [
      'vite that left nothing: its own index.html is no site',
      {
        'package.json': pkg({ scripts: { build: 'vite build' }, dependencies: { vite: '7' } }),
        'index.html': '',
      },
      {},
      { out: /left nothing to serve: looked for dist\/index.html/ },
    ],
    [
      'modern yarn by its lock file',
      {
        'package.json': pkg({ scripts: { start: 'x' }, ...dep }),
        'yarn.lock': '__metadata:\n  version: 8\n',
      },
      {},
      { install: 'npx --yes @yarnpkg/cli-dist install --immutable' },
    ],
    [
      'a pinned manager, without its hash',
      {
        'package.json': pkg({
          scripts: { build: 'x', start: 'y' },
          ...dep,
          packageManager: 'pnpm@9.1.0+sha512.abc',
        }),
        'pnpm-lock.yaml': '',
      },
      {},
      { install: 'npx --yes pnpm@9.1.0 install --frozen-lockfile', build: 'npx --yes pnpm@9.1.0 run build' },
    ],
    [
      'bun',
      { 'package.json': pkg({ scripts: { start: 'y' }, ...dep }), 'bun.lock': '' },
      {},
      { install: 'npx --yes bun@1 install --frozen-lockfile', kept: ['npm', 'bun'] },
    ],
    [
      'a Dockerfile beside explicit commands',
      { Dockerfile: '', 'package.json': pkg({ scripts: { start: 'y' } }) },
      { start_command: 'node x' },
      { stack: 'node' },
    ],
    [
      'a Dockerfile beside another framework',
      { Dockerfile: '', 'go.mod': 'module a\n', 'main.go': main },
      { framework: 'Go' },
      { stack: 'go' },
    ],
    [
      'a framework that nobody knows',
      { 'index.html': '' },
      { framework: 'cobol' },
      {
        stack: 'static',
        notes: expect.stringMatching(/^note: framework "cobol" is not known here, .*next.*python/),
      },
    ],
  ])('%s', async (_, files, more, expected) => {
    const found = await ground.plan(files, more);
    const { out, ...rest } = expected as { out?: unknown };
    expect(found).toMatchObject(rest);
    if (out instanceof RegExp) expect(found['out']).toMatch(out);
    else if (out !== undefined) expect(found['out']).toMatchObject(out as object);
  });

  it.each<[string, Record<string, string>, Partial<BuildSpec>, Partial<Toolchain>, RegExp]>([
    [
      'go',
      { 'go.mod': '', 'main.go': main },
      {},
      { go: null },
      /operator has to install Go \(in \/usr\/local\/go/,
    ],
    ['python', { 'main.py': '' }, {}, { python: null }, /operator has to install Python 3/],
    [
      'pip',
      { 'main.py': '', 'requirements.txt': 'a' },
      {},
      { python: { executable: 'p', prefix: '/usr', version: '3.9', pip: false } },
      /operator has to install pip/,
    ],
    ['no go program', { 'go.mod': 'module a\n', 'a.go': 'package a\n' }, {}, {}, /No Go program was found/],
    [
      'next',
      { 'index.html': '' },
      { framework: 'next' },
      {},
      /asks for Next.js, but package.json has no dependency/,
    ],
    ['go', { 'index.html': '' }, { framework: 'go' }, {}, /asks for Go, but there is no go.mod/],
    ['python', { 'index.html': '' }, { framework: 'django' }, {}, /asks for Python, but there is none of/],
    ['nx', { 'index.html': '' }, { framework: 'nx' }, {}, /set root_directory to the folder of an app/],
    [
      'docker',
      { 'index.html': '' },
      { framework: 'docker' },
      {},
      /asks for a Dockerfile, but the source has none/,
    ],
    ['node', { 'package.json': '{}' }, { framework: 'node' }, {}, /package.json has no start script/],
    ['vite', { 'index.html': '' }, { framework: 'vite' }, {}, /asks for vite, but there is no package.json/],
  ])('says what is missing: %s', async (_, files, more, tools, message) => {
    await expect(ground.plan(files, more, tools)).rejects.toThrow(message);
  });

  it('what is installed has another key with another lock, variable or package; none where that is not all', async () => {
    const json = { scripts: { start: 'x' }, dependencies: { a: '^1.0.0' } };
    const key = async (lock: string, text: object, more: Partial<BuildSpec> = {}) =>
      (await ground.plan({ 'package.json': pkg(text), 'package-lock.json': lock }, more))['reused'];
    const usual = await key('1', json);
    expect(usual).toMatch(/^[0-9a-f]{64}$/);
    expect(await key('1', json)).toBe(usual);
    const others = [
      await key('2', json),
      await key('1', json, { env: [{ name: 'NODE_ENV', value: 'production', secret: false }] }),
      await key('1', { ...json, dependencies: { a: '^2.0.0' } }),
    ];
    expect(new Set([usual, ...others]).size).toBe(4);
    expect(await key('1', { ...json, scripts: { ...json.scripts, postinstall: 'make' } })).toBeNull();
    expect(await key('1', { ...json, dependencies: { a: 'file:../a' } })).toBeNull();
    expect(await key('1', json, { install_command: 'npm ci && make' })).toBeNull();
  });
});
