import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Bench } from './nebo.js';

describe('names, ids and answers that are missing', () => {
  let bench: Bench;
  beforeEach(async () => (bench = await Bench.start()));
  afterEach(() => bench.stop());

  test('an id is used as it is, without a list', async () => {
    const app = bench.api.app('web', bench.api.project('shop'));
    expect(await bench.json(['app', 'show', app.id])).toEqual(app);
    expect(bench.api.received('GET', /\/apps$/)).toHaveLength(0);
  });

  test('a name needs no right on projects: only the flat list is asked', async () => {
    bench.api.app('web', bench.api.project('shop'));
    bench.api.answer('GET', /\/projects/, { status: 403 });
    expect((await bench.run(['app', 'show', 'web'])).code).toBe(0);
    expect(bench.api.received('GET', /projects/)).toHaveLength(0);
  });

  test('no hit is exit 5 with near names; names are exact and case-sensitive', async () => {
    const shop = bench.api.project('shop');
    bench.api.app('website', shop);
    bench.api.app('Web', shop);
    const { code, error } = await bench.error(['app', 'show', 'web']);
    expect(code).toBe(5);
    expect(error['candidates']).toEqual(expect.arrayContaining(['Web', 'website']));
  });

  test('two hits are exit 2 and list their ids', async () => {
    const ids = ['shop', 'blog'].map((name) => bench.api.app('web', bench.api.project(name)).id);
    const { code, error } = await bench.error(['app', 'show', 'web']);
    expect([code, error['ids']]).toEqual([2, ids]);
  });

  test('the app: argument, flag, environment, link, in this order; without any exit 2 with the flag and the choices', async () => {
    const shop = bench.api.project('shop');
    const [a, b, c, d] = ['a', 'b', 'c', 'd'].map((name) => bench.api.app(name, shop));
    const { code, error } = await bench.error(['app', 'show']);
    expect(code).toBe(2);
    expect(error['message']).toContain('--app');
    expect(error['choices']).toEqual([a, b, c, d].map((app) => `${app!.name} (${app!.id})`));
    writeFileSync(
      join(bench.work, '.nebo-link.json'),
      JSON.stringify({ api_url: bench.api.url, project_id: shop.id, app_id: d!.id }),
    );
    const name = async (args: string[], env = {}) =>
      (await bench.json<{ name: string }>(['app', 'show', ...args], { env })).name;
    expect(await name([])).toBe('d');
    expect(await name([], { NEBO_APP: 'c' })).toBe('c');
    expect(await name(['--app', 'b'], { NEBO_APP: 'c' })).toBe('b');
    expect(await name(['a', '--app', 'b'], { NEBO_APP: 'c' })).toBe('a');
  });

  test('the project: exit 2 with the choices, the only one is taken, none is said', async () => {
    const none = await bench.run(['app', 'create', 'web']);
    expect([none.code, none.stderr.includes('--project')]).toEqual([2, true]);
    const shop = bench.api.project('shop');
    const made = await bench.run(['app', 'create', 'web']);
    expect([made.code, made.stderr.includes('Project: shop')]).toEqual([0, true]);
    bench.api.project('blog');
    const { code, error } = await bench.error(['app', 'create', 'other']);
    expect(code).toBe(2);
    expect(error['message']).toContain('--project');
    expect(error['choices']).toEqual(bench.api.projects.map(({ name, id }) => `${String(name)} (${id})`));
    expect(await bench.json(['app', 'create', 'other'], { env: { NEBO_PROJECT: 'shop' } })).toMatchObject({
      project_id: shop.id,
    });
  });

  test('app create sends what was said and nothing else', async () => {
    bench.api.project('shop');
    await bench.json(['app', 'create', 'web', '--type', 'backend', '--replicas', '2']);
    await bench.json(['app', 'create', 'img', '--image', 'nginx:1']);
    await bench.json([
      'app',
      'create',
      'git',
      '--repo',
      'a/b',
      '--branch',
      'dev',
      '--git-provider',
      'gitea',
      '--connection',
      'c1',
    ]);
    expect(bench.api.received('POST', /apps$/).map(({ body }) => JSON.parse(body))).toEqual([
      { name: 'web', source_type: 'upload', app_type: 'backend', replica_count: 2 },
      { name: 'img', source_type: 'docker_image', docker_image: 'nginx:1' },
      {
        name: 'git',
        source_type: 'git',
        repo_full_name: 'a/b',
        branch: 'dev',
        git_provider: 'gitea',
        git_connection_id: 'c1',
      },
    ]);
    expect((await bench.run(['app', 'create', 'web'])).code).toBe(6);
    expect((await bench.run(['app', 'create', 'x', '--image', 'a', '--repo', 'b/c'])).code).toBe(2);
    expect((await bench.run(['app', 'create', 'x', '--replicas', 'two'])).code).toBe(2);
  });
});
