import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { errorAnswer, inferenceErrorBody } from '@nebo/service-kit';
import { AnswerReader } from '../src/completions/answer-reader.js';
import type { Piece } from '../src/completions/piece.js';
import type { Completed } from '../src/completions/completions.service.js';
import { upstreamAnswer } from '../src/completions/upstream-answers.js';
import { dialects } from '../src/dialects/registry.js';
import type { PlainWriter, StreamWriter } from '../src/formats/format.js';
import { type EventReader, readerFor } from '../src/upstreams/event-stream.js';
import type { UpstreamEvent } from '../src/upstreams/upstream-event.js';
import { UpstreamError } from '../src/upstreams/upstream-error.js';

/*
 * Golden streams: `golden/<dialect>/<scenario>.upstream.sse` is what a vendor sends, byte by byte, and beside it
 * `<scenario>.<format>.<ext>` what a client gets for it. For a new format:
 *
 *   describe.each(goldenStreams())('$dialect $scenario', (golden) => {
 *     it('in the messages format', async () => {
 *       expectGolden(golden, 'messages.sse', await streamed(golden, writer(goldenHead), '/v1/messages'));
 *     });
 *   });
 *
 * NEBO_GOLDEN=write writes the client's files anew; read the difference before it is kept. Files of vendors are written
 * only where they are missing (golden.spec.ts): they are made by the test kit after each vendor's known habits, and recordings
 * of live accounts should take their place one by one.
 */

/** One kept answer of a vendor. */
export interface GoldenStream {
  dialect: string;
  scenario: string;
  /** Bytes of the body. */
  bytes: Buffer;
}

/** What a client's stream repeats; the same in all files. */
export const goldenHead = { id: 'chatcmpl-golden', created: 1_790_000_000, model: 'golden-model' };

const root = new URL('golden/', import.meta.url);
const fileOf = (dialect: string, name: string): URL => new URL(`${dialect}/${name}`, root);
const isWriting = process.env['NEBO_GOLDEN'] === 'write';

/** All kept answers. */
export function goldenStreams(): GoldenStream[] {
  return Object.keys(dialects).flatMap((dialect) =>
    readdirSync(fileOf(dialect, ''))
      .filter((name) => name.endsWith('.upstream.sse'))
      .sort()
      .map((name) => ({
        dialect,
        scenario: name.slice(0, -'.upstream.sse'.length),
        bytes: readFileSync(fileOf(dialect, name)),
      })),
  );
}

/** Keeps a vendor's answer where there is none yet, when files are written. */
export function keepUpstream(dialect: string, scenario: string, text: string): void {
  const file = fileOf(dialect, `${scenario}.upstream.sse`);
  if (!isWriting || existsSync(file)) return;
  mkdirSync(new URL('./', file), { recursive: true });
  writeFileSync(file, text);
}

/** An answer as the router reads it. */
export interface Replayed {
  /** Pieces that came together. */
  batches: Piece[][];
  /** Null when it broke off. */
  completed: Completed | null;
  error: UpstreamError | null;
}

/**
 * Reads a recorded answer. A scenario whose name begins with `cut` ends with a broken connection.
 * @param split how the bytes come: event by event, in pieces of so many bytes, or all at once (0)
 */
export async function replay(golden: GoldenStream, split: 'events' | number = 'events'): Promise<Replayed> {
  const dialect = dialects[golden.dialect]!;
  const provider = { name: golden.dialect, baseUrl: 'https://vendor.example/v1', apiKey: null, dialect };
  const reader = new AnswerReader({ dialect, provider }, false);
  const batches: Piece[][] = [];
  try {
    const stream = readerFor('text/event-stream');
    const take = (events: readonly UpstreamEvent[]) => {
      if (events.length > 0) batches.push(events.flatMap((event) => reader.read(event) ?? []));
    };
    for (const part of partsOf(golden, split)) if (!stream.isOver) take(fed(stream, part));
    if (golden.scenario.startsWith('cut')) throw new UpstreamError('broken', 'connection reset');
    if (!stream.isOver) take(stream.end());
    if (!reader.finish) throw new UpstreamError('broken', 'no finish reason');
  } catch (error) {
    if (!(error instanceof UpstreamError)) throw error;
    return { batches, completed: null, error };
  }
  const completed = { finish: reader.finish, counters: reader.counters, cost: 0n };
  return { batches, completed, error: null };
}

/** The events that a piece completes; its octets stand within others, as in the buffer of a connection, and are gone afterwards. */
export function fed(reader: EventReader, piece: Buffer): readonly UpstreamEvent[] {
  const around = Buffer.concat([Buffer.from('data: before'), piece, Buffer.from('\n\n')]);
  const start = 'data: before'.length;
  reader.feed(around, start, start + piece.length);
  around.fill(0);
  return reader.take();
}

function* partsOf({ bytes }: GoldenStream, split: 'events' | number): Generator<Buffer> {
  if (split === 'events') {
    for (const part of bytes.toString('latin1').split(/(?<=\r?\n\r?\n)/)) yield Buffer.from(part, 'latin1');
  } else {
    const size = split || bytes.length;
    for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
  }
}

/**
 * What a client of a format is sent for a recorded answer.
 * @param path of the format's requests, for the shape of an error
 */
export async function streamed(golden: GoldenStream, writer: StreamWriter, path: string): Promise<string> {
  const { batches, completed, error } = await replay(golden);
  let text = '';
  for (const pieces of batches) if (pieces.length > 0) text += writer.pieces(pieces);
  if (completed) return text + writer.end(completed);
  return (
    text + writer.broken(inferenceErrorBody(path, errorAnswer(upstreamAnswer(error!), 'golden-request')))
  );
}

/** The plain body for a recorded answer; null when it broke off. */
export async function plain(golden: GoldenStream, writer: PlainWriter): Promise<object | null> {
  const { batches, completed } = await replay(golden);
  for (const pieces of batches) writer.add(pieces);
  return completed && writer.body(completed);
}

/** Compares with the file `<scenario>.<name>` beside the recorded answer. */
export function expectGolden({ dialect, scenario }: GoldenStream, name: string, text: string): void {
  const file = fileOf(dialect, `${scenario}.${name}`);
  if (isWriting) writeFileSync(file, text);
  expect(text).toBe(existsSync(file) ? readFileSync(file, 'utf8') : `no file ${dialect}/${scenario}.${name}`);
}
