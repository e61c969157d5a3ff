import { type AddressInfo, Socket } from 'node:net';
import { connect as connectTls, createServer as createTlsServer } from 'node:tls';
import { PassThrough, Readable } from 'node:stream';
import { selfSigned } from '@nebo/test-kit';
import { answering, ask, Noted, pool, serve, type Undo, until } from '../test/server.js';

const undo: Undo = [];
afterEach(() => {
  while (undo.length > 0) undo.pop()!();
});

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';
const codeOf = (noted: Noted): Promise<string> =>
  noted.done.then(
    () => 'whole',
    (error: { code?: string }) => error.code ?? String(error),
  );

describe('limits of time', () => {
  it('for the connection', async () => {
    const on = pool(undo, { connectMs: 50, connect: () => new Socket() });
    expect(await codeOf(ask(on, 1))).toBe('HTTP1_CONNECT_TIMEOUT');
    expect(on.size).toBe(0);
  });

  it('for the head, not for the body', async () => {
    const server = await serve(undo, (socket, index) => {
      if (index === 0) return;
      socket.once('data', () => {
        socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na');
        setTimeout(() => socket.write('b'), 500);
      });
    });
    const on = pool(undo, { answerMs: 150 });
    expect(await codeOf(ask(on, server.port))).toBe('HTTP1_ANSWER_TIMEOUT');
    expect((await ask(on, server.port).done).body).toBe('ab');
  });

  it('a source that is slow is waited for, a server that does not read is not', async () => {
    const server = await serve(undo, (socket, index) => {
      if (index === 1) socket.pause();
      else socket.on('data', (chunk) => chunk.toString().endsWith('0\r\n\r\n') && socket.write(OK));
    });
    const on = pool(undo, { answerMs: 150 });
    const slow = new PassThrough();
    const asked = ask(on, server.port, { method: 'POST', body: slow });
    slow.write('a');
    setTimeout(() => slow.end('b'), 600);
    expect(await codeOf(asked)).toBe('whole');
    const endless = new Readable({ read: (size) => void endless.push(Buffer.alloc(size)) });
    expect(await codeOf(ask(on, server.port, { method: 'POST', body: endless }, new Noted(), 0))).toBe(
      'HTTP1_ANSWER_TIMEOUT',
    );
    endless.destroy();
  });
});

describe('connections', () => {
  const kept = async (text: string, more: Parameters<typeof pool>[1] = {}): Promise<boolean> => {
    const server = await answering(undo, text, OK);
    const on = pool(undo, more);
    await ask(on, server.port).done;
    await ask(on, server.port).done;
    return server.sockets.length === 1;
  };

  it.each([
    ['a length', OK, true],
    ['chunks', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nA: b\r\n\r\n', true],
    ['no body', 'HTTP/1.1 204 No\r\n\r\n', true],
    ['an interim answer', `HTTP/1.1 103 x\r\n\r\n${OK}`, true],
    ['close', 'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na', false],
    ['HTTP/1.0', 'HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na', false],
    [
      'HTTP/1.0 that keeps it',
      'HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na',
      true,
    ],
    ['time enough', `HTTP/1.1 200 OK\r\nKeep-Alive: max=9, timeout=5\r\nContent-Length: 1\r\n\r\na`, true],
    ['hardly any time', 'HTTP/1.1 200 OK\r\nKeep-Alive: timeout=2\r\nContent-Length: 1\r\n\r\na', false],
    ['octets behind the answer', `${OK}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil`, false],
    ['a body behind an answer without one', 'HTTP/1.1 204 No\r\n\r\nevil', false],
  ])('an answer with %s', async (_name, text, expected) => expect(await kept(text)).toBe(expected));

  it('one that the server closes while idle is not used again, whatever the request', async () => {
    const server = await answering(undo, OK);
    const on = pool(undo);
    for (let turn = 1; turn < 6; turn += 1) {
      expect((await ask(on, server.port, { method: 'POST', body: Buffer.from('x') }).done).body).toBe('ok');
      expect(on.size).toBe(1);
      if (turn % 2 === 0) server.sockets.at(-1)!.end();
      else server.sockets.at(-1)!.resetAndDestroy();
      await until(() => on.size === 0);
      expect(server.sockets).toHaveLength(turn);
    }
  });

  it('one on which something comes that nobody asked for is dropped', async () => {
    const server = await answering(undo, OK);
    const on = pool(undo);
    await ask(on, server.port).done;
    server.sockets[0]!.write('HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil');
    await until(() => on.size === 0);
    expect((await ask(on, server.port).done).body).toBe('ok');
    expect(server.sockets).toHaveLength(2);
  });

  it('closed in the moment in which a request is sent: the caller is told, and nothing is repeated', async () => {
    const server = await serve(undo, (socket) => {
      socket.once('data', () => {
        socket.write(OK);
        socket.once('data', () => socket.destroy());
      });
    });
    const on = pool(undo);
    await ask(on, server.port).done;
    expect(await codeOf(ask(on, server.port, { method: 'POST', body: Buffer.from('x') }))).toBe(
      'HTTP1_CLOSED',
    );
    expect(server.sockets).toHaveLength(1);
  });

  it('idle for too long it goes; a request may ask for a fresher one', async () => {
    const server = await answering(undo, OK);
    const on = pool(undo, { idleMs: 300 });
    await ask(on, server.port).done;
    await ask(on, server.port, {}, new Noted(), 0).done;
    expect([server.sockets.length, on.size]).toEqual([2, 2]);
    await until(() => on.size === 0);
    await until(() => server.sockets.every((socket) => socket.destroyed));
  });

  it('each request has one to itself, and the last used is taken first', async () => {
    const server = await serve(undo, (socket) => {
      socket.on('data', (chunk) => {
        if (chunk.toString().startsWith('GET /quick')) socket.write(OK);
        else setTimeout(() => socket.write(OK), 100);
      });
    });
    const on = pool(undo);
    const slow = [ask(on, server.port), ask(on, server.port)];
    await ask(on, server.port, { path: '/quick' }).done;
    expect(slow.map(({ told }) => told)).toEqual([[], []]);
    await Promise.all(slow.map(({ done }) => done));
    expect(server.sockets).toHaveLength(3);
    for (let turn = 0; turn < 5; turn += 1) await ask(on, server.port, { path: '/quick' }).done;
    expect(server.reads.map(({ length }) => length).sort()).toEqual([1, 1, 6]);
  });

  it('connections of one target are not used for another', async () => {
    const servers = [await answering(undo, OK), await answering(undo, OK.replace('ok', 'no'))];
    const on = pool(undo);
    for (const expected of ['ok', 'no', 'ok', 'no'])
      expect((await ask(on, servers[expected === 'ok' ? 0 : 1]!.port).done).body).toBe(expected);
    expect(servers.map(({ sockets }) => sockets.length)).toEqual([1, 1]);
  });

  it('over TLS; a handshake that fails has sent nothing', async () => {
    const { cert, key } = await selfSigned(['app.test']);
    const heard: string[] = [];
    const server = createTlsServer({ cert, key }, (socket) => {
      socket
        .on('error', () => undefined)
        .on('data', (chunk: Buffer) => {
          heard.push(chunk.toString());
          socket.write(OK);
        });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    undo.push(() => server.close());
    const { port } = server.address() as AddressInfo;
    const on = (ca: string[]) =>
      pool(undo, {
        connect: ({ host, port: to }, onread) => {
          // The option is Node's, and not known to its types.
          const options = { host, port: to, onread, ca, servername: 'app.test' };
          return connectTls(options);
        },
      });
    const trusting = on([cert]);
    for (let turn = 0; turn < 3; turn += 1) expect((await ask(trusting, port).done).body).toBe('ok');
    expect([heard.length, trusting.size]).toEqual([3, 1]);
    const body = Readable.from([Buffer.from('secret')]);
    expect(await codeOf(ask(on([]), port, { method: 'POST', body }))).toBe('DEPTH_ZERO_SELF_SIGNED_CERT');
    expect(heard.join('')).not.toContain('POST');
  });

  it('destroyed, all are closed, what is under way fails, and none is kept', async () => {
    const server = await answering(undo, 'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab', OK);
    const on = pool(undo);
    const asked = ask(on, server.port);
    await until(() => asked.told.includes('data'));
    on.destroy();
    expect(await codeOf(asked)).toBe('HTTP1_CLOSED');
    expect(on.size).toBe(0);
    expect((await ask(on, server.port).done).body).toBe('ok');
    expect(on.size).toBe(0);
  });
});
