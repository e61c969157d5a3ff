import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { type ErrorAnswer, errorAnswer, mayDrain } from '@nebo/service-kit';

/** Shapes an error's body for the door: the control API's and the inference formats differ. */
export type ErrorShape = (path: string, answer: ErrorAnswer) => object;

/** Answers with an error; a body that is still on its way is not read further than needed. */
export function writeError(
  request: IncomingMessage,
  response: ServerResponse,
  error: unknown,
  requestId: string,
  shape?: ErrorShape,
): void {
  if (response.headersSent) {
    // A stream that fails in its middle must not look complete.
    response.destroy();
    return;
  }
  const answer = errorAnswer(error, requestId);
  const path = (request.url ?? '/').split('?', 1)[0]!;
  const body = JSON.stringify(shape ? shape(path, answer) : answer.body);
  if (requestId !== '') response.setHeader('x-request-id', requestId);
  if (!request.complete) {
    if (mayDrain(request.headers)) request.resume();
    else response.setHeader('connection', 'close');
  }
  response
    .writeHead(answer.status, { ...answer.headers, 'content-length': Buffer.byteLength(body) })
    .end(body);
}

const parserErrors: Record<string, [number, string, string]> = {
  HPE_HEADER_OVERFLOW: [431, 'headers_too_large', 'the headers are larger than 16 KiB'],
  ERR_HTTP_REQUEST_TIMEOUT: [408, 'request_timeout', 'the request did not arrive in time'],
};

/** Answers what is not HTTP, with a JSON body as everywhere else (interfaces.md, 10). */
export function answerParserError(error: NodeJS.ErrnoException, socket: Duplex): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const [status, code, message] = parserErrors[error.code ?? ''] ?? [
    400,
    'bad_request',
    'the request could not be read',
  ];
  const body = JSON.stringify({ error: { code, message } });
  socket.end(
    `HTTP/1.1 ${status} ${status === 431 ? 'Request Header Fields Too Large' : status === 408 ? 'Request Timeout' : 'Bad Request'}\r\n` +
      `content-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`,
  );
}
