/**
 * The model provider of the bench, a process of its own: answers chat requests, plain and streamed, as its parent last told
 * it. A bare socket server, since it shares a core with the generator.
 *
 * Told by IPC: `{ set: Behaviour }`, answered by `{ done: true }`; `{ ask: true }` by `{ counts }`.
 * Behaviour: `chunks` of a stream; `burst`, how many of them at once (0: all); `gap`, milliseconds between two bursts; `wait`,
 * milliseconds before the first byte; `stallAfter`, chunks after which a stream stands still.
 */
import { createServer } from 'node:net';
import { MessageReader } from './wire.mjs';

const usage = '"usage":{"prompt_tokens":24,"completion_tokens":10,"total_tokens":34}';
const shared = '"created":1763712000,"model":"bench"';
const plainBody = `{"id":"chatcmpl-bench","object":"chat.completion",${shared},"choices":[{"index":0,"message":{"role":"assistant","content":"Ten short words that stand for an answer of one."},"finish_reason":"stop"}],${usage}}`;
const plainAnswer = Buffer.from(
  `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${plainBody.length}\r\n\r\n${plainBody}`,
);
const streamHead =
  'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n';
const event = (json) => {
  const text = `data: ${json}\n\n`;
  return `${text.length.toString(16)}\r\n${text}\r\n`;
};
const chunk = (delta, finish = 'null') =>
  event(
    `{"id":"chatcmpl-bench","object":"chat.completion.chunk",${shared},"choices":[{"index":0,"delta":${delta},"finish_reason":${finish}}]}`,
  );
const first = chunk('{"role":"assistant","content":""}');
const word = chunk('{"content":" words"}');
const last = [
  chunk('{}', '"stop"'),
  event(`{"id":"chatcmpl-bench","object":"chat.completion.chunk",${shared},"choices":[],${usage}}`),
  event('[DONE]'),
  '0\r\n\r\n',
].join('');
/** A chunk that says when it left, in microseconds of the clock that all processes of a machine share. */
const timedChunk = () => chunk(`{"content":"@${(process.hrtime.bigint() / 1000n).toString()}@"}`);

const usual = { chunks: 10, burst: 0, gap: 0, wait: 0, stallAfter: -1, timed: false };
let behaviour = { ...usual };
let whole = Buffer.from(streamHead + first + word.repeat(usual.chunks) + last);
const counts = { requests: 0, chunks: 0, bytes: 0, closedAt: [] };

const server = createServer({ noDelay: true }, (socket) => {
  let isStream = false;
  /** Ends what is being answered. */
  let stop = null;
  const reader = new MessageReader({
    onHead: () => (isStream = false),
    onData: (data) => {
      counts.bytes += data.length;
      // The flag stands at the end of what the bench sends, and near the beginning of what others make of it.
      isStream ||=
        data.subarray(0, 4_096).includes('"stream":true') || data.subarray(-4_096).includes('"stream":true');
    },
    onEnd: () => {
      counts.requests += 1;
      stop = answer(socket, isStream, () => (stop = null));
    },
  });
  socket.on('data', (data) => reader.push(data));
  socket.on('error', () => undefined);
  socket.on('close', () => {
    if (!stop) return;
    stop();
    counts.closedAt.push(Number(process.hrtime.bigint()) / 1e6);
  });
});

/** @returns what ends the answer before its time */
function answer(socket, isStream, done) {
  const { wait } = behaviour;
  if (wait === 0) return begin(socket, isStream, done);
  let end = () => clearTimeout(timer);
  const timer = setTimeout(() => (end = begin(socket, isStream, done) ?? end), wait);
  return () => end();
}

function begin(socket, isStream, done) {
  const { burst, chunks } = behaviour;
  if (!isStream || burst === 0) {
    counts.chunks += isStream ? chunks : 0;
    socket.write(isStream ? whole : plainAnswer);
    return done() ?? null;
  }
  return streamSlowly(socket, done);
}

function streamSlowly(socket, done) {
  const { burst, chunks, gap, stallAfter, timed } = behaviour;
  const words = word.repeat(burst);
  let sent = 0;
  socket.write(streamHead + first);
  const timer = setInterval(() => {
    if (stallAfter >= 0 && sent >= stallAfter) return;
    const now = Math.min(burst, chunks - sent);
    let text = now < burst ? word.repeat(now) : words;
    if (timed) text = timedChunk() + word.repeat(now - 1);
    sent += now;
    counts.chunks += now;
    if (sent < chunks) return socket.write(text);
    clearInterval(timer);
    socket.write(text + last);
    done();
  }, gap);
  return () => clearInterval(timer);
}

process.on('message', ({ set, ask }) => {
  if (set) {
    behaviour = { ...usual, ...set };
    whole = Buffer.from(streamHead + first + word.repeat(behaviour.chunks) + last);
    process.send({ done: true });
  }
  if (ask) process.send({ counts });
});
process.on('disconnect', () => process.exit(0));
server.listen(0, '127.0.0.1', () => process.send({ port: server.address().port }));
