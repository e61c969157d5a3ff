import { randomUUID } from 'node:crypto';
import { connect } from 'node:net';
import type { KeyIdentity } from '@nebo/contracts';
import { FakeInstallation } from '../../test/fake-installation.js';

const account = randomUUID();
const project = randomUUID();

/**
 * Sends bytes over one connection and gives what came back, until the other side closes or is quiet after its first word, for
 * which there is more time.
 */
function raw(
  port: number,
  text: string,
  quietMs = 300,
): Promise<{ statuses: number[]; text: string; closed: boolean }> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    let text_ = '';
    let timer: NodeJS.Timeout;
    const done = (closed: boolean) => {
      clearTimeout(timer);
      socket.destroy();
      const statuses = [...text_.matchAll(/HTTP\/1\.1 (\d{3})/g)].map(([, status]) => Number(status));
      resolve({ statuses, text: text_, closed });
    };
    const wait = (ms: number) => {
      clearTimeout(timer);
      timer = setTimeout(() => done(false), ms);
    };
    socket.on('error', () => undefined);
    socket.on('close', () => done(true));
    socket.on('data', (chunk) => {
      text_ += chunk.toString('latin1');
      wait(quietMs);
    });
    socket.on('connect', () => socket.write(Buffer.from(text, 'latin1')));
    wait(Math.max(5_000, quietMs));
  });
}

describe.each([
  ['in one process', false],
  ['across processes', true],
])('heads and bodies on the wire, services %s', (_name, remote) => {
  let nebo: FakeInstallation;
  let head: string;
  let ok: string;
  let reached: () => number;

  beforeAll(async () => {
    nebo = await new FakeInstallation().start({ NEBO_BODY_IDLE_MS: '1000' }, remote);
    const identity: KeyIdentity = {
      kind: 'key',
      account_id: account,
      key_id: randomUUID(),
      policy: [{ effect: 'allow', actions: ['*'], resources: ['*'] }],
      project_ids: null,
      role: 'owner',
    };
    nebo.owners.set(`project:${project}`, { account_id: account, project_id: null, parents: [] });
    head = `Host: x\r\nAuthorization: Bearer ${nebo.addKey(identity)}\r\n`;
    ok = `GET /v1/account HTTP/1.1\r\n${head}\r\n`;
    reached = () => nebo.seen.length;
  });
  afterAll(() => nebo.stop());

  const post = (headers: string, body: string, more = head, version = '1.1') =>
    `POST /v1/projects/${project}/apps HTTP/${version}\r\n${more}Content-Type: application/json\r\n${headers}\r\n\r\n${body}`;
  const chunked = '2\r\n{}\r\n0\r\n\r\n';

  const refused: [string, () => string, number][] = [
    ['length and coding', () => post('Content-Length: 4\r\nTransfer-Encoding: chunked', '0\r\n\r\n'), 400],
    ['coding and length', () => post('Transfer-Encoding: chunked\r\nContent-Length: 4', '0\r\n\r\n'), 400],
    ['two equal lengths', () => post('Content-Length: 2\r\nContent-Length: 2', '{}'), 400],
    ['two lengths', () => post('Content-Length: 2\r\nContent-Length: 3', '{}'), 400],
    ['a list of lengths', () => post('Content-Length: 2, 2', '{}'), 400],
    ['a signed length', () => post('Content-Length: +2', '{}'), 400],
    ['a coding before chunked', () => post('Transfer-Encoding: gzip, chunked', chunked), 400],
    ['a coding behind chunked', () => post('Transfer-Encoding: chunked, identity', chunked), 400],
    ['identity', () => post('Transfer-Encoding: identity\r\nContent-Length: 2', '{}'), 400],
    ['an unknown coding', () => post('Transfer-Encoding: xchunked', chunked), 400],
    ['chunked twice', () => post('Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked', chunked), 400],
    ['a coding in HTTP/1.0', () => post('Transfer-Encoding: chunked', chunked, head, '1.0'), 400],
    ['a chunk size that is none', () => post('Transfer-Encoding: chunked', '0x2\r\n{}\r\n0\r\n\r\n'), 400],
    ['a chunk size without end', () => post('Transfer-Encoding: chunked', 'ffffffffffffffffff\r\n{}'), 400],
    ['chunks that end in LF', () => post('Transfer-Encoding: chunked', '2\n{}\n0\n\n'), 400],
    [
      'an endless chunk extension',
      () => post('Transfer-Encoding: chunked', `2;${'a'.repeat(20_000)}\r\n`),
      400,
    ],
    ['two Hosts', () => `GET /v1/account HTTP/1.1\r\n${head}Host: y\r\n\r\n`, 400],
    ['no Host', () => `GET /v1/account HTTP/1.1\r\n${head.slice(9)}\r\n`, 400],
    ['absolute form', () => `GET http://x/v1/account HTTP/1.1\r\n${head}\r\n`, 400],
    ['a fragment', () => `GET /v1/account#/v1/x HTTP/1.1\r\n${head}\r\n`, 400],
    ['an asterisk', () => `OPTIONS * HTTP/1.1\r\n${head}\r\n`, 400],
    ['HTTP/2 words', () => `GET /v1/account HTTP/2.0\r\n${head}\r\n`, 400],
    ['bare LF', () => ok.replaceAll('\r\n', '\n'), 400],
    ['bare CR', () => `GET /v1/account HTTP/1.1\r\n${head}X: a\rY: b\r\n\r\n`, 400],
    ['a folded header', () => `GET /v1/account HTTP/1.1\r\n${head}X: a\r\n b\r\n\r\n`, 400],
    ['a space before the colon', () => `GET /v1/account HTTP/1.1\r\n${head}X : a\r\n\r\n`, 400],
    ['NUL in a header', () => `GET /v1/account HTTP/1.1\r\n${head}X: a\0b\r\n\r\n`, 400],
    ['bytes in the path', () => `GET /v1/acc\xe9 HTTP/1.1\r\n${head}\r\n`, 400],
    ['150 headers', () => `GET /v1/account HTTP/1.1\r\n${head}${'a: b\r\n'.repeat(150)}\r\n`, 431],
    ['20 KB of header', () => `GET /v1/account HTTP/1.1\r\n${head}X: ${'a'.repeat(20_000)}\r\n\r\n`, 431],
    ['another expectation', () => `GET /v1/account HTTP/1.1\r\n${head}Expect: 200-ok\r\n\r\n`, 417],
  ];

  it.each(refused)(
    '%s: refused with a JSON body, nothing behind it is carried out',
    async (_what, text, status) => {
      const before = reached();
      const answer = await raw(nebo.port, text() + ok);
      expect(answer.statuses).toEqual([status]);
      expect(answer.closed).toBe(true);
      const body = answer.text.slice(answer.text.indexOf('\r\n\r\n') + 4);
      expect(JSON.parse(body)).toMatchObject({
        error: { code: expect.any(String), message: expect.any(String) },
      });
      expect(answer.text.toLowerCase()).toContain('content-type: application/json');
      expect(reached()).toBe(before);
    },
  );

  it.each([
    ['a body with a length', () => post('Content-Length: 2', '{}'), 1],
    [
      'a body in chunks with extensions and trailers',
      () => post('Transfer-Encoding: chunked', '2;a=b\r\n{}\r\n0\r\nX-Nebo-Identity: x\r\n\r\n'),
      1,
    ],
    ['chunked in capitals', () => post('Transfer-Encoding: Chunked', chunked), 1],
    [
      'a body on GET',
      () => `GET /v1/account HTTP/1.1\r\n${head}Content-Length: ${ok.length}\r\n\r\n${ok}`,
      1,
    ],
    [
      'a refused body that looks like a request',
      () => post(`Content-Length: ${ok.length}`, ok, 'Host: x\r\n'),
      0,
    ],
  ])('%s: the next request on the connection is itself', async (_what, text, seen) => {
    const before = reached();
    const answer = await raw(nebo.port, text() + ok);
    expect(answer.statuses).toHaveLength(2);
    expect(answer.statuses[1]).toBe(200);
    expect(reached() - before).toBe(seen + 1);
    expect(nebo.seen.at(-1)!.headers['x-nebo-identity']).not.toBe('x');
  });

  it.each([
    ['with a length', () => post('Content-Length: 10', '{"a"')],
    ['in chunks', () => post('Transfer-Encoding: chunked', '4\r\n{"a"\r\n')],
  ])('a body %s that stops arriving is 408 and ends the connection', async (_what, text) => {
    const answer = await raw(nebo.port, text(), 2_000);
    expect(answer).toMatchObject({ statuses: [408], closed: true });
    expect(answer.text).toContain('"request_timeout"');
  });

  // The answers behind the first have no connection of their own yet, so Node tells none of them that it is gone.
  it('a client that leaves ends the work of all requests that it sent at once', async () => {
    const app = randomUUID();
    nebo.owners.set(`app:${app}`, { account_id: account, project_id: project, parents: [] });
    const known = nebo.closed.length;
    const logs = `GET /v1/apps/${app}/builds/b/logs HTTP/1.1\r\n${head}\r\n`;
    const socket = connect(nebo.port, '127.0.0.1');
    socket.write(logs + logs + logs);
    await new Promise((resolve) => setTimeout(resolve, 400));
    socket.destroy();
    for (let wait = 0; wait < 250 && nebo.closed.length < known + 3; wait += 1)
      await new Promise((resolve) => setTimeout(resolve, 20));
    expect(nebo.closed).toHaveLength(known + 3);
  });

  it('a body that comes slowly but comes, and an answer that takes long, are not cut', async () => {
    const socket = connect(nebo.port, '127.0.0.1');
    let text = '';
    socket.on('data', (chunk) => (text += chunk.toString()));
    socket.write(post('Content-Length: 6', ''));
    for (const part of ['{"', 'a"', ':1'.slice(0, 1)]) {
      socket.write(part);
      await new Promise((resolve) => setTimeout(resolve, 400));
    }
    socket.write('1');
    for (let wait = 0; wait < 250 && text === ''; wait += 1)
      await new Promise((resolve) => setTimeout(resolve, 20));
    expect(text).toContain('200 OK');
    socket.destroy();
  });
});
