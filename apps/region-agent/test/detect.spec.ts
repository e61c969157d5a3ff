import { symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { type BuildSpec } from '@nebo/contracts';
import { pkg, PlanGround } from './plan-kit.js';

let ground: PlanGround;
beforeEach(async () => {
  ground = await PlanGround.make();
});
afterEach(() => ground.end());
const plan: PlanGround['plan'] = (...args) => ground.plan(...args);

describe('detection', () => {
  it.each<[string, Record<string, string>, Partial<BuildSpec>, object]>([
    [
      'plain static',
      { 'index.html': '' },
      {},
      { stack: 'static', install: null, build: null, out: { kind: 'static', dir: '.' } },
    ],
    [
      'public folder',
      { 'public/a.txt': 'x' },
      {},
      { stack: 'static', out: { kind: 'static', dir: 'public' } },
    ],
    [
      'static beside a package without scripts',
      { 'package.json': pkg({ name: 'x' }), 'index.html': '' },
      {},
      { stack: 'static', out: { kind: 'static', dir: '.' } },
    ],
    [
      'vite',
      {
        'package.json': pkg({
          scripts: { build: 'vite build', start: 'vite' },
          devDependencies: { vite: '7' },
        }),
        'index.html': '',
        'dist/index.html': '',
      },
      {},
      {
        stack: 'vite',
        install: 'npm install --no-audit --no-fund',
        build: 'npm run build',
        out: { kind: 'static', dir: 'dist' },
      },
    ],
    [
      'what its tools keep, where what is installed is taken whole',
      {
        'package.json': pkg({ scripts: { build: 'vite build' }, devDependencies: { vite: '7' } }),
        'package-lock.json': '{}',
        'dist/index.html': '',
      },
      {},
      { kept: ['npm', 'modules-cache', 'modules-tmp', 'modules-vite', 'modules-astro', 'parcel', 'angular'] },
    ],
    [
      'create-react-app',
      {
        'package.json': pkg({
          scripts: { build: 'x', start: 'react-scripts start' },
          dependencies: { 'react-scripts': '5' },
        }),
        'build/index.html': '',
      },
      {},
      { out: { kind: 'static', dir: 'build' } },
    ],
    [
      'next as a server',
      {
        'package.json': pkg({
          scripts: { build: 'next build', start: 'next start' },
          dependencies: { next: '16' },
        }),
        'public/logo.svg': '',
      },
      {},
      { out: { kind: 'server', dir: '.', start: 'npm start' } },
    ],
    [
      'next exported',
      {
        'package.json': pkg({
          scripts: { build: 'next build', start: 'next start' },
          dependencies: { next: '16' },
        }),
        'next.config.mjs': `export default { output: 'export' }`,
        'out/index.html': '',
      },
      {},
      { out: { kind: 'static', dir: 'out' } },
    ],
    [
      'express with vite beside it',
      {
        'package.json': pkg({
          scripts: { start: 'node s.js', build: 'x' },
          dependencies: { express: '5', vite: '7' },
        }),
        'dist/index.html': '',
      },
      {},
      { out: { kind: 'server', dir: '.', start: 'npm start' } },
    ],
    [
      'main only',
      { 'package.json': pkg({ main: 'lib/app.js' }), 'lib/app.js': '' },
      {},
      { out: { kind: 'server', dir: '.', start: `node 'lib/app.js'` } },
    ],
    [
      'a server file without a package',
      { 'server.js': '' },
      { app_type: 'backend' },
      { stack: 'node', out: { kind: 'server', dir: '.', start: `node 'server.js'` } },
    ],
    [
      'explicit commands',
      { 'package.json': pkg({ scripts: { build: 'x', start: 'y' } }) },
      { install_command: 'make deps', build_command: 'make', start_command: './run' },
      { install: 'make deps', build: 'make', out: { kind: 'server', dir: '.', start: './run' } },
    ],
    [
      'explicit output',
      { 'package.json': pkg({ scripts: { build: 'x', start: 'y' } }), 'site/a.html': '' },
      { output_directory: 'site' },
      { out: { kind: 'static', dir: 'site' } },
    ],
    [
      'npm lock',
      {
        'package.json': pkg({ scripts: { start: 'x' }, dependencies: { a: '1' } }),
        'package-lock.json': '{}',
      },
      {},
      { install: 'npm ci --no-audit --no-fund' },
    ],
    [
      'pnpm lock',
      { 'package.json': pkg({ scripts: { start: 'x' }, dependencies: { a: '1' } }), 'pnpm-lock.yaml': '' },
      {},
      { install: 'npx --yes pnpm@10 install --frozen-lockfile' },
    ],
    [
      'yarn lock',
      { 'package.json': pkg({ scripts: { start: 'x' }, dependencies: { a: '1' } }), 'yarn.lock': '' },
      {},
      { install: 'npx --yes yarn@1 install --frozen-lockfile' },
    ],
    [
      'no dependencies',
      { 'package.json': pkg({ scripts: { start: 'x' } }), 'package-lock.json': '{}' },
      {},
      { install: null },
    ],
    [
      'an app of a workspace',
      {
        'package.json': pkg({ workspaces: ['apps/*'], dependencies: {} }),
        'package-lock.json': '{}',
        'apps/web/package.json': pkg({ scripts: { start: 'x' } }),
      },
      { root_directory: 'apps/web' },
      {
        install: 'npm ci --no-audit --no-fund',
        installDir: '.',
        out: { kind: 'server', dir: '.', start: `cd 'apps/web' && npm start` },
      },
    ],
    [
      'angular',
      {
        'package.json': pkg({ scripts: { build: 'ng build' }, dependencies: { '@angular/cli': '20' } }),
        'dist/browser/index.html': '',
      },
      {},
      { out: { kind: 'static', dir: 'dist/browser' } },
    ],
    [
      'framework static beside a package',
      { 'package.json': pkg({ scripts: { build: 'x' } }), 'index.html': '' },
      { framework: 'static' },
      { stack: 'static', build: null },
    ],
  ])('%s', async (_, files, more, expected) => expect(await plan(files, more)).toMatchObject(expected));

  it.each([
    ['../x', /leaves the source folder/],
    ['/etc', /leaves the source folder/],
    ['a/../../b', /leaves the source folder/],
    ['nowhere', /is not a folder/],
    ['link', /is a link that leaves/],
    ['index.html', /is not a folder/],
  ])('refuses root_directory %s', async (value, message) => {
    await symlink('/etc', join(ground.root, 'link'));
    await expect(plan({ 'index.html': '' }, { root_directory: value })).rejects.toThrow(message);
  });

  it('reads nothing through a link that leaves the source', async () => {
    await symlink('/etc/passwd', join(ground.root, 'package.json'));
    await expect(plan({ 'README.md': '' })).rejects.toThrow('Nothing to build or serve was found');
  });

  it('says that a build left nothing to serve', async () => {
    const { out } = await plan({ 'package.json': pkg({ scripts: { build: 'x' } }) });
    expect(out).toMatch(/^The build left nothing to serve: looked for dist, build, out, public/);
  });
});
