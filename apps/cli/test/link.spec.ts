import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { randomUUID } from 'node:crypto';
import { Bench } from './nebo.js';

describe('.nebo-link.json', () => {
  let bench: Bench;
  let site: string;
  let path: string;
  beforeEach(async () => {
    bench = await Bench.start();
    site = join(bench.work, 'site');
    path = join(site, '.nebo-link.json');
    mkdirSync(site);
    writeFileSync(join(site, 'index.html'), 'x');
  });
  afterEach(() => bench.stop());

  const write = (more: Record<string, unknown> = {}) => {
    const link = {
      api_url: bench.api.url,
      project_id: bench.api.projects[0]!.id,
      app_id: randomUUID(),
      ...more,
    };
    writeFileSync(path, JSON.stringify(link));
    return link;
  };

  test('app link, app unlink', async () => {
    const app = bench.api.app('web', bench.api.project('shop'));
    expect((await bench.run(['app', 'link', 'web'], { cwd: site })).code).toBe(0);
    expect(JSON.parse(readFileSync(path, 'utf8'))).toEqual({
      api_url: bench.api.url,
      project_id: app.project_id,
      app_id: app.id,
    });
    expect((await bench.run(['app', 'unlink'], { cwd: site })).code).toBe(0);
    expect(existsSync(path)).toBe(false);
    const { code, error } = await bench.error(['app', 'link'], { cwd: site });
    expect([code, error['choices']]).toEqual([2, [`web (${app.id})`]]);
  });

  test('a link for another address is refused, and nothing is sent to either', async () => {
    bench.api.project('shop');
    write({ api_url: 'https://other.example/v1' });
    for (const args of [['deploy'], ['env', 'list'], ['app', 'show'], ['build', 'list']]) {
      const ran = await bench.run(args, { cwd: site });
      expect(ran.code).toBe(2);
      expect(ran.stderr).toContain('https://other.example/v1');
    }
    expect(bench.api.seen).toEqual([]);
  });

  test('only a 404 of the app offers a new one: without a terminal exit 5, with --yes a new app', async () => {
    bench.api.project('shop');
    const { app_id: gone } = write();
    const { code, error } = await bench.error(['deploy'], { cwd: site });
    expect([code, error['code']]).toEqual([5, 'linked_app_gone']);
    expect(error['hint']).toContain('--yes');
    expect(bench.api.apps).toEqual([]);
    expect((await bench.run(['deploy', '--yes'], { cwd: site })).code).toBe(0);
    expect(bench.api.apps).toHaveLength(1);
    expect((JSON.parse(readFileSync(path, 'utf8')) as { app_id: string }).app_id).not.toBe(gone);
  });

  test.each([
    [403, 4],
    [500, 9],
    [503, 9],
    [401, 3],
  ])(
    'status %i of the linked app stops, also with --yes: making an app on every error makes doubles',
    async (status, exit) => {
      bench.api.project('shop');
      write();
      bench.api.answer(
        'GET',
        /\/apps\/[^/]+$/,
        ...Array.from({ length: 4 }, () => ({ status, headers: { 'retry-after': '0' } })),
      );
      expect((await bench.run(['deploy', '--yes'], { cwd: site })).code).toBe(exit);
      expect(bench.api.received('POST', /./)).toEqual([]);
    },
  );

  test('a broken link stops too', async () => {
    bench.api.project('shop');
    for (const text of ['{', '{"app_id":1}', 'null']) {
      writeFileSync(path, text);
      expect((await bench.run(['deploy', '--yes'], { cwd: site })).code).toBe(2);
    }
    expect(bench.api.seen).toEqual([]);
  });

  test("an app of the folder's name is reused when it takes folders and refused when it does not", async () => {
    const shop = bench.api.project('shop');
    const app = bench.api.app('site', shop);
    const ran = await bench.run(['deploy'], { cwd: site });
    expect([ran.code, ran.stderr.includes('has already')]).toEqual([0, true]);
    expect(bench.api.apps).toEqual([app]);
    expect(existsSync(path)).toBe(true);
    bench.api.app('repo', shop, 'git');
    expect((await bench.error(['deploy', site, '--name', 'repo'])).code).toBe(2);
    const { code, error } = await bench.error(['deploy', '--name', 'repo']);
    expect([code, error['code']]).toEqual([6, 'name_taken']);
  });

  test('--app and NEBO_APP win over the link and do not change it; an unknown one is not made', async () => {
    const shop = bench.api.project('shop');
    const linked = write();
    const app = bench.api.app('web', shop);
    expect((await bench.run(['deploy', '--app', 'web'], { cwd: site })).code).toBe(0);
    expect((await bench.run(['deploy'], { cwd: site, env: { NEBO_APP: app.id } })).code).toBe(0);
    expect(JSON.parse(readFileSync(path, 'utf8'))).toEqual(linked);
    expect((await bench.run(['deploy', '--app', 'absent'], { cwd: site })).code).toBe(5);
    expect(bench.api.apps).toHaveLength(1);
  });

  test('the link of a folder above holds for env and build, up to the root of the repository, and never for deploy', async () => {
    const shop = bench.api.project('shop');
    const app = bench.api.app('web', shop);
    write({ app_id: app.id });
    const inner = join(site, 'a', 'b');
    mkdirSync(inner, { recursive: true });
    writeFileSync(join(inner, 'x.txt'), 'x');
    expect(await bench.json(['app', 'show'], { cwd: inner })).toMatchObject({ id: app.id });
    await bench.run(['deploy'], { cwd: inner });
    expect(bench.api.apps.map(({ name }) => name)).toEqual(['web', 'b']);
    mkdirSync(join(site, 'a', '.git'));
    expect((await bench.run(['app', 'show'], { cwd: join(site, 'a') })).code).toBe(2);
  });

  test('deploy without a project: exit 2 with the choices, and nothing is made', async () => {
    bench.api.project('shop');
    bench.api.project('blog');
    const { code, error } = await bench.error(['deploy'], { cwd: site });
    expect(code).toBe(2);
    expect(error['choices']).toHaveLength(2);
    expect(bench.api.received('POST', /./)).toEqual([]);
    expect((await bench.run(['deploy', '--project', 'blog', '--name', 'other'], { cwd: site })).code).toBe(0);
    expect(bench.api.apps).toMatchObject([{ name: 'other', project_id: bench.api.projects[1]!.id }]);
  });
});
