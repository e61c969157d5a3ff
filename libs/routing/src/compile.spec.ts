import { compileRouting, RoutingFileError, type RoutingFileName } from './index.js';

const faults = (text: string, name: RoutingFileName = 'vercel.json'): string[] => {
  try {
    compileRouting(name, text);
    return [];
  } catch (error) {
    if (!(error instanceof RoutingFileError)) throw error;
    return error.problems.map(({ line, message }) => `${line}: ${message}`);
  }
};
const fault = (rule: object, list = 'redirects', name: RoutingFileName = 'vercel.json') =>
  faults(JSON.stringify({ [list]: [rule] }), name);

describe('a routing file that cannot be used', () => {
  it('says what is wrong, and on which line, of every fault', () => {
    const text = `{
  "redirects": [
    { "source": "old", "destination": "/new" },
    { "source": "/a", "destination": "/b", "permanent": "yes" },
    {
      "source": "/c",
      "destination": "/:nobody/:c"
    }
  ],
  "rewrites": {}
}`;
    expect(faults(text)).toEqual([
      '3: "old" must begin with /',
      '4: "permanent" must be true or false',
      '7: ":nobody" stands in neither the source nor a condition',
      '10: "rewrites" must be a list',
    ]);
  });

  it.each([
    ['{ "redirects": [ }', 1, 'is not JSON'],
    ['{\n  // no\n}', 2, 'is not JSON'],
    ['', 1, 'is'],
    ['[]', 1, 'must be an object'],
  ])('%s', (text, line, words) => {
    expect(faults(text)[0]).toMatch(new RegExp(`^${line}: .*${words}`));
  });

  it.each([
    [{ source: '/a', destination: '/b', permanent: true, statusCode: 301 }, 'both'],
    [{ source: '/a', destination: '/b', statusCode: 200 }, 'one of 301'],
    [{ source: '/a', destination: '//evil.example' }, 'another host'],
    [{ source: '/a', destination: '/\\evil.example' }, 'another host'],
    [{ source: '/a', destination: 'javascript:alert(1)' }, 'must be a path'],
    [{ source: '/a', destination: '/a' }, 'itself'],
    [{ source: '/a', destination: '/b', premanent: true }, 'no field "premanent"'],
    [{ source: '/:a(', destination: '/b' }, 'is not a pattern'],
    [
      { source: '/a', destination: '/b', has: [{ type: 'cookie', key: 'c', value: '(?=a)(x|x)*y' }] },
      'look-around',
    ],
    [{ source: '/a', destination: '/b', has: [{ type: 'ip', value: '1' }] }, 'the type of a condition'],
    [{ source: '/a', destination: '/b', has: [{ type: 'host', value: '(' }] }, 'not a regular expression'],
    [{ source: '/a', destination: '/b', has: Array(17).fill({ type: 'cookie', key: 'c' }) }, 'at most 16'],
    [{ destination: '/b' }, 'lacks "source"'],
  ])('%j', (rule, words) => {
    expect(fault(rule)).toEqual([expect.stringContaining(words)]);
  });

  it.each([
    [{ key: 'Set-Cookie', value: 'a=b' }, 'cannot be set'],
    [{ key: 'Transfer-Encoding', value: 'chunked' }, 'cannot be set'],
    [{ key: 'X A', value: '1' }, 'not the name'],
    [{ key: 'X-A', value: 'a\r\nSet-Cookie: x' }, 'no header can hold'],
    [{ key: 'X-A', value: 'слово' }, 'no header can hold'],
  ])('the header %j', (header, words) => {
    expect(fault({ source: '/', headers: [header] }, 'headers')).toEqual([expect.stringContaining(words)]);
  });

  it.each([
    [{ origins: ['https://a.example/'] }, 'not an origin'],
    [{ origins: ['*'], credentials: true }, 'cannot be together'],
    [{ origins: ['*', 'https://a.example'] }, 'alone'],
    [{}, 'lacks "origins"'],
    [{ origins: ['*'], maxAge: -1 }, 'maxAge'],
    [{ origins: ['*'], methods: ['A B'] }, 'token'],
  ])('the CORS rule %j', (rule, words) => {
    expect(fault({ source: '/', ...rule }, 'cors', 'nebo.json')).toEqual([expect.stringContaining(words)]);
  });

  it('refuses more rules than can be looked at', () => {
    const redirects = Array.from({ length: 2_049 }, (_, index) => ({
      source: `/${index}`,
      destination: '/x',
    }));
    expect(faults(JSON.stringify({ redirects }))).toEqual([expect.stringContaining('2048')]);
  });
});

describe('what is not about routing', () => {
  it('is said, not dropped silently; extras belong to nebo.json', () => {
    const text = '{\n"buildCommand": "x",\n"cors": []}';
    expect(
      compileRouting('vercel.json', text).warnings.map(({ line, message }) => `${line} ${message}`),
    ).toEqual([
      '2 "buildCommand" is not about routing and has no effect here',
      '3 "cors" is not about routing and has no effect here',
    ]);
    expect(compileRouting('nebo.json', '{"cors": [], "$schema": "x"}').warnings).toEqual([]);
  });
});

describe('a routing file that is made to hold up whoever builds it', () => {
  it.each(['['.repeat(200_000), `{"x":${'['.repeat(100_000)}${']'.repeat(100_000)}}`])(
    'says that it is nested too deeply',
    (text) => {
      expect(faults(text)).toEqual(['1: is nested too deeply']);
    },
  );

  it('has no patterns whose repetitions fill the memory of every edge, one by one or together', () => {
    const of = (count: number, repeat: number) =>
      faults(
        JSON.stringify({
          redirects: Array.from({ length: count }, (_, index) => ({
            source: `/:a(${'[^/a]{1000}'.repeat(repeat)}${index})`,
            destination: '/x',
          })),
        }),
      );
    expect(of(1, 19)).toEqual([]);
    expect(of(1, 21)[0]).toMatch(/^1: .* is too large with its repetitions written out/);
    expect(of(15, 19)).toEqual([]);
    expect(of(17, 19)).toHaveLength(2);
  });

  it('may have thousands of usual patterns', () => {
    const host = [{ type: 'host', value: '(?:www\\.)?[a-z]{2,10}\\.example\\.com' }];
    const redirects = Array.from({ length: 2_000 }, (_, index) => ({
      source: `/${index}/:year(\\d{4})-:month(\\d{2})-:slug.html`,
      destination: '/:year/:slug',
      has: host,
    }));
    expect(faults(JSON.stringify({ redirects }))).toEqual([]);
  }, 30_000);

  it('is refused after a while, whatever its patterns are', () => {
    const redirects = Array.from({ length: 2_000 }, (_, index) => ({
      source: `/${index}/((?!x)(?:a|b|ab)*c)`,
      destination: '/x',
    }));
    // Each takes the better part of a second.
    expect(() => compileRouting('nebo.json', JSON.stringify({ redirects }))).toThrow(RoutingFileError);
  }, 60_000);
});
