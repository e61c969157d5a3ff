import { compileRouting, Router, type RoutedRequest } from './index.js';

const request = (url: string, more: Partial<RoutedRequest> = {}): RoutedRequest => {
  const at = url.indexOf('?');
  const [path, query] = at < 0 ? [url, ''] : [url.slice(0, at), url.slice(at)];
  return { method: 'GET', path, query, host: 'site.example', headers: {}, ...more };
};
const routerOf = (file: object, name: 'nebo.json' | 'vercel.json' = 'vercel.json') =>
  new Router(compileRouting(name, JSON.stringify(file)).routing);
const redirected = (file: object, url: string, more: Partial<RoutedRequest> = {}) => {
  const said = routerOf(file).before(request(url, more));
  return said.kind === 'redirect' ? `${said.status} ${said.location}` : said.kind;
};

describe('redirects', () => {
  const list = (...redirects: object[]) => ({ redirects });

  it.each([
    ['/old', '308 /new'],
    ['/old/', 'go'],
    ['/OLD', 'go'],
    ['/older', 'go'],
  ])('takes %s literally: %s', (url, said) => {
    expect(redirected(list({ source: '/old', destination: '/new' }), url)).toBe(said);
  });

  it('fills names, any number of segments and groups without a name', () => {
    const file = list(
      { source: '/blog/:year(\\d{4})/:slug', destination: '/news/:slug?y=:year', permanent: false },
      { source: '/docs/:path*', destination: 'https://docs.example/:path*', statusCode: 302 },
      { source: '/raw/(.*)', destination: '/r/:0' },
    );
    expect(redirected(file, '/blog/2026/a%20b')).toBe('307 /news/a%20b?y=2026');
    expect(redirected(file, '/blog/26/a')).toBe('go');
    expect(redirected(file, '/docs/a/b')).toBe('302 https://docs.example/a/b');
    expect(redirected(file, '/docs')).toBe('302 https://docs.example/');
  });

  it('takes the first that matches, and the request’s query along, except for names that it sets', () => {
    const file = list({ source: '/a', destination: '/b?x=1' }, { source: '/:any', destination: '/c' });
    expect(redirected(file, '/a?x=2&y=%20')).toBe('308 /b?x=1&y=+');
    expect(redirected(file, '/q?x=2&y=%20')).toBe('308 /c?x=2&y=%20');
  });

  it('does not become the address of another host by what a visitor writes', () => {
    const file = list({
      source: '/go/(.*)',
      destination: '/:path',
      has: [{ type: 'query', key: 'path', value: '(?<path>.*)' }],
    });
    expect(redirected(file, '/go/x?path=/evil.example')).toBe('308 /%2Fevil.example?path=/evil.example');
    const open = list({ source: '/go/:rest(.*)', destination: '/:rest' });
    expect(redirected(open, '/go//evil.example')).toBe('308 /evil.example');
    expect(redirected(open, '/go/\\evil.example')).toBe('308 /evil.example');
  });

  it('never leads to where the request is', () => {
    expect(
      redirected(list({ source: '/:a', destination: '/:a', missing: [{ type: 'cookie', key: 'c' }] }), '/x'),
    ).toBe('go');
  });

  it('knows conditions by host, header, cookie and query, and what is missing', () => {
    const file = list(
      {
        source: '/h',
        destination: 'https://:sub.example/',
        has: [{ type: 'host', value: '(?<sub>\\w+)\\.site' }],
      },
      { source: '/k', destination: '/:v', has: [{ type: 'header', key: 'X-A', value: '(?<v>b+)' }] },
      { source: '/c', destination: '/in', has: [{ type: 'cookie', key: 'session' }] },
      {
        source: '/q',
        destination: '/:n',
        has: [{ type: 'query', key: 'n' }],
        missing: [{ type: 'query', key: 'no' }],
      },
      { source: '/e', destination: '/eq', has: [{ type: 'query', key: 'n', value: { inc: ['1', '2.'] } }] },
    );
    expect(redirected(file, '/h', { host: 'ru.site' })).toBe('308 https://ru.example/');
    expect(redirected(file, '/h', { host: 'ru.site.evil' })).toBe('go');
    expect(redirected(file, '/k', { headers: { 'x-a': 'bb' } })).toBe('308 /bb');
    expect(redirected(file, '/k', { headers: { 'x-a': 'bbc' } })).toBe('go');
    expect(redirected(file, '/c', { headers: { cookie: 'a=1; session=x' } })).toBe('308 /in');
    expect(redirected(file, '/c', { headers: { cookie: 'a=1; other=x' } })).toBe('go');
    expect(redirected(file, '/q?n=5')).toBe('308 /5?n=5');
    expect(redirected(file, '/q?n=5&no=')).toBe('go');
    expect(redirected(file, '/e?n=2.')).toBe('308 /eq?n=2.');
    expect(redirected(file, '/e?n=2x')).toBe('go');
  });
});

describe('cleanUrls and trailingSlash', () => {
  it.each([
    [{ cleanUrls: true }, '/about.html', '308 /about'],
    [{ cleanUrls: true }, '/docs/index.html', '308 /docs'],
    [{ cleanUrls: true }, '/index', '308 /'],
    [{ cleanUrls: true, trailingSlash: true }, '/about.html', '308 /about/'],
    [{ trailingSlash: true }, '/about', '308 /about/'],
    [{ trailingSlash: true }, '/a.css', 'go'],
    [{ trailingSlash: true }, '/a.css/', '308 /a.css'],
    [{ trailingSlash: true }, '/.well-known/acme', 'go'],
    [{ trailingSlash: false }, '/about/?a=1', '308 /about?a=1'],
    [{ trailingSlash: false }, '/', 'go'],
    [{ trailingSlash: false }, '//evil.example/', '308 /evil.example'],
  ])('%j: %s is %s', (file, url, said) => {
    expect(redirected(file, url)).toBe(said);
  });
});

describe('headers', () => {
  const headersOf = (file: object, url: string, more: Partial<RoutedRequest> = {}) => {
    const said = routerOf(file).before(request(url, more));
    return said.kind === 'go' ? Object.fromEntries(said.headers) : said.kind;
  };

  it('applies all rules that match; the later value of a name wins', () => {
    const file = {
      headers: [
        {
          source: '/(.*)',
          headers: [
            { key: 'X-A', value: '1' },
            { key: 'X-B', value: 'b: c' },
          ],
        },
        { source: '/:dir/:file', headers: [{ key: 'x-a', value: ':file of :dir at 10:30' }] },
      ],
    };
    expect(headersOf(file, '/one')).toEqual({ 'X-A': '1', 'X-B': 'b: c' });
    expect(headersOf(file, '/d/f')).toEqual({ 'x-a': 'f of d at 10:30', 'X-B': 'b: c' });
  });

  it('drops a value that a condition’s find would break out of', () => {
    const file = {
      headers: [{ source: '/', has: [{ type: 'query', key: 'v' }], headers: [{ key: 'X-V', value: ':v' }] }],
    };
    expect(headersOf(file, '/?v=ok')).toEqual({ 'X-V': 'ok' });
    expect(headersOf(file, '/?v=a%0d%0aSet-Cookie:%20x')).toEqual({});
  });
});

describe('rewrites', () => {
  const rewritten = (file: object, url: string) => routerOf(file).rewrite(request(url));

  it('puts names that the path does not use into the query', () => {
    const file = {
      rewrites: [
        { source: '/p/:x', destination: '/q?id=:x' },
        { source: '/u/:x', destination: '/v/:x' },
      ],
    };
    expect(rewritten(file, '/p/7')).toEqual({ origin: null, url: '/q?id=7&x=7' });
    expect(rewritten(file, '/u/a%2Fb?k=1')).toEqual({ origin: null, url: '/v/a%2Fb?k=1' });
    expect(rewritten(file, '/p/a%20b')).toEqual({ origin: null, url: '/q?id=a+b&x=a+b' });
    expect(rewritten(file, '/none')).toBeNull();
  });

  it('leads elsewhere only where the file says so', () => {
    const file = { rewrites: [{ source: '/api/:path*', destination: 'https://api.example:8443/v1/:path*' }] };
    expect(rewritten(file, '/api/a/b?x=1')).toEqual({
      origin: 'https://api.example:8443',
      url: '/v1/a/b?x=1',
    });
  });
});

describe('cors of nebo.json', () => {
  const file = {
    cors: [
      {
        source: '/api/(.*)',
        origins: ['https://a.example'],
        methods: ['get', 'put'],
        headers: ['X-T'],
        credentials: true,
      },
      { source: '/open', origins: ['*'], expose: ['X-N'] },
    ],
  };
  const answer = (url: string, origin: string | undefined, preflight = false) =>
    routerOf(file, 'nebo.json').before(
      request(url, {
        method: preflight ? 'OPTIONS' : 'GET',
        headers: {
          ...(origin ? { origin } : {}),
          ...(preflight ? { 'access-control-request-method': 'PUT' } : {}),
        },
      }),
    );

  it('echoes an exact origin, and nothing to others; caches are told', () => {
    expect(answer('/api/x', 'https://a.example')).toEqual({
      kind: 'go',
      cors: true,
      headers: [
        ['Vary', 'Origin'],
        ['Access-Control-Allow-Origin', 'https://a.example'],
        ['Access-Control-Allow-Credentials', 'true'],
      ],
    });
    for (const other of ['https://a.example.evil', 'http://a.example', 'null', undefined])
      expect(answer('/api/x', other)).toEqual({
        kind: 'go',
        cors: true,
        headers: [['Vary', 'Origin']],
      });
    expect(answer('/else', 'https://a.example')).toEqual({ kind: 'go', headers: [], cors: false });
  });

  it('answers preflights, also those that it refuses', () => {
    expect(answer('/api/x', 'https://a.example', true)).toEqual({
      kind: 'preflight',
      headers: [
        ['Vary', 'Origin'],
        ['Access-Control-Allow-Origin', 'https://a.example'],
        ['Access-Control-Allow-Credentials', 'true'],
        ['Access-Control-Allow-Methods', 'GET, PUT'],
        ['Access-Control-Allow-Headers', 'X-T'],
        ['Access-Control-Max-Age', '600'],
      ],
    });
    expect(answer('/api/x', 'https://b.example', true)).toEqual({
      kind: 'preflight',
      headers: [['Vary', 'Origin']],
    });
    // Nobody wrote a rule for it: the app answers itself.
    expect(answer('/else', 'https://a.example', true)).toEqual({ kind: 'go', headers: [], cors: false });
  });

  it('says * only without credentials', () => {
    expect(answer('/open', 'https://x.example')).toEqual({
      kind: 'go',
      cors: true,
      headers: [
        ['Access-Control-Allow-Origin', '*'],
        ['Access-Control-Expose-Headers', 'X-N'],
      ],
    });
  });
});

describe('many rules', () => {
  it('looks at those of the first name, in the order of the file', () => {
    const redirects = Array.from({ length: 2_000 }, (_, index) => ({
      source: index === 1_000 ? '/:any/special' : `/p${index}/:x`,
      destination: `/to/${index}`,
    }));
    expect(redirected({ redirects }, '/p1500/special')).toBe('308 /to/1000');
    expect(redirected({ redirects }, '/p900/special')).toBe('308 /to/900');
    expect(redirected({ redirects }, '/p1999/a')).toBe('308 /to/1999');
  });

  it('is not held up by patterns and paths that are made for it', () => {
    const file = {
      redirects: [
        { source: '/(.*)/a/(.*)/b/(.*)/c', destination: '/x' },
        { source: '/:a-:b-:c', destination: '/y' },
      ],
    };
    const path = `/${'a/b/c/'.repeat(1_300)}d`;
    const begun = performance.now();
    expect(redirected(file, path)).toBe('go');
    // A backtracking matcher takes hours.
    expect(performance.now() - begun).toBeLessThan(5_000);
  });

  it('ends rules that together or alone would take too long for one request', () => {
    const has = [{ type: 'header', key: 'x-none' }];
    const rules = (count: number, source: string) => ({
      redirects: Array.from({ length: count }, () => ({ source, has, destination: '/x' })),
    });
    // Neither letter foretells what comes, so a matcher must keep every possibility in mind.
    let state = 7;
    const next = () => (state = (state * 1_103_515_245 + 12_345) & 0x7fffffff) > 0x3fffffff;
    const path = `/${Array.from({ length: 15_000 }, () => (next() ? 'a' : 'b')).join('')}c`;
    expect(() => redirected(rules(1, '/(.*a.{1000}c)'), path)).toThrow(/steps against 15002 characters/);
    expect(() => redirected(rules(1_000, '/(.*a.{200}c)'), path)).toThrow(/more than 250 ms/);
    expect(redirected(rules(20, '/(.*a.{200}c)'), '/short-c')).toBe('go');
  });

  it('sets no header that no answer can hold', () => {
    const router = routerOf({
      headers: [
        {
          source: '/(.*)',
          has: [{ type: 'query', key: 'q' }],
          headers: [{ key: 'X-Echo', value: ':q' }],
        },
      ],
    });
    const told = (q: string) => router.before(request(`/?q=${q}`)).headers;
    for (const q of ['%E6%97%A5', '%0d%0aX: 1', '%00']) expect(told(q)).toEqual([]);
    expect(told('%E9')).toEqual([]);
    expect(told('plain')).toEqual([['X-Echo', 'plain']]);
  });

  it('writes addresses of any letters so that they stay addresses', () => {
    const file = { redirects: [{ source: '/a', destination: '/я b\r\nX: 1?q=ю#э' }] };
    expect(redirected(file, '/a')).toBe('308 /%D1%8F%20b%0D%0AX:%201?q=%D1%8E#%D1%8D');
  });
});
