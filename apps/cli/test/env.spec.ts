import { Bench, rows } from './nebo.js';

describe('nebo env', () => {
  let bench: Bench;
  beforeEach(async () => {
    bench = await Bench.start();
    bench.api.app('web', bench.api.project('shop'));
  });
  afterEach(() => bench.stop());

  const run = (...args: string[]) => bench.run(['env', ...args, '--app', 'web']);

  test('set, list, change, unset', async () => {
    const set = await run('set', 'A=1', 'URL=https://x/?a=b=c');
    expect(set.code).toBe(0);
    expect(set.stderr).toContain('restart');
    expect(rows((await run('list')).stdout)).toEqual([
      ['A', '1', 'false'],
      ['URL', 'https://x/?a=b=c', 'false'],
    ]);
    const id = bench.api.env[0]!.id;
    expect((await run('set', 'A=2')).code).toBe(0);
    expect(bench.api.env.find(({ name }) => name === 'A')).toMatchObject({ id, value: '2' });
    expect((await run('unset', 'A', 'URL')).code).toBe(0);
    expect(bench.api.env).toEqual([]);
  });

  test('a secret from stdin, never in an argument and never shown', async () => {
    const ran = await bench.run(['env', 'set', 'TOKEN', '--secret', '--app', 'web', '-o', 'json'], {
      stdin: 'line one\nline two\n',
    });
    expect(ran.code).toBe(0);
    expect(JSON.parse(ran.stdout)).toMatchObject([{ name: 'TOKEN', value: '********', is_secret: true }]);
    expect(JSON.parse(bench.api.received('POST', /env$/)[0]!.body)).toEqual({
      name: 'TOKEN',
      value: 'line one\nline two',
      is_secret: true,
    });
    expect(rows((await run('list')).stdout)).toEqual([['TOKEN', '********', 'true']]);
  });

  test('wrong words are exit 2 and nothing is sent', async () => {
    for (const words of [['=x'], ['A='], ['A=1', 'A=2'], ['A', 'B']])
      expect((await run('set', ...words)).code).toBe(2);
    expect((await run('set')).code).toBe(2);
    expect(bench.api.seen).toEqual([]);
  });

  test('unset of a typo removes nothing: exit 5 with the nearest name', async () => {
    await run('set', 'GREETING=1', 'OTHER=2');
    const { code, error } = await bench.error(['env', 'unset', 'OTHER', 'GRETING', '--app', 'web']);
    expect([code, error['candidates']]).toEqual([5, ['GREETING']]);
    expect(bench.api.env).toHaveLength(2);
  });

  test('a refusal in the middle says what was set before it', async () => {
    await run('list');
    bench.api.answer(
      'POST',
      /env$/,
      { status: 201, body: { id: '1', name: 'A', value: '1', is_secret: false } },
      { status: 422 },
    );
    const { code, error } = await bench.error(['env', 'set', 'A=1', 'B=2', 'C=3', '--app', 'web']);
    expect([code, error['set'], error['refused']]).toEqual([1, ['A'], 'B']);
  });
});
