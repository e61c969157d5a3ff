/** What went wrong between the edge and a replica, as the visitor sees it. */
export interface UpstreamFailure {
  status: 502 | 503 | 504;
  code: string;
  message: string;
  /** No byte reached the replica: another may be tried. */
  notSent: boolean;
  /** The replica was reached and hung up before it answered, as on a connection that it had just closed. */
  hungUp: boolean;
  /** Label of the metric. */
  reason: string;
}

/** Error codes of Node and of the client of replicas → failure. */
export function classify(error: unknown): UpstreamFailure {
  const code = errorCode(error);
  switch (code) {
    case 'ECONNREFUSED':
    case 'EHOSTUNREACH':
    case 'ENETUNREACH':
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return failure(502, 'app_unreachable', 'The app does not accept connections.', 'refused', {
        notSent: true,
      });
    case 'HTTP1_CONNECT_TIMEOUT':
    case 'ETIMEDOUT':
      return failure(
        504,
        'app_timeout',
        'The app did not accept the connection in time.',
        'connect_timeout',
        { notSent: true },
      );
    case 'HTTP1_ANSWER_TIMEOUT':
      return failure(504, 'app_timeout', 'The app did not answer in time.', 'timeout', {});
    case 'ECONNRESET':
    case 'EPIPE':
    case 'HTTP1_CLOSED':
      return failure(502, 'app_hung_up', 'The app closed the connection without an answer.', 'reset', {
        hungUp: true,
      });
    default:
      return failure(502, 'bad_app_answer', 'The answer of the app could not be understood.', 'protocol', {});
  }
}

function failure(
  status: 502 | 504,
  code: string,
  message: string,
  reason: string,
  more: { notSent?: boolean; hungUp?: boolean },
): UpstreamFailure {
  return { status, code, message, reason, notSent: more.notSent ?? false, hungUp: more.hungUp ?? false };
}

function errorCode(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null) return undefined;
  // A name with several addresses fails with one error per address.
  if (error instanceof AggregateError && error.errors.length > 0) return errorCode(error.errors[0]);
  return (error as { code?: string }).code;
}
