import { once } from 'node:events';
import { type AddressInfo, connect } from 'node:net';
import { decode } from 'dns-packet';
import { ask, dataOf, question, sendTcp } from '../../../test/ask.js';
import { eventually, nameservers } from '../../../test/harness.js';
import { namesOf } from '../../../test/random-zone.js';
import { BuiltinDnsDriver } from './index.js';
import { AnswerRate } from './rate.js';
import { Responder } from './responder.js';
import { createTcp } from './tcp.js';
import { ZoneTable } from './zone-table.js';

const options = { host: '127.0.0.1', port: 0, nameservers, rate: 0, onError: () => undefined };
const head = {
  id: '1',
  account_id: 'a',
  name: 'n.test.',
  active: true,
  created_at: 0,
  serial: 1,
  default_ttl: 1,
};
const many = Array.from({ length: 250 }, (_, index) => `192.0.2.${index}`);

describe('over the network', () => {
  let driver: BuiltinDnsDriver;
  let port: number;
  beforeAll(async () => {
    driver = new BuiltinDnsDriver(options);
    port = await driver.open();
    driver.ensure(
      head,
      namesOf([
        { name: 'a.n.test.', type: 'A', ttl: 1, contents: ['192.0.2.1'] },
        { name: 'many.n.test.', type: 'A', ttl: 1, contents: many },
      ]),
    );
  });
  afterAll(() => driver?.close());

  it('UDP and TCP on one port', async () => {
    expect(dataOf(await ask(port, 'a.n.test'))).toEqual(['192.0.2.1']);
    const [answer] = await sendTcp(port, [question('many.n.test')]);
    expect(decode(answer!).answers).toHaveLength(250);
  });

  it('many questions in one connection, each with its answer in order', async () => {
    const questions = Array.from({ length: 500 }, (_, index) =>
      question(index % 2 ? 'a.n.test' : 'many.n.test'),
    );
    const answers = await sendTcp(port, questions, 20_000);
    expect(answers.map((bytes) => bytes.readUInt16BE(0))).toEqual(
      questions.map((bytes) => bytes.readUInt16BE(0)),
    );
  });

  it('a client that does not read is not read from, and gets all of it when it does', async () => {
    const bytes = question('many.n.test');
    const length = Buffer.alloc(2);
    length.writeUInt16BE(bytes.length);
    const count = 4_000;
    const received = await new Promise<number>((resolve, reject) => {
      const socket = connect(port, '127.0.0.1', () => {
        socket.pause();
        for (let index = 0; index < count; index += 1) socket.write(Buffer.concat([length, bytes]));
        setTimeout(() => socket.resume(), 300);
      });
      let size = 0;
      socket.on('error', reject);
      socket.on('data', (chunk) => {
        size += chunk.length;
        if (size >= count * (2 + bytes.length + 250 * 16)) {
          socket.destroy();
          resolve(size);
        }
      });
    });
    expect(received).toBe(count * (2 + bytes.length + 250 * 16));
  }, 60_000);

  it.each([
    ['nothing is closed', Buffer.alloc(0), true],
    ['bytes of one query is closed', question('a.n.test'), true],
    ['whole queries stays', question('a.n.test'), false],
  ])('a connection that for its time brings %s', async (_name, bytes, isClosed) => {
    const idleMs = 400;
    const server = createTcp(new Responder(new ZoneTable({ nameservers })), idleMs).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
    socket.on('error', () => undefined).resume();
    const whole = Buffer.concat([Buffer.from([0, bytes.length]), bytes]);
    const pieces = isClosed ? [...whole].map((byte) => Buffer.from([byte])) : Array<Buffer>(20).fill(whole);
    const until = performance.now() + 3 * idleMs;
    while (!socket.closed && performance.now() < until) {
      const piece = pieces.shift();
      if (piece) socket.write(piece);
      await new Promise((resolve) => setTimeout(resolve, idleMs / 4));
    }
    expect(socket.closed).toBe(isClosed);
    socket.destroy();
    server.close();
  });

  it('a port that is taken is said with its setting', async () => {
    const second = new BuiltinDnsDriver({ ...options, port });
    await expect(second.open()).rejects.toThrow(
      /DNS port \d+ of 127\.0\.0\.1 is taken; choose another with NEBO_DNS_PORT/,
    );
  });

  it('counts what it answers; closes with open connections', async () => {
    const own = new BuiltinDnsDriver(options);
    const ownPort = await own.open();
    own.ensure(head, []);
    await ask(ownPort, 'n.test', { type: 'SOA' });
    await ask(ownPort, 'x.n.test');
    await ask(ownPort, 'x.other');
    expect(own.figures()).toEqual({ answers: { NOERROR: 1, NXDOMAIN: 1, REFUSED: 1 }, dropped: 0 });
    const socket = connect(ownPort, '127.0.0.1');
    await new Promise((resolve) => socket.once('connect', resolve));
    socket.on('error', () => undefined);
    socket.resume();
    const closed = new Promise((resolve) => socket.once('close', resolve));
    await eventually('the connection', async () => socket.readyState === 'open');
    await own.close();
    await closed;
  });
});

describe('the rate of answers to a network', () => {
  let now = 0;
  const verdicts = (rate: AnswerRate, count: number, address: string) => {
    const counted = { answer: 0, cut: 0, drop: 0 };
    for (let index = 0; index < count; index += 1) counted[rate.verdict(address)] += 1;
    return counted;
  };

  it('beyond it half are sent to TCP and half dropped; another second is another count', () => {
    const rate = new AnswerRate(10, () => now);
    expect(verdicts(rate, 30, '198.51.100.1')).toEqual({ answer: 10, cut: 10, drop: 10 });
    expect(verdicts(rate, 2, '198.51.100.77')).toEqual({ answer: 0, cut: 1, drop: 1 });
    expect(verdicts(rate, 10, '198.51.101.1')).toEqual({ answer: 10, cut: 0, drop: 0 });
    expect(verdicts(rate, 12, '2001:db8:0:1::1')).toEqual({ answer: 10, cut: 1, drop: 1 });
    // One /56, however it is written.
    expect(verdicts(rate, 2, '2001:db8:0:ff::2').answer).toBe(0);
    expect(verdicts(rate, 2, '2001:db8:0:1:a:b:c:d').answer).toBe(0);
    expect(verdicts(rate, 2, '2001:db8::7').answer).toBe(0);
    expect(verdicts(rate, 10, '2001:db8:0:100::1').answer).toBe(10);
    expect(verdicts(rate, 10, 'fe80::1').answer).toBe(10);
    // As a socket for both families shows them: each in its own network still.
    expect(verdicts(rate, 2, '::ffff:198.51.100.2').answer).toBe(0);
    expect(verdicts(rate, 10, '::ffff:192.0.2.1').answer).toBe(10);
    now += 1_000;
    expect(verdicts(rate, 10, '198.51.100.1')).toEqual({ answer: 10, cut: 0, drop: 0 });
  });

  it('the loopback is not limited; 0 limits nobody', () => {
    expect(verdicts(new AnswerRate(1, () => now), 50, '127.0.0.1').answer).toBe(50);
    expect(verdicts(new AnswerRate(1, () => now), 50, '::ffff:127.0.0.1').answer).toBe(50);
    expect(verdicts(new AnswerRate(0, () => now), 50, '198.51.100.1').answer).toBe(50);
  });
});
