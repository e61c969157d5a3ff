import { execFileSync } from 'node:child_process';
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { directStart } from '../src/replicas/direct-start.js';

describe('npm start without npm', () => {
  let folder: string;
  beforeEach(async () => (folder = await mkdtemp(join(tmpdir(), 'nebo-start-'))));
  afterEach(() => rm(folder, { recursive: true }));

  const write = async (at: string, text: string): Promise<void> => {
    await mkdir(join(folder, at, '..'), { recursive: true });
    await writeFile(join(folder, at), text);
  };
  const run = async (command: string): Promise<string> =>
    execFileSync('sh', ['-c', await directStart(folder, command)], { cwd: folder, encoding: 'utf8' });

  it('runs the script with its tools and the variables of npm', async () => {
    await write('node_modules/.bin/serve', '#!/bin/sh\necho "serving $*"\n');
    await chmod(join(folder, 'node_modules/.bin/serve'), 0o755);
    const start = `serve --as "it's" && echo "$npm_lifecycle_event $npm_package_name@$npm_package_version"`;
    await write('package.json', JSON.stringify({ name: `a'b`, version: '1.2.3', scripts: { start } }));
    expect(await run('npm start')).toBe(`serving --as it's\nstart a'b@1.2.3\n`);
    expect(await run('npm run start')).toBe(await run('npm start'));
  });

  it('in a folder of the artifact too, and never outside of it', async () => {
    await write('apps/web/package.json', '{"scripts":{"start":"basename \\"$INIT_CWD\\""}}');
    expect(await run(`cd 'apps/web' && npm start`)).toBe('web\n');
    expect(await directStart(folder, `cd '../x' && npm start`)).toBe(`cd '../x' && npm start`);
  });

  it.each([
    ['hooks', { 'package.json': '{"scripts":{"start":"a","prestart":"b"}}' }],
    ['settings', { 'package.json': '{"scripts":{"start":"a"}}', '.npmrc': 'script-shell=bash' }],
    ['no script', { 'package.json': '{"scripts":{}}' }],
    ['a script that is none', { 'package.json': '{"scripts":{"start":1}}' }],
    ['a broken file', { 'package.json': '{' }],
    ['no file', {}],
  ])('with %s it is left to npm', async (_what, files) => {
    for (const [at, text] of Object.entries(files)) await write(at, text);
    expect(await directStart(folder, 'npm start')).toBe('npm start');
  });

  it.each(['npm start -- --port 1', 'npm run serve', 'node server.js', 'NODE_ENV=x npm start'])(
    '%s stays as it is',
    async (command) => {
      await write('package.json', '{"scripts":{"start":"a"}}');
      expect(await directStart(folder, command)).toBe(command);
    },
  );
});
