import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type FakeBuild } from './fake-api.js';
import { Bench } from './nebo.js';

describe('nebo deploy', () => {
  let bench: Bench;
  let site: string;
  beforeEach(async () => {
    bench = await Bench.start();
    site = join(bench.work, 'site');
    mkdirSync(join(site, 'sub'), { recursive: true });
    writeFileSync(join(site, 'index.html'), '<h1>hello</h1>');
    writeFileSync(join(site, 'sub', 'данные.txt'), 'текст');
  });
  afterEach(() => bench.stop());

  const link = () =>
    JSON.parse(readFileSync(join(site, '.nebo-link.json'), 'utf8')) as Record<string, string>;

  test('a new folder: makes the app of its name, links it, uploads in chunks, shows the log, waits for live, prints the address', async () => {
    const shop = bench.api.project('shop');
    const ran = await bench.run(['deploy', 'site']);
    expect([ran.code, ran.stdout]).toEqual([0, 'https://site.apps.localhost\n']);
    expect(bench.api.apps).toMatchObject([{ name: 'site', source_type: 'upload', project_id: shop.id }]);
    expect(link()).toEqual({ api_url: bench.api.url, project_id: shop.id, app_id: bench.api.apps[0]!.id });
    expect(bench.api.unpacked).toEqual({
      'index.html': '<h1>hello</h1>',
      'sub/': '',
      'sub/данные.txt': 'текст',
    });
    const [upload] = bench.api.received('POST', /deployments$/);
    expect(upload!.path).toBe(`/v1/apps/${bench.api.apps[0]!.id}/deployments`);
    expect(upload!.headers).toMatchObject({
      'content-type': 'application/gzip',
      'transfer-encoding': 'chunked',
    });
    expect(upload!.headers['idempotency-key']).toBeDefined();
    for (const text of [
      'installing\nbuilding\ndone\n',
      'Packed 2 files',
      'no ignore file',
      'Largest: index.html 14 B',
      `sha256 ${bench.api.builds[0]!.sha256}`,
      'queued',
      'rolling out',
      'Live after',
    ])
      expect(ran.stderr).toContain(text);
    expect(readdirSync(tmpdir()).filter((name) => name.startsWith('nebo-deploy-'))).toEqual([]);
  });

  test('the second deploy uses the link and makes no second app; equal folders have an equal hash', async () => {
    bench.api.project('shop');
    await bench.run(['deploy'], { cwd: site });
    const again = await bench.json<{ id: string; deploy_state: string }>(['deploy', 'site']);
    expect(again).toMatchObject({ id: bench.api.builds[0]!.id, deploy_state: 'live' });
    expect(bench.api.apps).toHaveLength(1);
    expect(bench.api.builds.map(({ sha256 }) => sha256)).toEqual([
      bench.api.builds[0]!.sha256,
      bench.api.builds[0]!.sha256,
    ]);
  });

  test('with -o json stderr is empty and stdout the build', async () => {
    bench.api.project('shop');
    const ran = await bench.run(['deploy', 'site', '-o', 'json']);
    expect([ran.code, ran.stderr]).toEqual([0, '']);
    expect(JSON.parse(ran.stdout)).toMatchObject({ status: 'success', deploy_state: 'live' });
  });

  test('.env, .git, node_modules and our own files are never packed; examples are', async () => {
    bench.api.project('shop');
    const files = [
      '.env',
      '.env.local',
      '.env.production',
      'sub/.env',
      '.env.example',
      '.git/config',
      'node_modules/a/index.js',
      'sub/node_modules/b.js',
      '.nebo-link.json.bak',
      '.nebo/x',
      '.gitignore',
      'left.log',
    ];
    for (const file of files) {
      mkdirSync(join(site, file, '..'), { recursive: true });
      writeFileSync(join(site, file), 'x');
    }
    // Even an ignore file that asks for them gets none of them.
    writeFileSync(join(site, '.gitignore'), '*.log\n!.env\n');
    symlinkSync('/etc/passwd', join(site, 'outside'));
    const ran = await bench.run(['deploy', 'site']);
    expect(ran.code).toBe(0);
    expect(Object.keys(bench.api.unpacked).sort()).toEqual([
      '.env.example',
      '.gitignore',
      'index.html',
      'sub/',
      'sub/данные.txt',
    ]);
    expect(ran.stderr).toContain('.gitignore ruled');
    expect(ran.stderr).toContain('outside is left out: it is a link that leads out of the folder');
    await bench.run(['deploy', 'site', '--no-gitignore']);
    expect(Object.keys(bench.api.unpacked)).toContain('left.log');
    expect(Object.keys(bench.api.unpacked)).not.toContain('.env');
    writeFileSync(join(site, '.neboignore'), 'sub\n');
    await bench.run(['deploy', 'site']);
    expect(Object.keys(bench.api.unpacked).sort()).toEqual([
      '.env.example',
      '.gitignore',
      'index.html',
      'left.log',
    ]);
  });

  test('--dry-run lists everything, needs no key and sends nothing', async () => {
    const ran = await bench.run(['deploy', 'site', '--dry-run'], { env: { NEBO_API_KEY: undefined } });
    expect([ran.code, ran.stdout]).toEqual([0, 'index.html\t14\nsub/\t0\nsub/данные.txt\t10\n']);
    expect(ran.stderr).toContain('Nothing was sent');
    const plan = await bench.json<Record<string, unknown>>(['deploy', 'site', '--dry-run']);
    expect(plan).toMatchObject({
      files: 2,
      bytes: 24,
      ruled_by: null,
      sha256: expect.stringMatching(/^[0-9a-f]{64}$/) as string,
    });
    expect(bench.api.seen).toEqual([]);
    expect(existsSync(join(site, '.nebo-link.json'))).toBe(false);
  });

  test('--no-wait returns at once with the id', async () => {
    bench.api.project('shop');
    const ran = await bench.run(['deploy', 'site', '--no-wait']);
    expect([ran.code, ran.stdout]).toEqual([0, `${bench.api.builds[0]!.id}\n`]);
    expect(bench.api.received('GET', /builds/)).toHaveLength(0);
    expect(await bench.json(['deploy', 'site', '--no-wait'])).toMatchObject({
      id: bench.api.builds[0]!.id,
      status: 'queued',
    });
  });

  test.each<[string, Partial<FakeBuild>, string, string]>([
    [
      'the build',
      { stages: [{ status: 'error', deploy_state: null, error: 'npm ci failed' }] },
      'build',
      'npm ci failed',
    ],
    [
      'the build, by its state',
      { stages: [{ status: 'building', deploy_state: 'build_failed', error: 'no' }] },
      'build',
      'no',
    ],
    ['a cancel', { stages: [{ status: 'cancelled', deploy_state: null }] }, 'build', 'cancelled'],
    [
      'the start',
      { stages: [{ status: 'success', deploy_state: 'never_booted', boot_error: 'port 3000 did not open' }] },
      'rollout',
      'port 3000 did not open',
    ],
    [
      'the readiness',
      { stages: [{ status: 'success', deploy_state: 'failing', boot_error: 'GET / said 500' }] },
      'rollout',
      'GET / said 500',
    ],
  ])(
    'a failure of %s is exit 1 with step, reason and the end of the log',
    async (_what, build, step, reason) => {
      bench.api.project('shop');
      bench.api.nextBuild = { ...build, log: Array.from({ length: 80 }, (_, index) => `line ${index}`) };
      const { code, error } = await bench.error(['deploy', 'site']);
      expect([code, error['code'], error['step']]).toEqual([1, 'deploy_failed', step]);
      expect(error['reason']).toContain(reason);
      expect(error['log']).toEqual(Array.from({ length: 50 }, (_, index) => `line ${index + 30}`));
      const ran = await bench.run(['deploy', 'site', '-q']);
      expect([ran.code, ran.stdout]).toEqual([1, '']);
      expect(ran.stderr).toContain('line 79');
      expect(ran.stderr).toContain(reason);
      expect(ran.stderr).not.toContain('line 29\n');
    },
  );

  test('a broken log is resumed without doubled or lost lines', async () => {
    bench.api.project('shop');
    bench.api.nextBuild = { cuts: [1, 2], log: ['one', 'two', 'three'] };
    const ran = await bench.run(['deploy', 'site']);
    expect(ran.code).toBe(0);
    expect(ran.stderr.split('\n').filter((line) => ['one', 'two', 'three'].includes(line))).toEqual([
      'one',
      'two',
      'three',
    ]);
    expect(ran.stderr).toContain('resuming');
  });

  test('a log that cannot be read does not fail a deploy that is live', async () => {
    bench.api.project('shop');
    bench.api.answer('GET', /logs$/, { status: 403 });
    const ran = await bench.run(['deploy', 'site']);
    expect([ran.code, ran.stderr.includes('The log could not be read')]).toEqual([0, true]);
  });

  test('--timeout ends the wait with exit 10 and says how to look again', async () => {
    bench.api.project('shop');
    bench.api.nextBuild = { stages: [{ status: 'building', deploy_state: null }], endless: true };
    const ran = await bench.run(['deploy', 'site', '--timeout', '1500ms']);
    expect([ran.code, ran.stdout]).toEqual([10, '']);
    expect(ran.stderr).toContain(`nebo build show ${bench.api.builds[0]!.id} --app ${bench.api.apps[0]!.id}`);
  });

  test('Ctrl-C stops the wait with exit 130 and says how to look again', async () => {
    bench.api.project('shop');
    bench.api.nextBuild = { stages: [{ status: 'building', deploy_state: null }], endless: true };
    const ran = await bench.run(['deploy', 'site'], {
      during: (child, said) => {
        const wait = setInterval(() => {
          if (!said().includes('installing')) return;
          clearInterval(wait);
          child.kill('SIGINT');
        }, 20);
      },
    });
    expect([ran.code, ran.stdout]).toEqual([130, '']);
    expect(ran.stderr).toContain('nebo build show');
  });

  test('an archive that the server refuses: its answer counts, not the broken pipe', async () => {
    const shop = bench.api.project('shop');
    writeFileSync(
      join(site, 'big.bin'),
      execFileSync('head', ['-c', '8000000', '/dev/urandom'], { maxBuffer: 1e8 }),
    );
    bench.api.app('site', shop);
    bench.api.answer('POST', /deployments$/, 'refuse');
    const { code, error } = await bench.error(['deploy', 'site']);
    expect([code, error['code']]).toEqual([1, 'archive_too_big']);
    expect(error['hint']).toContain('.neboignore');
  });

  test('an upload is sent again after 503, whole and with the same key', async () => {
    bench.api.project('shop');
    bench.api.answer('POST', /deployments$/, { status: 503, headers: { 'retry-after': '0' } }, 'break');
    expect((await bench.run(['deploy', 'site'])).code).toBe(0);
    const sent = bench.api.received('POST', /deployments$/);
    expect(new Set(sent.map(({ headers }) => headers['idempotency-key'])).size).toBe(1);
    expect(Object.keys(bench.api.unpacked)).toContain('index.html');
    expect(bench.api.builds).toHaveLength(1);
  });

  test('git and image apps are built, not sent', async () => {
    const shop = bench.api.project('shop');
    bench.api.app('repo', shop, 'git');
    const image = bench.api.app('img', shop, 'docker_image');
    expect((await bench.run(['deploy', '--app', 'repo', '--commit', 'abc'])).code).toBe(0);
    expect(JSON.parse(bench.api.received('POST', /deploy$/)[0]!.body)).toEqual({ commit_sha: 'abc' });
    expect((await bench.run(['deploy', '--app', 'img', '--image', 'nginx:2'])).code).toBe(0);
    expect(image.docker_image).toBe('nginx:2');
    for (const wrong of [
      ['site', '--app', 'repo'],
      ['--app', 'repo', '--image', 'x'],
      ['--app', 'img', '--commit', 'x'],
    ])
      expect((await bench.run(['deploy', ...wrong])).code).toBe(2);
  });

  test('no folder, nothing in it', async () => {
    expect((await bench.run(['deploy', 'absent'])).code).toBe(2);
    expect((await bench.run(['deploy', 'site/index.html'])).code).toBe(2);
    mkdirSync(join(bench.work, 'empty'));
    bench.api.project('shop');
    expect((await bench.run(['deploy', 'empty'])).code).toBe(1);
    expect(bench.api.apps).toEqual([]);
  });
});
