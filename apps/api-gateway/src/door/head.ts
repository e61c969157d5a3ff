import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { ApiError, badRequest } from '@nebo/service-kit';
import { answerParserError, type ErrorShape, writeError } from './answers.js';

/** At most so many header fields in a request (reliability.md, 8). */
const maxHeaders = 100;

/** What a door's guard needs to know. */
export interface GuardOptions {
  /** Longest time in which nothing of a body may arrive, milliseconds (interfaces.md, 10: 60 s). */
  stallMs: number;
  /** Shape of error bodies where it is not the control API's. */
  shape?: ErrorShape;
}

/**
 * What is wrong with the head of a request that Node's parser lets through (measured, reliability.md, 8), or null. Another
 * reader in front of this door could see another request in it.
 */
export function wrongHead(request: IncomingMessage): ApiError | null {
  const { rawHeaders, httpVersion, url } = request;
  if (rawHeaders.length > 2 * maxHeaders)
    return new ApiError(431, 'headers_too_large', `a request may have at most ${maxHeaders} headers`);
  if (httpVersion !== '1.1' && httpVersion !== '1.0')
    return badRequest('bad_request', 'the API speaks HTTP/1.1');
  // Other forms of the target name a second host; a fragment ends the path for some readers.
  if (!url!.startsWith('/') || url!.includes('#'))
    return badRequest('bad_request', 'the request target must be a path');
  let hosts = 0;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index]!;
    if (name.length === 4 && name.toLowerCase() === 'host') hosts += 1;
  }
  if (hosts > 1 || (hosts === 0 && httpVersion === '1.1'))
    return badRequest('bad_request', 'the request must have one Host header');
  const coding = request.headers['transfer-encoding'];
  if (coding !== undefined && (httpVersion === '1.0' || coding.toLowerCase() !== 'chunked'))
    return badRequest('bad_request', 'the only transfer coding is chunked, of HTTP/1.1');
  return null;
}

/**
 * Puts a door behind its guard: heads that could mean two things are refused and end their connection, a body that stops
 * arriving ends its request, and what is no HTTP at all gets an answer only where no other one is under way.
 */
export function guard(
  server: Server,
  handle: (request: IncomingMessage, response: ServerResponse) => void,
  { stallMs, shape }: GuardOptions,
): void {
  const ended = new WeakSet<Duplex>();
  const running = new WeakMap<Duplex, Set<ServerResponse>>();
  const refuse = (request: IncomingMessage, response: ServerResponse, error: ApiError) => {
    ended.add(request.socket);
    response.shouldKeepAlive = false;
    writeError(request, response, error, '', shape);
  };

  server.on('request', (request, response) => {
    const { socket } = request;
    // Node parses what has arrived behind a refused request too; it may be what was to be smuggled in.
    if (ended.has(socket)) return;
    const answers = running.get(socket) ?? new Set();
    running.set(socket, answers.add(response));
    response.once('close', () => answers.delete(response));
    const wrong = wrongHead(request);
    if (wrong) return refuse(request, response, wrong);
    const length = request.headers['content-length'];
    if (request.headers['transfer-encoding'] !== undefined || (length !== undefined && length !== '0')) {
      // Emitted only while the request is incomplete.
      request.setTimeout(stallMs, () => {
        // Answered before its body was there: what is left of it is nobody's any more.
        if (response.writableFinished) return void socket.destroy();
        refuse(request, response, new ApiError(408, 'request_timeout', 'the body stopped arriving'));
        response.once('finish', () => socket.destroySoon());
      });
      // Behind the answer the socket's time is that of an idle connection, which is to stay.
      request.once('end', () => response.writableFinished || request.setTimeout(0));
    }
    handle(request, response);
  });
  // `Expect: 100-continue` is met by Node.
  server.on('checkExpectation', (request: IncomingMessage, response: ServerResponse) => {
    if (!ended.has(request.socket))
      refuse(request, response, new ApiError(417, 'expectation_failed', 'this expectation cannot be met'));
  });
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Duplex) => {
    const answers = [...(running.get(socket) ?? [])];
    // Bytes of another answer would be read as a part of the one under way; only the request that turned out to be malformed
    // in its body, and has no answer yet, gets this one.
    const isIts = answers.length === 1 && !answers[0]!.headersSent && !answers[0]!.req.complete;
    if (ended.has(socket)) (socket as Socket).destroySoon();
    else if (answers.length > 0 && !isIts) socket.destroy();
    else answerParserError(error, socket);
    ended.add(socket);
  });
}
