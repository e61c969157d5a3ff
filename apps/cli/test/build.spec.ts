import { Bench, rows } from './nebo.js';

describe('nebo build', () => {
  let bench: Bench;
  let app: { id: string };
  beforeEach(async () => {
    bench = await Bench.start();
    app = bench.api.app('web', bench.api.project('shop'));
  });
  afterEach(() => bench.stop());

  const run = (...args: string[]) => bench.run(['build', ...args, '--app', 'web']);

  test('list: newest first, the hash of the archive as the source', async () => {
    bench.api.build(app, { sha256: 'a'.repeat(64) });
    bench.api.build(app, { sha256: 'b'.repeat(64) });
    const table = rows((await run('list')).stdout);
    expect(table.map((row) => row[3])).toEqual(['b'.repeat(12), 'a'.repeat(12)]);
    expect(rows((await run('list', '--limit', '1')).stdout)).toHaveLength(1);
    expect((await run('list', '--limit', '0')).code).toBe(2);
  });

  test('show: the newest, one by id, none', async () => {
    expect((await run('show')).code).toBe(5);
    const old = bench.api.build(app);
    const young = bench.api.build(app);
    expect(await bench.json(['build', 'show', '--app', 'web'])).toMatchObject({ id: young.id });
    expect(await bench.json(['build', 'show', old.id, '--app', 'web'])).toMatchObject({ id: old.id });
    expect((await run('show', 'ffffffff-ffff-4fff-8fff-ffffffffffff')).code).toBe(5);
    expect((await run('show', 'latest')).code).toBe(2);
  });

  test('show finds a build of a server without a read of one build, on a later page', async () => {
    for (let index = 0; index < 130; index++) bench.api.build(app);
    const oldest = bench.api.builds.at(-1)!;
    bench.api.answer('GET', /builds\/[^/]+$/, {
      status: 404,
      body: { error: { code: 'unknown_operation', message: 'No.' } },
    });
    expect(await bench.json(['build', 'show', oldest.id, '--app', 'web'])).toMatchObject({ id: oldest.id });
  });

  test('logs: the lines as they are on stdout, the verdict on stderr', async () => {
    const build = bench.api.build(app, {
      log: ['a\ttab', '', '  indented', '\u001b[32mgreen\u001b[0m', 'data: x'],
    });
    const ran = await run('logs');
    expect([ran.code, ran.stdout]).toEqual([0, `${build.log.join('\n')}\n`]);
    expect(ran.stderr).toContain('complete, 5 lines');
    expect(await bench.json(['build', 'logs', '--app', 'web'])).toEqual(build.log);
  });

  test('logs are resumed after a loss, by count', async () => {
    const build = bench.api.build(app, { log: ['1', '2', '2', '3'], cuts: [2, 3] });
    expect((await run('logs')).stdout).toBe(`${build.log.join('\n')}\n`);
  });

  test('a log that ends without its end mark is never called whole: exit 9', async () => {
    bench.api.build(app, { log: ['1', '2'], cuts: [1, 1, 1, 1, 1, 1, 1, 1] });
    const { code, error } = await bench.error(['build', 'logs', '--app', 'web']);
    expect([code, error['code']]).toEqual([9, 'log_cut']);
    expect(error['lines']).toEqual(['1']);
  }, 60_000);

  test('--timeout ends the following of a log that goes on', async () => {
    bench.api.build(app, { endless: true });
    const ran = await run('logs', '--timeout', '1s');
    expect([ran.code, ran.stdout]).toEqual([10, 'installing\nbuilding\ndone\n']);
  });
});
