import { type ServerResponse } from 'node:http';
import { constants, Http2ServerResponse } from 'node:http2';

/**
 * Ends an answer so that the client sees that the rest is missing: HTTP/1.1 by closing the connection, HTTP/2 by resetting the
 * stream with an error (a reset without one would say that the answer is whole).
 */
export function cut(res: ServerResponse): void {
  const h2: unknown = res;
  if (h2 instanceof Http2ServerResponse) h2.stream.close(constants.NGHTTP2_INTERNAL_ERROR);
  else res.destroy();
}
