import { Bench } from './nebo.js';

describe('exit codes, one by one', () => {
  let bench: Bench;
  beforeEach(async () => (bench = await Bench.start()));
  afterEach(() => bench.stop());

  test('0: done, and an empty list is done too', async () => {
    const ran = await bench.run(['app', 'list']);
    expect(ran).toEqual({ code: 0, stdout: '', stderr: '' });
    expect(await bench.json(['app', 'list'])).toEqual([]);
  });

  test.each([
    [400, 1],
    [402, 7],
    [403, 4],
    [404, 5],
    [405, 1],
    [409, 6],
    [410, 1],
    [422, 1],
    [500, 9],
    [501, 9],
  ])(
    'status %i is exit %i, with the code of the API on stderr and nothing on stdout',
    async (status, exit) => {
      bench.api.answer('GET', /\/account$/, { status });
      const { code, error } = await bench.error(['whoami']);
      expect(code).toBe(exit);
      expect(error).toMatchObject({
        code: `code_${status}`,
        message: `said ${status}`,
        request_id: 'req-1',
        status,
      });
      expect(bench.api.received('GET', /account/)).toHaveLength(1);
    },
  );

  test('1: a 422 names the wrong fields', async () => {
    const detail = [{ loc: ['body', 'name'], msg: 'too long', type: 'max' }];
    bench.api.answer('GET', /\/account$/, {
      status: 422,
      body: { error: { code: 'validation_error', message: 'Wrong.' }, detail },
    });
    const ran = await bench.run(['whoami']);
    expect(ran.code).toBe(1);
    expect(ran.stderr).toContain('name: too long');
  });

  test('1: an answer of an older server, with detail only', async () => {
    bench.api.answer('GET', /\/account$/, { status: 400, body: { detail: 'No such thing.' } });
    expect((await bench.run(['whoami'])).stderr).toContain('error: No such thing.');
  });

  test('1: a redirect is not followed, since the key would travel with it', async () => {
    bench.api.answer('GET', /\/account$/, {
      status: 302,
      headers: { location: 'https://elsewhere.example/' },
    });
    const { code, error } = await bench.error(['whoami']);
    expect(code).toBe(1);
    expect(error['hint']).toContain('https://elsewhere.example/');
  });

  test('2: usage', async () => {
    expect((await bench.run(['whoami', 'extra'])).code).toBe(2);
    expect((await bench.run(['app', 'list', '-o', 'xml'])).stderr).toContain('table, wide, json, yaml, name');
    expect((await bench.run(['app', 'list'], { env: { NEBO_OUTPUT: 'xml' } })).stderr).toContain(
      'NEBO_OUTPUT',
    );
    expect((await bench.run(['app', 'list', '--timeout', 'soon'])).code).toBe(2);
    expect((await bench.run(['whoami', '--api-url', 'ftp://x'])).code).toBe(2);
    expect(bench.api.seen).toEqual([]);
  });

  test('3: no key at all, and nothing is sent', async () => {
    const { code, error } = await bench.error(['whoami'], { env: { NEBO_API_KEY: undefined } });
    expect([code, error['code']]).toEqual([3, 'no_key']);
    expect(bench.api.seen).toEqual([]);
  });

  test('3: a key that the server refuses', async () => {
    const { code, error } = await bench.error(['whoami'], { env: { NEBO_API_KEY: 'nebo_live_wrong' } });
    expect([code, error['code']]).toEqual([3, 'unauthorized']);
  });

  test('8: 429 after retries, and at once when the wait would be long', async () => {
    const limited = { status: 429, headers: { 'retry-after': '0' } };
    bench.api.answer('GET', /\/account$/, limited, limited, limited, limited);
    expect((await bench.error(['whoami'])).code).toBe(8);
    expect(bench.api.received('GET', /account/)).toHaveLength(4);
    bench.api.answer('GET', /balance$/, { status: 429, headers: { 'retry-after': '3600' } });
    const long = await bench.error(['balance']);
    expect([long.code, long.error['hint']]).toEqual([8, 'Try again in 3600 s.']);
    expect(bench.api.received('GET', /balance/)).toHaveLength(1);
  });

  test('9: nobody listens', async () => {
    const { code, error } = await bench.error(['whoami', '--api-url', 'http://127.0.0.1:1']);
    expect([code, error['code'], error['cause']]).toEqual([9, 'unreachable', 'ECONNREFUSED']);
  });

  test('9: what answers is not the API', async () => {
    bench.api.answer('GET', /\/account$/, {
      status: 200,
      headers: { 'content-type': 'text/html' },
      body: '<html>sign in</html>',
    });
    expect((await bench.error(['whoami'])).error).toMatchObject({ code: 'not_the_api' });
  });

  test('10: --timeout and NEBO_TIMEOUT end the wait', async () => {
    bench.api.answer('GET', /\/account$/, 'hang', 'hang');
    const { code, error } = await bench.error(['whoami', '--timeout', '300ms']);
    expect([code, error['code']]).toEqual([10, 'timeout']);
    expect((await bench.run(['whoami'], { env: { NEBO_TIMEOUT: '300ms' } })).code).toBe(10);
  });

  test('130: Ctrl-C', async () => {
    bench.api.answer('GET', /\/account$/, 'hang');
    const ran = await bench.run(['whoami'], {
      during: (child) => {
        const wait = setInterval(() => {
          if (bench.api.seen.length === 0) return;
          clearInterval(wait);
          child.kill('SIGINT');
        }, 20);
      },
    });
    expect(ran.code).toBe(130);
    expect(ran.stdout).toBe('');
  });
});
