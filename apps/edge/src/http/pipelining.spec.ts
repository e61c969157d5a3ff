import { connect, type Socket } from 'node:net';
import { backend, Cleanup, pause, raw, replicas, serving, tcp, until } from '../../test/kit.js';

const H = 'Host: shop.apps.localhost\r\n';
const requests = (count: number): string =>
  Array.from({ length: count }, (_, i) => `GET /${i} HTTP/1.1\r\n${H}\r\n`).join('');

describe('requests that are sent ahead on one connection', () => {
  const cleanup = new Cleanup();
  afterEach(() => cleanup.run());

  /** A client that does not wait for answers. */
  const client = (port: number, text: string): Socket => {
    const socket = connect(port, '127.0.0.1');
    cleanup.add(() => socket.destroy());
    socket.on('error', () => undefined).resume();
    socket.write(text);
    return socket;
  };

  it('are as many at a time as on a connection of HTTP/2, however many come', async () => {
    let connections = 0;
    const port = await tcp(cleanup, () => void (connections += 1));
    const run = await serving(cleanup, replicas(port));
    const socket = client(run.port, requests(1_000));
    await until(() => connections >= 128);
    await pause(300);
    expect(connections).toBe(128);
    expect(socket.closed).toBe(false);
  });

  it('are answered in their order up to there, and the last answer says that nothing follows', async () => {
    const held: (() => void)[] = [];
    const app = await backend(cleanup, (req, res) => {
      held.push(() => void res.end(`app ${req.url}\n`));
      if (held.length === 128) held.forEach((answer) => answer());
    });
    const run = await serving(cleanup, replicas(app.port));
    const text = await raw(run.port, requests(300), 1_000);
    expect(text.match(/^app \/\d+$/gm)).toEqual(Array.from({ length: 128 }, (_, i) => `app /${i}`));
    const closing = text.match(/^Connection: close\r?$/gim) ?? [];
    expect(closing).toHaveLength(1);
    expect(text.indexOf(closing[0]!)).toBeGreaterThan(text.indexOf('app /126'));
  });

  it('end the connection when there is no end of them', async () => {
    const port = await tcp(cleanup, () => undefined);
    const run = await serving(cleanup, replicas(port));
    const socket = client(run.port, requests(5_000));
    await until(() => socket.closed);
  });
});
