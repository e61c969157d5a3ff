import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Bench, main } from './nebo.js';

// A terminal is made by Python's pty module; Node has none of its own.
const python = spawnSync('python3', ['-c', 'import pty, os; os.waitstatus_to_exitcode']).status === 0;
if (!python)
  console.warn('skipped: nebo on a terminal, since this machine has no python3 (3.9 or newer) to make one');

(python ? describe : describe.skip)('nebo on a terminal', () => {
  let bench: Bench;
  beforeEach(async () => (bench = await Bench.start()));
  afterEach(() => bench.stop());

  function onTerminal(
    answer: string,
    args: string[],
    env: Record<string, string | undefined> = {},
    cwd = bench.work,
  ): Promise<{ code: number | null; shown: string }> {
    const script = fileURLToPath(new URL('./terminal.py', import.meta.url));
    const child = spawn('python3', [script, answer, process.execPath, main(), ...args], {
      env: bench.environment({ TERM: 'xterm', PAGER: 'cat', COLUMNS: undefined, ...env }),
      cwd,
    });
    let shown = '';
    child.stdout.on('data', (chunk) => (shown += String(chunk)));
    return new Promise((resolve) =>
      child.on('close', (code) => resolve({ code, shown: shown.replaceAll('\r\n', '\n') })),
    );
  }

  test('a table has titles and is aligned; --no-header and NO_COLOR', async () => {
    const shop = bench.api.project('shop');
    bench.api.app('a', shop);
    bench.api.app('longer-name', shop);
    const { shown } = await onTerminal('', ['app', 'list', '--columns', 'name,status']);
    expect(shown).toContain(
      '\u001b[1mNAME         STATUS\u001b[22m\na            inactive\nlonger-name  inactive\n',
    );
    expect(
      (await onTerminal('', ['app', 'list', '--columns', 'name,status'], { NO_COLOR: '1' })).shown,
    ).toMatch(/^NAME {9}STATUS\n/);
    expect((await onTerminal('', ['app', 'list', '--columns', 'name', '--no-header'])).shown).toBe(
      'a\nlonger-name\n',
    );
  });

  test('login asks for the key and does not show it', async () => {
    const { code, shown } = await onTerminal(
      `${bench.api.key}\\r`,
      ['auth', 'login', '--api-url', bench.api.url],
      { NEBO_API_KEY: undefined },
    );
    expect(code).toBe(0);
    expect(shown).toContain('Key (hidden): ');
    expect(shown).not.toContain(bench.api.key);
    expect(readFileSync(join(bench.home, 'config', 'nebo', 'config.json'), 'utf8')).toContain(bench.api.key);
  });

  test('Ctrl-C at a prompt is exit 130', async () => {
    expect((await onTerminal('\\x03', ['auth', 'login'], { NEBO_API_KEY: undefined })).code).toBe(130);
    bench.api.project('shop');
    bench.api.project('blog');
    expect((await onTerminal('\\x03', ['app', 'create', 'web'])).code).toBe(130);
    expect(bench.api.apps).toEqual([]);
  });

  test('a project is asked for by number or name; --no-input never asks', async () => {
    bench.api.project('shop');
    const blog = bench.api.project('blog');
    expect((await onTerminal('2\\r', ['app', 'create', 'one'])).code).toBe(0);
    expect((await onTerminal('blog\\r', ['app', 'create', 'two'])).code).toBe(0);
    expect(bench.api.apps.map((app) => app.project_id)).toEqual([blog.id, blog.id]);
    for (const [args, env] of [
      [['--no-input'], {}],
      [[], { NEBO_NO_INPUT: '1' }],
    ] as const)
      expect((await onTerminal('', ['app', 'create', 'three', ...args], env)).code).toBe(2);
  });

  test('the app of a link that is gone: no makes nothing, yes makes a new one', async () => {
    const shop = bench.api.project('shop');
    const site = join(bench.work, 'site');
    mkdirSync(site);
    writeFileSync(join(site, 'index.html'), 'x');
    writeFileSync(
      join(site, '.nebo-link.json'),
      JSON.stringify({ api_url: bench.api.url, project_id: shop.id, app_id: shop.id }),
    );
    expect((await onTerminal('n\\r', ['deploy'], {}, site)).code).toBe(5);
    expect(bench.api.apps).toEqual([]);
    const { code, shown } = await onTerminal('y\\r', ['deploy'], {}, site);
    expect(code).toBe(0);
    expect(shown).toContain('https://site.apps.localhost\n');
    expect(bench.api.apps).toHaveLength(1);
  });

  test('help in a pager when it does not fit', async () => {
    const { shown } = await onTerminal('', ['--help'], { NEBO_PAGER: 'sed s/^/PAGED:/' });
    expect(shown).toContain('PAGED:Example:');
  });
});
