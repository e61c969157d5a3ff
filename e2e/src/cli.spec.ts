import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Nebo, root, run } from '../harness/nebo.js';

/** The `nebo` command against the real installation, as a person or a CI job uses it. */
describe('the nebo command', () => {
  let nebo: Nebo;
  let folder: string;
  let env: Record<string, string>;

  beforeAll(async () => {
    nebo = await Nebo.start();
    folder = mkdtempSync(join(tmpdir(), 'nebo-cli-'));
    env = {
      NEBO_API_URL: nebo.credentials.base_url,
      NEBO_API_KEY: nebo.credentials.accounts[0]!.api_key,
      XDG_CONFIG_HOME: join(folder, 'config'),
      NO_COLOR: '1',
    };
  });
  afterAll(async () => {
    await nebo?.dispose();
    rmSync(folder, { recursive: true, force: true });
  });
  const cli = (words: string[], cwd = folder) =>
    run(process.execPath, [join(root, 'apps/cli/dist/main.js'), ...words], env, cwd);

  it('whoami, balance and usage say who and how much', async () => {
    const who = await cli(['whoami', '-o', 'json']);
    expect(who.code).toBe(0);
    expect(JSON.parse(who.stdout)).toMatchObject({ account_id: nebo.credentials.accounts[0]!.account_id });
    const balance = await cli(['balance', '-o', 'json']);
    expect(JSON.parse(balance.stdout)).toMatchObject({ currency: 'RUB', balance: '1000000.00' });
    const usage = await cli(['usage', '--by', 'model,key', '--since', '7d', '-o', 'json']);
    expect(JSON.parse(usage.stdout)).toMatchObject({
      by: ['model', 'key'],
      rows: [],
      totals: { requests: 0, amount: '0.00' },
    });
  });

  it('deploy makes the app, uploads the folder, shows the log, waits until it is live; a second one reuses it', async () => {
    const site = join(folder, 'my-site');
    await run('cp', ['-r', join(root, 'e2e/fixtures/static-site'), site]);
    writeFileSync(join(site, '.env'), 'SECRET=never-uploaded');
    const project = nebo.credentials.accounts[0]!.project_id;
    const first = await cli(['deploy', site, '--project', project]);
    expect(first).toMatchObject({ code: 0 });
    expect(first.stdout + first.stderr).toContain(
      `https://my-site.apps.localhost:${nebo.env['NEBO_EDGE_TLS_PORT']}`,
    );
    const link = JSON.parse(readFileSync(join(site, '.nebo-link.json'), 'utf8')) as { app_id: string };
    const again = await cli(['deploy', site]);
    expect(again.code).toBe(0);
    const builds = JSON.parse(
      (await cli(['build', 'list', '--app', link.app_id, '-o', 'json'])).stdout,
    ) as object[];
    expect(builds).toHaveLength(2);
    const apps = await cli(['app', 'list', '-o', 'name']);
    expect(apps.stdout.trim().split('\n')).toEqual([expect.stringContaining('my-site')]);
  });

  it('env set, list and unset; a secret is masked', async () => {
    const set = await cli(['env', 'set', 'TOKEN=abc-canary', '--secret', '--app', 'my-site']);
    expect(set.code).toBe(0);
    const list = await cli(['env', 'list', '--app', 'my-site']);
    expect(list.stdout).toContain('TOKEN');
    expect(list.stdout).not.toContain('abc-canary');
    expect((await cli(['env', 'unset', 'TOKEN', '--app', 'my-site'])).code).toBe(0);
  });

  it('api checks the contract before it sends, and knows the way to the right one', async () => {
    const wrong = await cli(['api', '/apps/1/bilds']);
    expect(wrong).toMatchObject({ code: 2, stdout: '' });
    expect(wrong.stderr).toContain('the contract has no such operation');
    expect(wrong.stderr).toContain('/builds');
    const sections = await cli(['api', '--list']);
    expect(sections.stdout).toMatch(/apps/);
    const listed = await cli(['api', '/projects', '--jq', '.data[].name']);
    expect(listed.stdout.trim().split('\n').sort()).toEqual(['default', 'sandbox']);
    const created = await cli([
      'api',
      '-X',
      'POST',
      `/projects/${nebo.credentials.accounts[0]!.project_id}/apps`,
      '-f',
      'name=by-api',
      '-f',
      'source_type=upload',
    ]);
    expect(JSON.parse(created.stdout)).toMatchObject({ name: 'by-api' });
  });

  it('exit codes tell what went wrong', async () => {
    env.NEBO_API_KEY = 'nebo_live_wrong';
    expect((await cli(['whoami'])).code).toBe(3);
    env.NEBO_API_KEY = nebo.credentials.accounts[0]!.api_key;
    expect((await cli(['app', 'show', '00000000-0000-4000-8000-000000000000'])).code).toBe(5);
    expect((await cli(['nonsense'])).code).toBe(2);
    const { account_id: account } = nebo.credentials.accounts[0]!;
    const reader = await nebo.admin('key', 'create', '--account', account, '--actions', 'app:read');
    env.NEBO_API_KEY = reader.key;
    expect((await cli(['balance'])).code).toBe(4);
  });
});
