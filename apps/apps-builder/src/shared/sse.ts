import { Readable } from 'node:stream';
import type { FastifyReply } from 'fastify';

/**
 * Sends blocks of an event stream as they come, at the pace of the reader. No compression and no buffering on the way:
 * clients count the lines (4-client-behaviours.md, 5). A source that throws cuts the stream, which clients take as truncated.
 */
export function sendEvents(reply: FastifyReply, source: AsyncGenerator<string>): void {
  void reply
    .header('content-type', 'text/event-stream; charset=utf-8')
    .header('cache-control', 'no-cache, no-store, no-transform')
    .header('x-accel-buffering', 'no')
    .send(Readable.from(source, { objectMode: false }));
}

/** A comment: keeps the connection alive and is no line. The first one also brings the headers on their way. */
export const comment = (text: string): string => `: ${text}\n\n`;

/** One log line. `data: ` keeps its space when the line is empty: parsers look for it. */
export const lineEvent = (id: bigint | number, line: string): string => `id: ${id}\ndata: ${line}\n\n`;

/** The last block: `event: done` stands before its data, so that no parser counts it as a line. */
export const doneEvent = (data: string): string => `event: done\ndata: ${data}\n\n`;

/** The resume point that a client sends, or null: only whole numbers are ids of ours. */
export function lastEventId(header: string | string[] | undefined): bigint | null {
  return typeof header === 'string' && /^\d{1,18}$/.test(header) ? BigInt(header) : null;
}

/** Longest stored log line in characters; scanners of clients stop at 1 MiB (bytes). */
export const maxLine = 200_000;

/**
 * A line as it may be stored and sent: one physical line. Carriage returns inside (progress bars) and line feeds become
 * spaces, since either ends a line of an event stream; ANSI colours stay; NUL and halves of surrogate pairs cannot be stored.
 */
export function physicalLine(text: string): string {
  const one = text
    .replace(/[\r\n]+$/, '')
    .replace(/\r\n|\r|\n/g, ' ')
    .replaceAll('\0', '\ufffd');
  return (one.length > maxLine ? `${one.slice(0, maxLine)}… (cut)` : one).toWellFormed();
}
