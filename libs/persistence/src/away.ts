interface Shape {
  code?: unknown;
  message?: unknown;
  meta?: { driverAdapterError?: { cause?: { kind?: unknown; originalCode?: unknown } } };
}

/** SQLSTATEs of PostgreSQL, errors of the network, and what Prisma makes of both. */
const codes =
  /^(08\w{3}|57P0[123]|53300|ECONNREFUSED|ECONNRESET|EPIPE|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|EAI_AGAIN|P1001|P1002|P1008|P1017|P2024|P2037)$/;
const kinds = new Set(['DatabaseNotReachable', 'ConnectionClosed', 'SocketTimeout', 'TooManyConnections']);
/** What pg and Prisma say without a code of its own: cut while a statement ran, no connection in time. */
const words =
  /^Connection (terminated|ended)|not queryable|^timeout exceeded when trying to connect|Unable to start a transaction in the given time/;

/** Whether an error says that PostgreSQL cannot be reached just now, or ended the connection; trying again may help. */
export function isDatabaseAway(error: unknown): boolean {
  if (typeof error !== 'object' || error === null) return false;
  const { code, message, meta } = error as Shape;
  const cause = meta?.driverAdapterError?.cause;
  return (
    [code, cause?.originalCode].some((one) => typeof one === 'string' && codes.test(one)) ||
    (typeof cause?.kind === 'string' && kinds.has(cause.kind)) ||
    (typeof message === 'string' && words.test(message))
  );
}
