/**
 * The load generator, a process of its own. Told by IPC: `{ run: Job }`, answered by `{ result }` or `{ error }`.
 *
 * Job: `origin`, `path`, `headers`, `body`; `connections`, kept alive, each with one request after the other; `ms`, for how
 * long requests are begun, or `each`, how many a connection sends; `spread`, milliseconds over which the connections begin;
 * `abortAfter`, milliseconds after which the client leaves; `every`, milliseconds between two beginnings (then requests are
 * begun by the clock, on any free connection); `timed`: chunks say when they left, looked at from `from` milliseconds on;
 * `detail`: each request is told of.
 * Result: `requests`, `seconds`; `latency`, `firstByte`, `transit` as `{ p50, p99 }` in milliseconds; `abortedAt` on the
 * machine's clock in milliseconds; `spans`, `[begun, ended]` of each request on the same clock.
 */
import { connect } from 'node:net';
import { pause, quantile } from './parts.mjs';
import { MessageReader } from './wire.mjs';

const clock = () => Number(process.hrtime.bigint()) / 1e6;
const quote = '@'.charCodeAt(0);

class Connection {
  constructor(job, result) {
    this.job = job;
    this.result = result;
    this.socket = connect({ host: '127.0.0.1', port: Number(new URL(job.origin).port), noDelay: true });
    this.bytes = requestBytes(job);
    this.sentAt = 0;
    this.first = 0;
    /** When the newest chunk left that has been seen. */
    this.newest = 0;
    this.status = '';
    this.text = '';
    this.resolve = null;
    this.reader = new MessageReader({
      onHead: (head) => (this.status = head.slice(9, 12)),
      onData: (data) => this.data(data),
      onEnd: () => this.ended(),
    });
    this.socket.on('data', (data) => this.reader.push(data));
    this.socket.on('error', (error) => this.fail(error));
    this.socket.on('close', () => this.fail(new Error('the connection was closed')));
  }

  /** Sends a request; resolves when its answer has come. */
  send() {
    this.sentAt = clock();
    this.first = 0;
    return new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
      this.socket.write(this.bytes);
    });
  }

  data(data) {
    if (this.status !== '200') return void (this.text += data.toString('latin1', 0, 300));
    if (this.first === 0) this.first = clock();
    if (this.job.timed) this.transit(data);
  }

  /** Marks of chunks; some formats repeat the whole text at the end, which says nothing of its way. */
  transit(data) {
    const now = clock();
    for (let at = data.indexOf(quote); at >= 0; at = data.indexOf(quote, at)) {
      const end = data.indexOf(quote, at + 1);
      if (end < 0) return;
      const micros = Number(data.toString('latin1', at + 1, end));
      at = end + 1;
      if (!(micros > this.newest)) continue;
      this.newest = micros;
      if (now > this.result.from) this.result.transit.push(now - micros / 1e3);
    }
  }

  ended() {
    const now = clock();
    if (this.status !== '200')
      return this.fail(new Error(`${this.job.path} answered ${this.status}: ${this.text.slice(0, 300)}`));
    this.result.requests += 1;
    if (this.job.detail) this.result.spans.push([this.sentAt, now]);
    this.result.latency.push(now - this.sentAt);
    this.result.firstByte.push(this.first - this.sentAt);
    this.resolve?.();
  }

  fail(error) {
    this.reject?.(error);
    this.reject = null;
    this.socket.destroy();
  }

  close() {
    this.reject = null;
    this.socket.destroy();
  }
}

function requestBytes({ origin, path, headers, body }) {
  const fields = { host: new URL(origin).host, 'content-type': 'application/json', ...headers };
  const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}\r\n`);
  return Buffer.from(
    `POST ${path} HTTP/1.1\r\n${lines.join('')}content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
}

async function run(job) {
  const result = { requests: 0, latency: [], firstByte: [], transit: [], spans: [], abortedAt: 0, from: 0 };
  const connections = Array.from({ length: job.connections }, () => new Connection(job, result));
  try {
    await Promise.all(connections.map(({ socket }) => new Promise((done) => socket.once('connect', done))));
    const begun = clock();
    result.from = begun + (job.from ?? 0);
    if (job.abortAfter !== undefined) await leave(connections[0], job, result);
    else if (job.every !== undefined) await byTheClock(connections, job);
    else {
      const end = begun + (job.ms ?? Infinity);
      await Promise.all(
        connections.map(async (connection, index) => {
          if (job.spread) await pause((job.spread * index) / connections.length);
          for (let sent = 0; sent < (job.each ?? Infinity) && clock() < end; sent += 1)
            await connection.send();
        }),
      );
    }
    const { requests, latency, firstByte, transit, spans, abortedAt } = result;
    return {
      requests,
      seconds: (clock() - begun) / 1e3,
      latency: quantiles(latency),
      firstByte: quantiles(firstByte),
      transit: quantiles(transit),
      spans,
      abortedAt,
    };
  } finally {
    for (const connection of connections) connection.close();
  }
}

const quantiles = (values) => ({ p50: quantile(values, 0.5), p99: quantile(values, 0.99) });

async function leave(connection, { abortAfter }, result) {
  const answer = connection.send().then(
    () => Promise.reject(new Error('the answer came before the client left')),
    (error) => Promise.reject(error),
  );
  await Promise.race([answer, pause(abortAfter)]);
  result.abortedAt = clock();
  answer.catch(() => undefined);
  connection.close();
}

async function byTheClock(connections, { every, ms }) {
  const free = [...connections];
  const running = new Set();
  const end = clock() + ms;
  for (let due = clock(); due < end; due += every) {
    const wait = due - clock();
    if (wait > 0) await pause(wait);
    const connection = free.pop();
    if (!connection) throw new Error('all connections wait; take more of them');
    const sent = connection.send().then(() => {
      free.push(connection);
      running.delete(sent);
    });
    running.add(sent);
  }
  await Promise.all(running);
}

process.on('message', ({ run: job, id }) => {
  run(job).then(
    (result) => process.send({ id, result }),
    (error) => process.send({ id, error: error.message }),
  );
});
process.on('disconnect', () => process.exit(0));
process.send({ ready: true });
