import { connect, type Socket } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { ask2, h2, head } from '../../test/h2.js';
import { ask, backend, Cleanup, pause, replicas, type Running, serving, until } from '../../test/kit.js';

const stallMs = 300;

describe('bodies that do not move', () => {
  const cleanup = new Cleanup();
  let run: Running;
  /** Paths of requests that the app was left with in the middle. */
  const left: string[] = [];

  beforeAll(async () => {
    const app = await backend(cleanup, (req, res) => {
      req.on('error', () => undefined);
      req.on('close', () => void (req.complete || left.push(req.url!)));
      if (req.url === '/early') return void res.writeHead(401, { 'content-length': 2 }).end('no');
      if (req.url === '/stream') res.writeHead(200).write('begun ');
      const read = (): void =>
        void buffer(req).then(
          ({ length }) => res.end(`${length}`),
          () => undefined,
        );
      if (req.url === '/late') setTimeout(read, 4 * stallMs);
      else read();
    });
    run = await serving(cleanup, replicas(app.port), { tuning: { bodyStallMs: stallMs } });
  });
  afterAll(() => cleanup.run());

  const post = (path: string, length: number): string =>
    `POST ${path} HTTP/1.1\r\nHost: shop.apps.localhost\r\nContent-Length: ${length}\r\n\r\n`;
  const open = (text: string): { socket: Socket; text: () => string } => {
    const socket = connect(run.port, '127.0.0.1');
    let seen = '';
    cleanup.add(() => socket.destroy());
    socket.on('error', () => undefined).on('data', (chunk) => (seen += chunk.toString()));
    socket.write(text);
    return { socket, text: () => seen };
  };

  it.each([
    ['after a part of it', '/part', 'abc'],
    ['from the beginning', '/begin', ''],
    ['although it was answered', '/early', 'abc'],
  ])('end their connection: %s', async (_name, path, part) => {
    const { socket } = open(post(path, 10) + part);
    await until(() => socket.closed, 3_000);
    if (path !== '/early') await until(() => left.includes(path), 1_000);
  });

  it('in chunks too', async () => {
    const { socket } = open(
      'POST /x HTTP/1.1\r\nHost: shop.apps.localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n',
    );
    await until(() => socket.closed, 3_000);
  });

  it('over HTTP/2 end their stream and no other', async () => {
    const session = await h2(cleanup, run.tlsPort);
    const stream = session.request({ ':path': '/stream-of-two', ':method': 'POST' });
    stream.on('error', () => undefined).write('abc');
    await until(() => stream.closed, 3_000);
    await until(() => left.includes('/stream-of-two'), 1_000);
    expect((await ask2(session, '/x', { ':method': 'POST' }, 'abcd')).text).toBe('4');
  });

  it('may last as long as they move', async () => {
    const { socket, text } = open(post('/x', 10));
    const session = await h2(cleanup, run.tlsPort);
    const stream = session.request({ ':path': '/x', ':method': 'POST' });
    const answer = head(stream).then(() => buffer(stream));
    for (let i = 0; i < 10; i += 1) {
      await pause(stallMs / 3);
      socket.write('a');
      stream.write('a');
    }
    stream.end();
    await until(() => text().endsWith('10'));
    expect(await answer).toEqual(Buffer.from('10'));
  });

  it('are not ended where it is the app that does not take them, or has begun to answer', async () => {
    const large = Buffer.alloc(16 * 1024 * 1024);
    const session = await h2(cleanup, run.tlsPort);
    const both = [
      ask(run.port, '/late', { method: 'POST', body: large }),
      ask2(session, '/late', { ':method': 'POST' }, large),
    ];
    const { socket, text } = open(post('/stream', 1));
    for (const answer of await Promise.all(both)) expect(answer.text).toBe(String(large.length));
    socket.write('a');
    await until(() => text().includes('begun ') && text().includes('\r\n1\r\n'));
  });
});
