import { Bench } from './nebo.js';

describe('help, wrong words, versions', () => {
  let bench: Bench;
  beforeAll(async () => (bench = await Bench.start()));
  afterAll(() => bench.stop());

  test.each([
    ['--help'],
    ['help'],
    ['app', '--help'],
    ['app', 'list', '-h'],
    ['help', 'app', 'show'],
    ['deploy', '--help'],
    ['api', '--help'],
    ['usage', '--help'],
    ['help', 'exit-codes'],
    ['help', 'environment'],
    ['help', 'output'],
    [],
  ])('nebo %s %s %s: one real example first, on stdout, exit 0', async (...words) => {
    const ran = await bench.run(words.filter((word) => word !== undefined));
    expect([ran.code, ran.stderr]).toEqual([0, '']);
    expect(ran.stdout).toMatch(/^Example:\n {2}\S/);
  });

  test('help exit-codes holds all twelve', async () => {
    const { stdout } = await bench.run(['help', 'exit-codes']);
    for (const code of [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 130])
      expect(stdout).toMatch(new RegExp(`^ *${code}  \\S`, 'm'));
  });

  test('help environment holds every variable with its flag', async () => {
    const { stdout } = await bench.run(['help', 'environment']);
    for (const name of [
      'NEBO_API_KEY',
      'NEBO_API_URL',
      'NEBO_PROFILE',
      'NEBO_PROJECT',
      'NEBO_APP',
      'NEBO_OUTPUT',
      'NEBO_TIMEOUT',
      'NEBO_NO_INPUT',
      'NEBO_DEBUG',
    ])
      expect(stdout).toContain(name);
  });

  test.each([
    [['deplyo'], 'deploy'],
    [['app', 'lsit'], 'list'],
    [['app', 'creat'], 'create'],
    [['env', 'add'], 'Commands: list'],
    [['app', 'list', '--proejct', 'x'], '--project'],
    [['deploy', '--dryrun'], '--dry-run'],
    [['-o', 'table', 'build', 'log'], 'logs'],
    [['help', 'exitcodes'], 'exit-codes'],
  ])('%j is exit 2 with the nearest names', async (words, near) => {
    const ran = await bench.run(words);
    expect([ran.code, ran.stdout]).toEqual([2, '']);
    expect(ran.stderr).toContain(near);
  });

  test.each([
    [['app']],
    [['app', 'list', '--project']],
    [['project', 'use']],
    [['env', 'set']],
    [['auth', 'switch']],
    [['api']],
  ])('%j lacks a word: exit 2', async (words) => {
    const ran = await bench.run(words);
    expect([ran.code, ran.stdout]).toEqual([2, '']);
    expect(ran.stderr).toContain('next: nebo');
  });

  test('aliases ls, get, rm', async () => {
    expect((await bench.run(['app', 'ls'])).code).toBe(0);
    expect((await bench.run(['project', 'get', 'absent'])).code).toBe(5);
    expect((await bench.run(['help', 'env', 'rm'])).stdout).toContain('unset');
  });

  test('version', async () => {
    expect((await bench.run(['version'])).stdout).toBe(
      `nebo 0.1.0, contract 1.0.0, node ${process.versions.node}\n`,
    );
  });
});
