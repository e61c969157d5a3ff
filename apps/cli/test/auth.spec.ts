import { chmodSync, mkdirSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Bench, rows } from './nebo.js';

describe('profiles', () => {
  let bench: Bench;
  beforeEach(async () => (bench = await Bench.start()));
  afterEach(() => bench.stop());

  const bare = { NEBO_API_KEY: undefined, NEBO_API_URL: undefined };
  const folder = () => join(bench.home, 'config', 'nebo');
  const config = () =>
    JSON.parse(readFileSync(join(folder(), 'config.json'), 'utf8')) as {
      current: string;
      profiles: Record<string, Record<string, string>>;
    };
  const login = (...more: string[]) =>
    bench.run(['auth', 'login', '--with-key', '--api-url', bench.api.url, ...more], {
      env: bare,
      stdin: `${bench.api.key}\n`,
    });

  test('login checks the key with GET /account and keeps it: file 0600, folder 0700, nothing beside it', async () => {
    const ran = await login();
    expect([ran.code, ran.stdout]).toEqual([0, '']);
    expect(ran.stderr).not.toContain(bench.api.key);
    expect(bench.api.seen.map(({ method, path }) => `${method} ${path}`)).toEqual(['GET /v1/account']);
    expect(config()).toEqual({
      current: 'default',
      profiles: { default: { api_url: bench.api.url, api_key: bench.api.key } },
    });
    expect(statSync(join(folder(), 'config.json')).mode & 0o777).toBe(0o600);
    expect(statSync(folder()).mode & 0o777).toBe(0o700);
    expect(readdirSync(folder())).toEqual(['config.json']);
    const status = Object.fromEntries(rows((await bench.run(['auth', 'status'], { env: bare })).stdout));
    expect(status).toMatchObject({
      api_url: bench.api.url,
      profile: 'default',
      key: 'nebo_live_…cdef',
      account_id: bench.api.account.account_id,
    });
    expect((await bench.run(['whoami'], { env: bare })).code).toBe(0);
  });

  test('an open file becomes 0600 with the next login', async () => {
    mkdirSync(folder(), { recursive: true });
    writeFileSync(join(folder(), 'config.json'), '{"current":"default","profiles":{}}');
    chmodSync(join(folder(), 'config.json'), 0o644);
    await login();
    expect(statSync(join(folder(), 'config.json')).mode & 0o777).toBe(0o600);
  });

  test('a refused key is not kept', async () => {
    const ran = await bench.run(['auth', 'login', '--with-key', '--api-url', bench.api.url], {
      env: bare,
      stdin: 'nebo_live_wrong',
    });
    expect(ran.code).toBe(3);
    expect(() => config()).toThrow();
    bench.api.answer('GET', /\/account$/, { status: 500 });
    expect((await login()).code).toBe(9);
    expect(() => config()).toThrow();
  });

  test('without a terminal the key must come from stdin: exit 2 names the flag', async () => {
    const ran = await bench.run(['auth', 'login'], { env: bare });
    expect(ran.code).toBe(2);
    expect(ran.stderr).toContain('--with-key');
    expect((await bench.run(['auth', 'login', '--with-key'], { env: bare, stdin: '' })).code).toBe(2);
    expect((await bench.run(['auth', 'login', '--with-key'], { env: bare, stdin: 'two words' })).code).toBe(
      2,
    );
    expect(bench.api.seen).toEqual([]);
  });

  test('two profiles, switch, --profile, NEBO_PROFILE, logout', async () => {
    await login();
    await login('--profile', 'work');
    expect(config().current).toBe('work');
    expect((await bench.run(['auth', 'switch', 'default'], { env: bare })).code).toBe(0);
    expect(config().current).toBe('default');
    const unknown = await bench.run(['auth', 'switch', 'wrk'], { env: bare });
    expect([unknown.code, unknown.stderr.includes('Nearest: work')]).toEqual([2, true]);
    expect((await bench.run(['whoami', '--profile', 'absent'], { env: bare })).code).toBe(2);
    expect((await bench.run(['auth', 'logout', '--profile', 'work'], { env: bare })).code).toBe(0);
    expect(config().profiles['work']).toEqual({ api_url: bench.api.url });
    expect((await bench.run(['whoami'], { env: { ...bare, NEBO_PROFILE: 'work' } })).code).toBe(3);
    expect((await bench.run(['auth', 'status', '--profile', 'work'], { env: bare })).code).toBe(3);
    expect((await bench.run(['whoami'], { env: bare })).code).toBe(0);
  });

  test('the key of a profile does not travel to another address', async () => {
    await login();
    const before = bench.api.seen.length;
    const other = bench.api.url.replace('127.0.0.1', 'localhost');
    expect((await bench.run(['whoami', '--api-url', other], { env: bare })).code).toBe(3);
    expect(bench.api.seen).toHaveLength(before);
    expect(
      (await bench.run(['whoami', '--api-url', other], { env: { ...bare, NEBO_API_KEY: bench.api.key } }))
        .code,
    ).toBe(0);
  });

  test('the address may be given with a slash behind and without /v1', async () => {
    const origin = bench.api.url.replace('/v1', '');
    for (const url of [origin, `${origin}/`, `${bench.api.url}/`])
      expect((await bench.run(['whoami'], { env: { NEBO_API_URL: url } })).code).toBe(0);
  });

  test('a broken file is named and never overwritten', async () => {
    mkdirSync(folder(), { recursive: true });
    writeFileSync(join(folder(), 'config.json'), '{"profiles": [');
    expect((await login()).code).toBe(2);
    expect(readFileSync(join(folder(), 'config.json'), 'utf8')).toBe('{"profiles": [');
  });

  test('project use keeps the project in the profile, and the list of apps is narrowed to it', async () => {
    await login();
    const [shop, blog] = [bench.api.project('shop'), bench.api.project('blog')];
    bench.api.app('web', shop);
    bench.api.app('web', blog);
    expect((await bench.run(['project', 'use', 'blog'], { env: bare })).code).toBe(0);
    expect(config().profiles['default']!['project_id']).toBe(blog.id);
    const run = async (...args: string[]) =>
      JSON.parse((await bench.run([...args, '-o', 'json'], { env: bare })).stdout) as {
        project_id: string;
      }[];
    expect((await run('app', 'list')).map((one) => one.project_id)).toEqual([blog.id]);
    expect(await run('app', 'list', '--all')).toHaveLength(2);
    expect((await run('app', 'list', '--project', 'shop')).map((one) => one.project_id)).toEqual([shop.id]);
    expect(await run('app', 'show', 'web')).toMatchObject({ project_id: blog.id });
    expect((await bench.run(['project', 'use', 'blo'], { env: bare })).code).toBe(5);
  });

  test('without a key, and with a wrong one, the next step is one that exists: no panel is promised', async () => {
    const said = [
      await bench.run(['whoami'], { env: bare }),
      await bench.run(['whoami'], { env: { NEBO_API_KEY: 'nebo_live_of_nobody' } }),
      await bench.run(['key']),
    ];
    expect(said.map(({ code }) => code)).toEqual([3, 3, 0]);
    for (const { stderr } of said) expect(stderr).toContain('npm run -s admin -- key create');
    for (const { stderr } of said.slice(0, 2)) {
      expect(stderr).toContain('.nebo/credentials.json');
      expect(stderr).not.toContain('panel');
    }
  });

  test('nebo key prints the address of the panel', async () => {
    expect((await bench.run(['key'])).stdout).toBe(bench.api.url.replace(/v1$/, '') + '\n');
  });
});
