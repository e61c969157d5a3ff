import dns, { type LookupAddress } from 'node:dns';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { createServer as createHttps, type Server } from 'node:https';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { selfSigned } from '@nebo/test-kit';
import { Cancel } from '../completions/cancel.js';
import { startOutbound, type Outbound } from '../../test/outbound.js';
import { vendorHost } from './vendor-host.js';

type Told = (error: null, addresses: LookupAddress[]) => void;

describe('where a vendor answers', () => {
  it.each([
    ['https://api.vendor.example/v1', { host: 'api.vendor.example', port: 443, isTls: true }],
    ['https://api.vendor.example:8443/v1', { host: 'api.vendor.example', port: 8_443, isTls: true }],
    ['http://10.1.2.3/v1', { host: '10.1.2.3', port: 80, isTls: false }],
    ['http://[fd00::7]:8000', { host: 'fd00::7', port: 8_000, isTls: false }],
  ])('%s', (url, host) => {
    expect(vendorHost(new URL(url))).toEqual({ ...host, session: undefined });
  });
});

describe('a vendor over TLS', () => {
  const data = (value: object) => `data: ${JSON.stringify(value)}\n\n`;
  const piece = (content: string) =>
    data({ choices: [{ index: 0, delta: { content }, finish_reason: null }] });
  const last = `${data({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] })}data: [DONE]\n\n`;
  const trusted = getCACertificates('default');
  let server: Server;
  let pair: { cert: string; key: string };
  let outbound: Outbound | undefined;
  let names: unknown[] = [];
  let resumed = 0;
  let answer = piece('hello') + last;
  let ends = false;

  beforeAll(async () => {
    pair = await selfSigned(['localhost', '127.0.0.1']);
    server = createHttps(pair, (request, response) => {
      request.resume().once('end', () => {
        response.writeHead(200, {
          'content-type': 'text/event-stream',
          ...(ends ? { connection: 'close' } : {}),
        });
        response.end(answer);
      });
    });
    server.on('secureConnection', (socket) => {
      names.push(socket.servername);
      if (socket.isSessionReused()) resumed += 1;
    });
    server.listen(0);
    await once(server, 'listening');
    setDefaultCACertificates([...trusted, pair.cert]);
  });
  beforeEach(() => {
    names = [];
    resumed = 0;
    ends = false;
    answer = piece('hello') + last;
  });
  afterEach(async () => {
    await outbound?.stop();
    outbound = undefined;
  });
  afterAll(() => {
    setDefaultCACertificates(trusted);
    server.close();
    server.closeAllConnections();
  });

  const start = (host: string, at = server): Outbound =>
    (outbound = startOutbound(`
providers: { vendor: { base_url: "https://${host}:${(at.address() as AddressInfo).port}", dialect: openai } }
models: { glm-5.2: { upstreams: [{ provider: vendor }] } }
`));
  const ask = () => outbound!.ask(outbound!.order('glm-5.2'));

  it('is asked by its name, on a connection that is used again', async () => {
    start('localhost');
    for (let turn = 0; turn < 3; turn += 1) expect((await ask()).content).toBe('hello');
    expect(names).toEqual(['localhost']);
  });

  it('an address is no name that is asked for', async () => {
    start('127.0.0.1');
    expect((await ask()).content).toBe('hello');
    expect(names).toEqual([false]);
  });

  it('a name whose first address does not answer is found at its second', async () => {
    const here = createHttps(pair, (_, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).end(answer);
    });
    here.listen(0, '127.0.0.1');
    await once(here, 'listening');
    const { lookup } = dns;
    let asked = 0;
    const told = (_name: string, _how: object, done: Told) => {
      asked += 1;
      const found = [
        { address: '::1', family: 6 },
        { address: '127.0.0.1', family: 4 },
      ];
      process.nextTick(done, null, found);
    };
    dns.lookup = told as unknown as typeof lookup;
    start('localhost', here);
    const answered = ask().finally(() => {
      dns.lookup = lookup;
      here.close();
    });
    expect((await answered).content).toBe('hello');
    expect(asked).toBe(1);
  });

  it('a further connection goes on with the session of one before', async () => {
    start('localhost');
    ends = true;
    for (let turn = 0; turn < 4; turn += 1) {
      await ask();
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    expect(names).toHaveLength(4);
    expect(resumed).toBeGreaterThanOrEqual(1);
  });

  it('stops reading while its own reader waits, and hands nothing over meanwhile', async () => {
    const pieces = 600;
    answer = piece('x'.repeat(16_384)).repeat(pieces) + last;
    const { upstreams, order } = start('localhost');
    let seen = 0;
    let waiting = 0;
    await upstreams.answer(order('glm-5.2'), new Cancel(), {
      began: () => undefined,
      events: async (events) => {
        seen += events.length;
        waiting += 1;
        // One call at a time: the next is only made when this one is done.
        expect(waiting).toBe(1);
        if (seen < 100) await new Promise((resolve) => setTimeout(resolve, 20));
        waiting -= 1;
      },
    });
    expect(seen).toBe(pieces + 1);
  });

  it('whose certificate is of another name, or of nobody who is trusted, hears nothing', async () => {
    let heard = 0;
    const note = () => (heard += 1);
    server.on('request', note);
    const other = await selfSigned(['other.test']);
    const trust = getCACertificates('default');
    server.setSecureContext(other);
    start('localhost');
    await expect(ask()).rejects.toMatchObject({ trouble: 'unreachable' });
    setDefaultCACertificates([...trust, other.cert]);
    await expect(ask()).rejects.toMatchObject({ trouble: 'unreachable' });
    setDefaultCACertificates(trust);
    server.setSecureContext(pair);
    server.off('request', note);
    expect(heard).toBe(0);
  });
});
