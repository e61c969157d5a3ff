import { execFileSync } from 'node:child_process';
import { chmod, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { directScript } from '../src/builds/node/direct-script.js';
import { SourceTree } from '../src/builds/tree.js';

describe('npm run without npm', () => {
  let root: string;
  let tree: SourceTree;
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'nebo-script-'));
    tree = new SourceTree(root);
  });
  afterEach(() => rm(root, { recursive: true }));

  const write = async (at: string, text: string): Promise<void> => {
    await mkdir(join(root, at, '..'), { recursive: true });
    await writeFile(join(root, at), text);
  };
  const tool = async (at: string, says: string) => {
    await write(at, `#!/bin/sh\necho "${says} $*"\n`);
    await chmod(join(root, at), 0o755);
  };

  it('runs the script with the tools of its package and of the workspace around it', async () => {
    const build = 'near "it\'s" && far && basename "$INIT_CWD" || exit 3; echo end';
    await write('apps/web/package.json', JSON.stringify({ name: 'web', scripts: { build } }));
    await tool('apps/web/node_modules/.bin/near', 'near');
    await tool('node_modules/.bin/far', 'far');
    await tool('node_modules/.bin/near', 'wrong');
    const found = await directScript(tree, 'apps/web', 'npm run build');
    expect(found!.script).toBe(build);
    const options = { cwd: join(root, 'apps/web'), encoding: 'utf8' as const };
    expect(execFileSync('sh', ['-c', found!.command], options)).toBe("near it's\nfar \nweb\nend\n");
  });

  it.each([
    ['hooks', { 'package.json': '{"scripts":{"build":"a","prebuild":"b"}}' }],
    ['settings beside it', { 'package.json': '{"scripts":{"build":"a"}}', '.npmrc': 'script-shell=bash' }],
    ['settings for scripts', { 'package.json': '{"scripts":{"build":"a"},"config":{"port":"1"}}' }],
    ['a script that asks npm', { 'package.json': '{"scripts":{"build":"echo $npm_config_x"}}' }],
    ['no such script', { 'package.json': '{"scripts":{}}' }],
    ['no file', {}],
  ])('with %s it is left to npm', async (_what, files) => {
    for (const [at, text] of Object.entries(files)) await write(at, text);
    expect(await directScript(tree, '.', 'npm run build')).toBeNull();
  });

  it('settings of the workspace leave it to npm too, and a link out of the tree is not read', async () => {
    await write('apps/web/package.json', '{"scripts":{"build":"a"}}');
    await write('.npmrc', '');
    expect(await directScript(tree, 'apps/web', 'npm run build')).toBeNull();
    await rm(join(root, '.npmrc'));
    expect(await directScript(tree, 'apps/web', 'npm run build')).not.toBeNull();
    const outside = await mkdtemp(join(tmpdir(), 'nebo-outside-'));
    await writeFile(join(outside, 'package.json'), '{"scripts":{"build":"a"}}');
    await rm(join(root, 'apps/web/package.json'));
    await symlink(join(outside, 'package.json'), join(root, 'apps/web/package.json'));
    expect(await directScript(tree, 'apps/web', 'npm run build')).toBeNull();
    await rm(outside, { recursive: true });
  });

  it.each(['npm run build -- --x', 'npm ci', 'npx vite build', 'A=1 npm run build', 'npm run build && x'])(
    '%s stays as it is',
    async (command) => {
      await write('package.json', '{"scripts":{"build":"a"}}');
      expect(await directScript(tree, '.', command)).toBeNull();
    },
  );
});
