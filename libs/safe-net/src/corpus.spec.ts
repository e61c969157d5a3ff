import { hostileAnswers, hostileUrls, legalUrls, privateHosts } from '../test/corpus.js';
import { fakeInternet, startCanaries, startOrigin, type Canaries } from '../test/world.js';
import { createSafeClient } from './client.js';
import { SafeNetRefused } from './errors.js';
import { checkUrl, parseAllowList } from './policy.js';

let canaries: Canaries;
beforeAll(async () => void (canaries = await startCanaries()));
afterAll(() => canaries.stop());

const refusal = async (work: Promise<unknown>): Promise<string> => {
  const error = await work.then(
    () => new Error('it was answered'),
    (thrown: Error) => thrown,
  );
  return error instanceof SafeNetRefused ? error.rule : `not refused: ${error.name} ${error.message}`;
};

/** A client for which the canary's port is as legal as 80, so that only the address can refuse. */
const open = () => createSafeClient({ ports: [80, 443, canaries.port] });

it('has at least 150 hostile cases and 30 legal ones', () => {
  expect(privateHosts.length + hostileUrls.length + hostileAnswers.length).toBeGreaterThanOrEqual(150);
  expect(new Set(privateHosts).size).toBe(privateHosts.length);
  expect(legalUrls.length).toBeGreaterThanOrEqual(30);
});

describe('hosts that are not public', () => {
  it.each(privateHosts)('%s is refused over http and https', async (host) => {
    const rules = await Promise.all(
      ['http', 'https'].map((scheme) => refusal(open().request(`${scheme}://${host}:${canaries.port}/`))),
    );
    for (const rule of rules) expect(rule).toMatch(/^(address:[a-z0-9_]+|host_name|invalid_url)$/);
    expect(canaries.hits()).toBe(0);
  });

  it.each(['127.0.0.1', 'localhost', '[::1]', '2130706433'])(
    '%s is refused on default ports and as a URL object',
    async (host) => {
      expect(await refusal(createSafeClient().request(new URL(`http://${host}/`)))).toMatch(
        /^(address:loopback|host_name)$/,
      );
    },
  );

  it.each(privateHosts)('a redirect to %s is refused', async (host) => {
    const origin = await startOrigin((_request, response) => {
      response
        .writeHead(302, {
          location: encodeURI(`http://${host}:${canaries.port}/`)
            .replaceAll('%25', '%')
            .replaceAll('%5B', '[')
            .replaceAll('%5D', ']'),
        })
        .end();
    });
    const client = createSafeClient({
      ports: [80, canaries.port],
      allow: parseAllowList(`127.0.0.1:${origin.port}`),
    });
    expect(await refusal(client.request(`http://127.0.0.1:${origin.port}/`))).toMatch(
      /^(address:|host_name|invalid_url)/,
    );
    await origin.stop();
    expect(canaries.hits()).toBe(0);
  });
});

describe('hostile URLs', () => {
  it.each(hostileUrls.map((url) => [JSON.stringify(url), url]))('%s is refused', async (_shown, url) => {
    const used = url.replaceAll('PORT', String(canaries.port));
    // Ports are left at the default for the port cases, and widened for the others.
    const client = url.includes('PORT') ? open() : createSafeClient();
    expect(await refusal(client.request(used))).not.toMatch(/^not refused/);
    expect(() => checkUrl(used, url.includes('PORT') ? { ports: [80, 443, canaries.port] } : {})).toThrow(
      SafeNetRefused,
    );
    expect(canaries.hits()).toBe(0);
  });
});

describe('hostile resolvers', () => {
  it.each(hostileAnswers.map((answers) => [JSON.stringify(answers), answers] as const))(
    '%s is refused',
    async (_shown, answers) => {
      const client = createSafeClient({ ports: [canaries.port], lookup: async () => answers });
      expect(await refusal(client.request(`http://evil.example.com:${canaries.port}/`))).toMatch(/^address:/);
      expect(canaries.hits()).toBe(0);
    },
  );

  it('is asked once per connection, so a rebinding answer is never used', async () => {
    const origin = await startOrigin((_request, response) => response.end('public'));
    const internet = fakeInternet(() => origin.port);
    let asked = 0;
    const client = createSafeClient({
      ports: [canaries.port],
      dial: internet.dial,
      lookup: async () => ((asked += 1) === 1 ? ['93.184.215.14'] : ['127.0.0.1']),
    });
    const url = `http://rebind.example.com:${canaries.port}/`;
    expect((await client.request(url)).body.toString()).toBe('public');
    expect(asked).toBe(1);
    expect(await refusal(client.request(url))).toBe('address:loopback');
    expect(internet.dialled).toEqual([`93.184.215.14 ${canaries.port}`]);
    await origin.stop();
  });

  it('cannot lead a redirect of the same name elsewhere', async () => {
    const origin = await startOrigin((_request, response) =>
      response.writeHead(307, { location: '/again' }).end(),
    );
    const internet = fakeInternet(() => origin.port);
    let asked = 0;
    const client = createSafeClient({
      dial: internet.dial,
      lookup: async () => ((asked += 1) === 1 ? ['93.184.215.14'] : ['10.0.0.1']),
    });
    expect(await refusal(client.request('http://rebind.example.com/'))).toBe('address:private');
    expect(internet.dialled).toEqual(['93.184.215.14 80']);
    await origin.stop();
  });

  it('a connection that ends elsewhere than it was sent is dropped before a byte', async () => {
    const { connect } = await import('node:net');
    let requests = 0;
    const origin = await startOrigin((_request, response) => {
      requests += 1;
      response.end();
    });
    // What a transparent NAT on this machine could do: dialled 93.184.215.14, connected to loopback.
    const client = createSafeClient({
      lookup: async () => ['93.184.215.14'],
      dial: () => connect({ host: '127.0.0.1', port: origin.port }),
    });
    expect(await refusal(client.request('http://example.com/'))).toBe('peer');
    expect(requests).toBe(0);
    await origin.stop();
  });
});

describe('redirects', () => {
  const cases = [301, 302, 303, 307, 308].flatMap((status) =>
    [
      'http://127.0.0.1:PORT/',
      'http://[::1]:PORT/',
      '//127.1:PORT/x',
      'http://localhost:PORT/',
      'http://0x7f000001:PORT/',
    ].map((location) => [status, location] as const),
  );
  const schemes = [
    'file:///etc/passwd',
    'gopher://127.0.0.1:PORT/',
    'data:text/plain,x',
    'ftp://127.0.0.1/',
    'http://u:p@example.com/',
    'http://[bad',
  ].map((location) => [302, location] as const);

  it.each([...cases, ...schemes])('%d to %s is refused', async (status, location) => {
    const origin = await startOrigin((_request, response) => {
      response.writeHead(status, { location: location.replace('PORT', String(canaries.port)) }).end();
    });
    const client = createSafeClient({
      ports: [canaries.port, 80],
      allow: parseAllowList(`127.0.0.1:${origin.port}`),
    });
    for (const method of ['GET', 'POST']) {
      const rule = await refusal(
        client.request(`http://127.0.0.1:${origin.port}/`, {
          method,
          ...(method === 'POST' ? { body: 'x' } : {}),
        }),
      );
      expect(rule).toMatch(/^(address:loopback|host_name|scheme|userinfo|invalid_url)$/);
    }
    await origin.stop();
    expect(canaries.hits()).toBe(0);
  });
});

describe('legal URLs', () => {
  it.each(legalUrls)('%s is answered', async (url, answers, dialled) => {
    let host: string | undefined;
    const origin = await startOrigin((request, response) => {
      host = request.headers.host;
      response.end('public');
    });
    const internet = fakeInternet(() => origin.port);
    const client = createSafeClient({
      dial: internet.dial,
      lookup: async () => {
        if (answers.length === 0) throw new Error('a literal must not be looked up');
        return answers;
      },
    });
    const answer = await client.request(url);
    expect(answer.body.toString()).toBe('public');
    expect(internet.dialled).toEqual([dialled]);
    expect(host).toBe(new URL(url).host);
    await origin.stop();
  });
});

it('control: the canaries are alive and nobody had reached them', async () => {
  expect(canaries.hits()).toBe(0);
  const client = createSafeClient({ allow: parseAllowList(`127.0.0.1:${canaries.port}`) });
  expect((await client.request(`http://127.0.0.1:${canaries.port}/`)).body.toString()).toBe('secret');
  expect(canaries.hits()).toBe(1);
});
