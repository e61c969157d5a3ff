/** What may be wrong with an upstream. */
export type UpstreamTrouble =
  /** No connection, or it ended before an answer. */
  | 'unreachable'
  /** Another status than 200. */
  | 'refused'
  /** The answer broke off, or made no sense. */
  | 'broken'
  /** One of the operator's limits ran out. */
  | 'timeout'
  /** No route was tried, since the breakers of all are open. */
  | 'closed';

/** Trouble with an upstream; its words are for the log, except for what `publicMessage` lets out. */
export class UpstreamError extends Error {
  readonly trouble: UpstreamTrouble;
  /** HTTP status of a refusal. */
  readonly status: number | undefined;
  /** Seconds that the vendor asks to wait. */
  readonly retryAfter: number | undefined;
  /** The vendor's words about the client's request. */
  readonly publicMessage: string | undefined;

  constructor(
    trouble: UpstreamTrouble,
    message: string,
    more: { status?: number; retryAfter?: number; publicMessage?: string; cause?: unknown } = {},
  ) {
    super(message, { cause: more.cause });
    this.name = 'UpstreamError';
    this.trouble = trouble;
    this.status = more.status;
    this.retryAfter = more.retryAfter;
    this.publicMessage = more.publicMessage;
  }

  /** Is it the request itself that the vendor refuses? Then no other upstream will take it. */
  get isAboutRequest(): boolean {
    return this.trouble === 'refused' && [400, 413, 422].includes(this.status ?? 0);
  }
}
