import { once } from 'node:events';
import {
  createServer,
  get,
  type IncomingMessage,
  request,
  type Server,
  type ServerResponse,
} from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { RemoteTarget } from './target.js';

type Handler = (request: IncomingMessage, response: ServerResponse) => void;

async function serve(handler: Handler): Promise<{ server: Server; url: string }> {
  const server = createServer(handler);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { server, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

const bytesOf = async (answer: IncomingMessage) => {
  const chunks: Buffer[] = [];
  for await (const chunk of answer as AsyncIterable<Buffer>) chunks.push(chunk);
  return Buffer.concat(chunks);
};

describe('RemoteTarget.forward', () => {
  let service: Handler;
  let servers: Server[];
  let target: RemoteTarget;
  let door: string;
  const errors: unknown[] = [];

  beforeAll(async () => {
    const behind = await serve((request, response) => service(request, response));
    target = new RemoteTarget(behind.url);
    const front = await serve((request, response) => {
      response.setHeader('ratelimit-limit', 7);
      target.forward(request, response, (error) => {
        errors.push(error);
        if (response.headersSent) response.destroy();
        else response.writeHead(503).end();
      });
    });
    door = front.url;
    servers = [behind.server, front.server];
  });
  beforeEach(() => errors.splice(0));
  afterAll(async () => {
    for (const server of servers) server.closeAllConnections();
    await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
    await target.close();
  });

  const fetchDoor = async (method = 'GET', body?: Buffer) => {
    const asking = request(`${door}/x?y=1`, { method, agent: false, headers: { 'x-request-id': 'r1' } });
    asking.end(body);
    const [answer] = (await once(asking, 'response')) as [IncomingMessage];
    return { answer, bytes: await bytesOf(answer) };
  };

  it.each([
    ['nothing', 0],
    ['every byte there is', 256],
    ['what comes in one piece', 10_000],
    ['what comes in many', 3_000_000],
  ])('keeps bytes as they are: %s', async (_, size) => {
    const sent = Buffer.from(Array.from({ length: size }, (_unused, index) => index % 256));
    service = (asked, response) => {
      expect(asked.url).toBe('/x?y=1');
      response.writeHead(200, { 'content-length': size, 'set-cookie': ['a=1', 'b=2'] }).end(sent);
    };
    const { answer, bytes } = await fetchDoor();
    expect(answer.headers).toMatchObject({
      'content-length': String(size),
      'ratelimit-limit': '7',
      'set-cookie': ['a=1', 'b=2'],
    });
    expect(bytes.equals(sent)).toBe(true);
  });

  it('hands on a body, and an answer of unknown length', async () => {
    service = (asked, response) => asked.pipe(response);
    const sent = Buffer.alloc(500_000, 'ю');
    const { answer, bytes } = await fetchDoor('POST', sent);
    expect(answer.headers['transfer-encoding']).toBe('chunked');
    expect(bytes.equals(sent)).toBe(true);
  });

  it.each([
    ['HEAD', 200],
    ['GET', 204],
    ['GET', 304],
  ])('%s %i has no body', async (method, status) => {
    service = (_, response) =>
      response.writeHead(status, status === 200 ? { 'content-length': 99 } : {}).end();
    const { answer, bytes } = await fetchDoor(method);
    expect(answer.statusCode).toBe(status);
    expect(bytes).toHaveLength(0);
  });

  it('an answer with hints before it (103) arrives once', async () => {
    service = (_, response) => {
      response.writeEarlyHints({ link: '</a>; rel=preload' });
      response.writeHead(201).end('made');
    };
    const { answer, bytes } = await fetchDoor();
    expect([answer.statusCode, String(bytes)]).toEqual([201, 'made']);
  });

  it('the head of an event stream arrives before its first event', async () => {
    let first: () => void = () => undefined;
    service = (_, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
      first = () => response.end('data: 1\n\n');
    };
    const [answer] = (await once(get(door, { agent: false }), 'response')) as [IncomingMessage];
    first();
    expect(String(await bytesOf(answer))).toBe('data: 1\n\n');
  });

  it('does not hold what a slow client does not read', async () => {
    let written = 0;
    const chunk = Buffer.alloc(1024 * 1024);
    service = (_, response) => {
      const more = () => {
        while (written < 200 && response.write(chunk)) written += 1;
        written += 1;
        if (written <= 200) response.once('drain', more);
      };
      more();
    };
    const [answer] = (await once(get(door, { agent: false }), 'response')) as [IncomingMessage];
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(written).toBeLessThan(50);
    let read = 0;
    for await (const piece of answer as AsyncIterable<Buffer>) if ((read += piece.length) > 60e6) break;
    expect(read).toBeGreaterThan(60e6);
  });

  it('streams that last keep nobody else waiting', async () => {
    service = (asked, response) => {
      if (asked.headers['x-lasts']) response.writeHead(200).write('x');
      else response.end('quick');
    };
    const lasting = Array.from({ length: 300 }, () =>
      get(door, { agent: false, headers: { 'x-lasts': '1' } }).on('error', () => undefined),
    );
    await Promise.all(lasting.map((asking) => once(asking, 'response')));
    expect(String((await fetchDoor()).bytes)).toBe('quick');
    for (const asking of lasting) asking.destroy();
  });

  it('more than its bound are refused at once, and room comes back with each end', async () => {
    const few = new RemoteTarget(target.url, 2);
    const front = await serve((request, response) =>
      few.forward(request, response, (error) => {
        errors.push(error);
        response.writeHead(503).end();
      }),
    );
    const held: ServerResponse[] = [];
    const both = new Promise<void>((resolve) => {
      service = (_request, response) => void (held.push(response) === 2 && resolve());
    });
    const ask = async () => (await fetch(front.url)).status;
    const first = [ask(), ask()];
    await both;
    await expect(ask()).resolves.toBe(503);
    expect(String(errors)).toMatch(/2 requests are under way/);
    // One ends well; the service breaks the other off. Both give their room back.
    held[0]!.end();
    held[1]!.socket!.destroy();
    await Promise.all(first);
    service = (_request, response) => void response.end();
    await expect(Promise.all([ask(), ask()])).resolves.toEqual([200, 200]);
    front.server.closeAllConnections();
    front.server.close();
    await few.close();
  });

  it('a client that leaves ends the work behind, and is no error', async () => {
    const left = new Promise<void>((resolve) => {
      service = (_, response) => {
        response.on('close', resolve);
        response.writeHead(200).write('x');
      };
    });
    const asking = get(door, { agent: false });
    await once(asking, 'response');
    asking.destroy();
    await left;
    expect(errors).toEqual([]);
  });

  it('a client that leaves before there is an answer ends the work, too', async () => {
    const left = new Promise<void>((resolve) => {
      service = (asked, response) => {
        response.on('close', resolve);
        asking.destroy();
      };
    });
    const asking = get(door, { agent: false }).on('error', () => undefined);
    await left;
    expect(errors).toEqual([]);
  });

  it('a client that breaks off its body ends the work behind, and is no error', async () => {
    const left = new Promise<void>((resolve) => {
      service = (asked) => {
        asked.on('error', () => undefined).on('close', resolve);
        asked.once('data', () => asking.destroy());
      };
    });
    const asking = request(door, { method: 'POST', agent: false }).on('error', () => undefined);
    asking.write('begun');
    await left;
    expect(errors).toEqual([]);
  });

  it.each([
    ['small one is read on, and the connection used again', 200_000, 2],
    ['large one is not', 65 * 1024 * 1024, 1],
  ])('an answer that comes before the body was read: a %s', async (_, size, expected) => {
    service = (_asked, response) => response.writeHead(413, { 'content-length': 2 }).end('no');
    const { hostname, port } = new URL(door);
    const socket = connect(Number(port), hostname).setEncoding('latin1');
    socket.on('error', () => undefined);
    let text = '';
    socket.on('data', (part: string) => (text += part));
    const closed = new Promise((resolve) => socket.once('close', resolve));
    socket.write(`POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: ${size}\r\n\r\n`);
    while (!text.endsWith('no')) await once(socket, 'data');
    socket.write(Buffer.alloc(Math.min(size, 4_000_000), 'x'));
    service = (asked, response) => asked.resume().on('end', () => response.end('bye'));
    socket.write('POST /b HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n');
    await closed;
    expect(text.match(/HTTP\/1\.1 \d+/g)).toHaveLength(expected);
    expect(errors).toEqual([]);
  });

  it('a request that names no host is of the service', async () => {
    service = (asked, response) => response.end(JSON.stringify(asked.headers));
    const { hostname, port } = new URL(door);
    const socket = connect(Number(port), hostname).setEncoding('latin1');
    socket.write('GET /x HTTP/1.0\r\nx-a: \xfc\r\nconnection: x-a\r\n\r\n', 'latin1');
    let text = '';
    for await (const part of socket) text += part as string;
    const headers = JSON.parse(text.slice(text.indexOf('\r\n\r\n') + 4)) as Record<string, string>;
    expect(headers).toMatchObject({
      'x-a': expect.any(String),
      host: expect.stringMatching(/^127\.0\.0\.1:\d+$/),
    });
    expect(headers['te']).toBeUndefined();
  });

  it('an answer that breaks off does not look complete', async () => {
    service = (_, response) => {
      response.writeHead(200, { 'content-length': 100 }).write('half');
      setTimeout(() => response.destroy(), 20);
    };
    const [answer] = (await once(get(door, { agent: false }), 'response')) as [IncomingMessage];
    await expect(bytesOf(answer)).rejects.toThrow('aborted');
    expect(errors).toHaveLength(1);
  });

  it('a service that closes the connection, is away or was stopped, is an error', async () => {
    service = (asked) => asked.socket.destroy();
    expect((await fetchDoor()).answer.statusCode).toBe(503);
    const away = new RemoteTarget('http://127.0.0.1:1');
    const failed = (target: RemoteTarget) =>
      new Promise<void>((resolve) => {
        const probe = createServer((asked, response) => {
          target.forward(asked, response, () => {
            response.writeHead(503).end();
            probe.close(() => resolve());
          });
        }).listen(0, '127.0.0.1', () =>
          get({ port: (probe.address() as AddressInfo).port, agent: false }, (answer) => answer.resume()),
        );
      });
    await failed(away);
    await away.close();
    await failed(away);
    expect(errors).toHaveLength(1);
  });
});
