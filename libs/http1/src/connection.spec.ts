import { type AddressInfo, createServer } from 'node:net';
import { PassThrough, Readable } from 'node:stream';
import { answering, ask, Noted, pool, serve, type Undo, until } from '../test/server.js';
import { type Http1Request } from './index.js';

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

describe('requests', () => {
  it('the head is as it was given, and goes out with a small body in one packet', async () => {
    const server = await answering(undo, OK);
    const on = pool(undo);
    const headers = ['Host', 'app', 'X-B', '2', 'x-a', '\xfc', 'X-B', '1'];
    await ask(on, server.port, { path: '/a?b=%20', headers }).done;
    await ask(on, server.port, { method: 'POST', headers, body: Buffer.from('\xff\0body', 'latin1') }).done;
    await ask(on, server.port, { method: 'DELETE', headers }).done;
    await ask(on, server.port, { method: 'PUT', headers }).done;
    expect(server.reads).toEqual([
      [
        'GET /a?b=%20 HTTP/1.1\r\nHost: app\r\nX-B: 2\r\nx-a: \xfc\r\nX-B: 1\r\n\r\n',
        'POST / HTTP/1.1\r\nHost: app\r\nX-B: 2\r\nx-a: \xfc\r\nX-B: 1\r\nContent-Length: 6\r\n\r\n\xff\0body',
        'DELETE / HTTP/1.1\r\nHost: app\r\nX-B: 2\r\nx-a: \xfc\r\nX-B: 1\r\n\r\n',
        'PUT / HTTP/1.1\r\nHost: app\r\nX-B: 2\r\nx-a: \xfc\r\nX-B: 1\r\nContent-Length: 0\r\n\r\n',
      ],
    ]);
  });

  it('text goes as UTF-8, a small one in one packet with the head', async () => {
    const server = await serve(undo, (socket) => {
      socket.on('data', (chunk) => {
        if (chunk.includes('end')) socket.write(OK);
      });
    });
    const on = pool(undo);
    const headers = ['Host', 'app', 'X', '\xfc'];
    const sent = [
      'plain, end',
      'grüße – 🙂 \ud800, end',
      `${'x'.repeat(50_000)} end`,
      `${'ж'.repeat(50_000)} end`,
    ];
    for (const body of sent) await ask(on, server.port, { method: 'POST', headers, body }).done;
    const wire = server.reads[0]!.join('');
    const expected = sent.map((body) => {
      const octets = Buffer.from(body);
      return `POST / HTTP/1.1\r\nHost: app\r\nX: \xfc\r\nContent-Length: ${octets.length}\r\n\r\n${octets.toString('latin1')}`;
    });
    expect(wire).toBe(expected.join(''));
    // One read each for the small ones.
    expect(server.reads[0]!.slice(0, 2)).toEqual(expected.slice(0, 2));
    const said = ['Host', 'app', 'Content-Length', '3'];
    expect(() => ask(on, server.port, { method: 'POST', headers: said, body: 'ж!' })).not.toThrow();
    expect(() => ask(on, server.port, { method: 'POST', headers: said, body: 'ж' })).toThrow(
      'Content-Length',
    );
  });

  it('a stream goes with its length or in chunks, what is there of it along with the head', async () => {
    const server = await serve(undo, (socket) => {
      socket.on('data', (chunk) => {
        if (/(?:0\r\n\r\n|end)$/.test(chunk.toString())) socket.write(OK);
      });
    });
    const on = pool(undo);
    const stream = () => Readable.from([Buffer.from('a'), Buffer.from('the end')], { objectMode: false });
    await ask(on, server.port, { method: 'POST', body: stream() }).done;
    const headers = ['Host', 'app', 'Content-Length', '8'];
    await ask(on, server.port, { method: 'POST', headers, body: stream() }).done;
    const all = server.reads[0]!.join('');
    expect(all).toBe(
      'POST / HTTP/1.1\r\nHost: app\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n7\r\nthe end\r\n0\r\n\r\n' +
        'POST / HTTP/1.1\r\nHost: app\r\nContent-Length: 8\r\n\r\nathe end',
    );
    const [first] = server.reads[0]!;
    expect(first).toContain('\r\n\r\n1\r\na\r\n');
  });

  it('a large body arrives whole, as one and as a stream', async () => {
    const size = 3_000_000;
    const server = await serve(undo, (socket, index) => {
      let got = 0;
      socket.on('data', (chunk) => {
        got += chunk.length;
        const head = server.reads[index]![0]!.indexOf('\r\n\r\n') + 4;
        if (got === head + size) socket.write(OK);
      });
    });
    const on = pool(undo);
    const body = Buffer.alloc(size, 'abcdefg');
    await ask(on, server.port, { method: 'POST', body }).done;
    const headers = ['Host', 'app', 'Content-Length', String(size)];
    const source = Readable.from(
      (function* () {
        for (let at = 0; at < size; at += 50_000) yield body.subarray(at, at + 50_000);
      })(),
      { objectMode: false },
    );
    await ask(on, server.port, { method: 'POST', headers, body: source }, new Noted(), 0).done;
    for (const reads of server.reads) expect(reads.join('').endsWith(body.toString())).toBe(true);
  });

  it('a slow server slows the source down', async () => {
    const server = await serve(undo, (socket) => void socket.pause());
    let taken = 0;
    const source = new Readable({
      read() {
        taken += 65_536;
        this.push(Buffer.alloc(65_536));
      },
    });
    const asked = ask(pool(undo), server.port, { method: 'POST', body: source });
    await until(() => taken > 200_000);
    let before = -1;
    while (before !== taken) {
      before = taken;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
    expect(taken).toBeLessThan(60_000_000);
    asked.connection.abort();
    // The source goes on living, for whom it belongs to.
    expect([source.destroyed, source.isPaused()]).toEqual([false, true]);
    source.destroy();
  });

  it('nothing of a stream is read before there is a connection', async () => {
    const source = new PassThrough();
    let isRead = false;
    source.once('resume', () => (isRead = true));
    const closed = createServer();
    await new Promise<void>((resolve) => closed.listen(0, '127.0.0.1', resolve));
    const { port } = closed.address() as AddressInfo;
    await new Promise((resolve) => closed.close(resolve));
    expect(await codeOf(ask(pool(undo), port, { method: 'POST', body: source }))).toBe('ECONNREFUSED');
    expect([isRead, source.destroyed]).toEqual([false, false]);
  });

  it('a body that is cut off, or not as long as said, ends the exchange', async () => {
    const server = await serve(undo, () => undefined);
    const on = pool(undo);
    const headers = ['Host', 'app', 'Content-Length', '3'];
    for (const text of ['ab', 'abcd'])
      expect(
        await codeOf(
          ask(on, server.port, { method: 'POST', headers, body: Readable.from([Buffer.from(text)]) }),
        ),
      ).toBe('HTTP1_BODY');
    const cut = new PassThrough();
    const asked = ask(on, server.port, { method: 'POST', body: cut });
    cut.write('a');
    await until(() => server.reads[2]?.join('').includes('\r\na\r\n') ?? false);
    cut.destroy();
    expect(await codeOf(asked)).toBe('HTTP1_BODY');
    // A message of HTTP/2 says that it was cut, and then ends like a whole one.
    const message = new PassThrough();
    const other = ask(on, server.port, { method: 'POST', body: message });
    message.write('a');
    await until(() => server.reads[3]?.join('').includes('\r\na\r\n') ?? false);
    message.emit('aborted');
    message.end();
    expect(await codeOf(other)).toBe('HTTP1_BODY');
    expect(server.reads[3]!.join('')).not.toContain('0\r\n\r\n');
    expect(await codeOf(ask(on, server.port, { method: 'POST', body: cut }))).toBe('HTTP1_BODY');
    await until(() => server.sockets.every((socket) => socket.destroyed || socket.readableEnded));
    expect(on.size).toBe(0);
  });

  it('Expect: 100-continue: the body waits for it, for the answer, or a while', async () => {
    const headers = ['Host', 'app', 'Expect', '100-continue', 'Content-Length', '4'];
    const on = pool(undo);
    const asks = (port: number) => {
      const body = Readable.from([Buffer.from('body')]);
      return ask(on, port, { method: 'POST', headers, body });
    };
    const says = await serve(undo, (socket) => {
      socket.on('data', (chunk) => {
        if (chunk.toString() === 'body') socket.write(OK);
        else setTimeout(() => socket.write('HTTP/1.1 100 Continue\r\n\r\n'), 50);
      });
    });
    expect((await asks(says.port).done).body).toBe('ok');
    expect(says.reads[0]).toEqual([expect.stringContaining('Expect: 100-continue'), 'body']);
    const silent = await serve(undo, (socket) => {
      socket.on('data', (chunk) => chunk.toString() === 'body' && socket.write(OK));
    });
    expect((await asks(silent.port).done).body).toBe('ok');
    const refusing = await answering(undo, 'HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n');
    expect((await asks(refusing.port).done).status).toBe(417);
    // It may still wait for the body: not used again.
    await until(() => refusing.sockets[0]!.readableEnded || refusing.sockets[0]!.destroyed);
    expect(refusing.reads[0]!.join('')).not.toContain('body');
  });

  it.each<[string, Partial<Http1Request>]>([
    ['a line feed in a header', { headers: ['Host', 'app', 'X', 'a\r\nB: c'] }],
    ['NUL in a header', { headers: ['Host', 'app', 'X', 'a\0'] }],
    ['what is no Latin-1', { headers: ['Host', 'app', 'X', 'ж'] }],
    ['a name with a colon', { headers: ['Host', 'app', 'X: Y', 'a'] }],
    ['an empty name', { headers: ['Host', 'app', '', 'a'] }],
    ['a space in the path', { path: '/a b' }],
    ['a line feed in the path', { path: '/ HTTP/1.1\r\nX: y\r\n\r\n' }],
    ['no path', { path: '' }],
    ['a path beyond ASCII', { path: '/\xfc' }],
    ['a method that is none', { method: 'GET /x' }],
    ['no Host', { headers: [] }],
    ['two Hosts', { headers: ['Host', 'a', 'host', 'b'] }],
    ['a coding', { headers: ['Host', 'a', 'Transfer-Encoding', 'chunked'] }],
    ['two lengths', { headers: ['Host', 'a', 'Content-Length', '0', 'content-length', '0'] }],
    ['a length that is none', { headers: ['Host', 'a', 'Content-Length', '1, 1'] }],
    ['a length without a body', { headers: ['Host', 'a', 'Content-Length', '3'] }],
    ['a length of another body', { headers: ['Host', 'a', 'Content-Length', '3'], body: Buffer.from('ab') }],
  ])('%s: not sent', (_name, more) => {
    const on = pool(undo);
    expect(() => ask(on, 1, more)).toThrow(TypeError);
    expect(on.size).toBe(0);
  });
});

describe('answers', () => {
  it('the head comes alone when nothing follows it, and together with what does', async () => {
    const server = await serve(undo, (socket, index) => {
      const [head, body] = ['HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n', 'body'];
      if (index === 1) socket.once('data', () => socket.write(head + body));
      else
        socket.once('data', () => {
          socket.write(`${head}bo`);
          setTimeout(() => socket.write('dy'), 50);
        });
    });
    const on = pool(undo);
    const first = ask(on, server.port);
    expect((await first.done).body).toBe('body');
    expect(first.told).toEqual(['head', 'data', 'quiet', 'data', 'end']);
    const second = ask(on, server.port, {}, new Noted(), 0);
    await second.done;
    expect(second.told).toEqual(['head', 'data', 'end']);
  });

  it('paused, it reads no more, and goes on when resumed', async () => {
    const size = 30_000_000;
    let written = 0;
    const server = await serve(undo, (socket) => {
      const fill = (): void => {
        while (written < size) {
          written += 100_000;
          if (!socket.write(Buffer.alloc(100_000))) return void socket.once('drain', fill);
        }
      };
      socket.once('data', () => {
        socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${size}\r\n\r\n`);
        fill();
      });
    });
    let got = 0;
    const on = pool(undo);
    let isPaused = false;
    const noted = new Noted();
    noted.onData = (_bytes, start, end) => {
      got += end - start;
      if (isPaused || got < 1_000_000) return;
      isPaused = true;
      asked.connection.pause();
    };
    const asked = ask(on, server.port, {}, noted);
    await until(() => isPaused);
    const held = got;
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(got).toBe(held);
    expect(written).toBeLessThan(size);
    asked.connection.resume();
    await asked.done;
    expect(got).toBe(size);
    expect((await server).sockets).toHaveLength(1);
  });

  it('aborted, its handler hears nothing more, and the server sees the end', async () => {
    const server = await serve(undo, (socket) => {
      socket.once('data', () => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nab'));
    });
    const on = pool(undo);
    const asked = ask(on, server.port, {}, new Noted(() => asked.connection.abort()));
    await until(() => server.sockets[0]?.destroyed ?? false);
    expect([asked.told, on.size]).toEqual([['head', 'data'], 0]);
    const early = ask(on, server.port);
    early.connection.abort();
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect([early.told, on.size]).toEqual([[], 0]);
  });

  it('what a handler throws ends the exchange', async () => {
    const server = await answering(undo, OK);
    const on = pool(undo);
    const noted = new Noted(() => {
      throw new Error('no room');
    });
    await expect(ask(on, server.port, {}, noted).done).rejects.toThrow('no room');
    expect(on.size).toBe(0);
  });

  it('an answer that comes before the end of the body counts, and the rest is not sent', async () => {
    const server = await serve(undo, (socket) => {
      socket.once('data', () => socket.write('HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n'));
    });
    const body = new PassThrough();
    const asked = ask(pool(undo), server.port, { method: 'POST', body });
    body.write('part');
    expect((await asked.done).status).toBe(413);
    await until(() => server.sockets[0]!.destroyed || server.sockets[0]!.readableEnded);
    body.end('rest');
    expect(server.reads[0]!.join('')).not.toContain('rest');
  });

  it.each([
    ['hangs up at once', '', 'HTTP1_CLOSED'],
    ['hangs up in the head', 'HTTP/1.1 200 OK\r\nA: b\r\n', 'HTTP1_CLOSED'],
    ['hangs up in the body', 'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab', 'HTTP1_CLOSED'],
    ['speaks something else', '220 mail.example.org\r\n', 'HTTP1_PROTOCOL'],
    [
      'breaks the protocol',
      'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab',
      'HTTP1_PROTOCOL',
    ],
    ['ends its body with the connection', 'HTTP/1.1 200 OK\r\n\r\nab', 'whole'],
  ])('a server that %s', async (_name, text, code) => {
    const server = await serve(undo, (socket) => void socket.once('data', () => socket.end(text)));
    const on = pool(undo);
    const asked = ask(on, server.port);
    expect(await codeOf(asked)).toBe(code);
    expect(asked.told.filter((what) => what === 'end' || what === 'error')).toHaveLength(1);
    await until(() => on.size === 0);
  });

  it('a server that resets the connection; a body without a length is not whole then', async () => {
    const server = await serve(undo, (socket, index) => {
      socket.once('data', () => {
        if (index === 0) return socket.resetAndDestroy();
        socket.write('HTTP/1.1 200 OK\r\n\r\nab', () => setTimeout(() => socket.resetAndDestroy(), 50));
        return undefined;
      });
    });
    const on = pool(undo);
    expect(await codeOf(ask(on, server.port))).toBe('HTTP1_CLOSED');
    expect(await codeOf(ask(on, server.port))).toBe('HTTP1_CLOSED');
  });
});
