import { createParser } from 'eventsource-parser';
import { within } from './limits.js';
import { type UpstreamAnswer, UpstreamError } from './upstream.js';

export type Json = Readonly<Record<string, unknown>>;

/** Most characters of one event; tool calls with whole files in them are long. */
const eventLimit = 32 * 1024 * 1024;

/**
 * The chunks of an upstream's answer, all of one read together, so that they can go on in one write. Ends at `[DONE]` or
 * with the answer. Robust against lines and characters split between reads, CRLF, comments and a missing last blank line;
 * a plain JSON answer of a host that ignores `stream` comes out as one chunk.
 * @param idle milliseconds between two reads; 0: no limit
 * @throws UpstreamError `broken` when the answer breaks off or is not what it should be, `timeout`
 */
export async function* readEvents(answer: UpstreamAnswer, idle: number): AsyncGenerator<Json[]> {
  if (answer.contentType === 'application/json') {
    yield [plainAsChunk(await readAll(answer, idle))];
    return;
  }
  let chunks: Json[] = [];
  let done = false;
  const parser = createParser({
    maxBufferSize: eventLimit,
    onEvent: ({ data }) => {
      if (done || data === '') return;
      if (data === '[DONE]') done = true;
      else chunks.push(parseObject(data));
    },
    onError: (error) => {
      if (error.type === 'max-buffer-size-exceeded') throw new UpstreamError('broken', error.message);
    },
  });
  const decoder = new TextDecoder();
  const reads = answer.body[Symbol.asyncIterator]();
  try {
    while (!done) {
      const read = await next(reads, idle);
      // A host that forgets the last blank line has still sent its event.
      parser.feed(read.done ? `${decoder.decode()}\n\n` : decoder.decode(read.value, { stream: true }));
      if (chunks.length > 0) {
        const batch = chunks;
        chunks = [];
        yield batch;
      }
      if (read.done) return;
    }
  } finally {
    // After [DONE] only the end of the body is missing: reading it lets the connection be used again.
    if (done) void readOut(reads);
    else void reads.return?.()?.catch(() => undefined);
  }
}

async function next(reads: AsyncIterator<Uint8Array>, idle: number): Promise<IteratorResult<Uint8Array>> {
  try {
    return await within(idle, 'between two chunks', reads.next(), () => undefined);
  } catch (cause) {
    if (cause instanceof UpstreamError) throw cause;
    throw new UpstreamError('broken', `the answer broke off: ${(cause as Error).message}`, { cause });
  }
}

async function readOut(reads: AsyncIterator<Uint8Array>): Promise<void> {
  try {
    while (!(await within(1_000, 'after the end', reads.next(), () => undefined)).done);
  } catch {
    void reads.return?.()?.catch(() => undefined);
  }
}

async function readAll(answer: UpstreamAnswer, idle: number): Promise<Json> {
  const reads = answer.body[Symbol.asyncIterator]();
  const parts: Uint8Array[] = [];
  let size = 0;
  for (;;) {
    const read = await next(reads, idle);
    if (read.done) return parseObject(Buffer.concat(parts).toString('utf8'));
    size += read.value.length;
    if (size > eventLimit) throw new UpstreamError('broken', `an answer of more than ${eventLimit} bytes`);
    parts.push(read.value);
  }
}

function parseObject(text: string): Json {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Json;
  } catch {
    // Told below.
  }
  throw new UpstreamError('broken', `an event that is no JSON object: ${text.slice(0, 200)}`);
}

function plainAsChunk(plain: Json): Json {
  const [choice] = Array.isArray(plain['choices']) ? (plain['choices'] as Json[]) : [];
  return choice ? { ...plain, choices: [{ ...choice, delta: choice['message'] ?? {} }] } : plain;
}
