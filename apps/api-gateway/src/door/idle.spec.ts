import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { unauthorized } from '@nebo/service-kit';
import { writeError } from './answers.js';
import { guard } from './head.js';

const keepAliveMs = 200;

describe('a connection on which nothing is under way', () => {
  const server = createServer({ keepAliveTimeout: keepAliveMs });
  // As the doors refuse a request without a key: before its body is there.
  guard(server, (request, response) => writeError(request, response, unauthorized(), 'id'), {
    stallMs: 2_000,
  });
  let port: number;

  beforeAll(async () => {
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    ({ port } = server.address() as AddressInfo);
  });
  afterAll(() => {
    server.closeAllConnections();
    server.close();
  });

  it.each([
    ['no body', 'GET /v1/x HTTP/1.1\r\nHost: x\r\n\r\n', ''],
    ['a body that was there', 'POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na', ''],
    [
      'a body that came behind the answer',
      'POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n',
      'a',
    ],
    ['a body that never came', 'POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n', ''],
  ])(
    'is closed after its time, after %s',
    async (_name, head, body) => {
      const socket = connect(port, '127.0.0.1');
      socket.on('error', () => undefined);
      socket.write(head);
      const [answer] = (await once(socket, 'data')) as [Buffer];
      expect(answer.toString()).toMatch(/^HTTP\/1\.1 401 /);
      if (body !== '') socket.write(body);
      const closed = once(socket, 'close').then(() => true);
      const late = new Promise((resolve) => setTimeout(resolve, 5_000, false));
      expect(await Promise.race([closed, late])).toBe(true);
      socket.destroy();
    },
    10_000,
  );
});
