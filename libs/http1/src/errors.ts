/**
 * What went wrong: the connection was not made in time; the head of the answer did not come in time; the other side hung up
 * before the end of its answer; its answer breaks HTTP/1.1; the body of the request failed or has another length than said.
 */
export type Http1ErrorCode =
  'HTTP1_CONNECT_TIMEOUT' | 'HTTP1_ANSWER_TIMEOUT' | 'HTTP1_CLOSED' | 'HTTP1_PROTOCOL' | 'HTTP1_BODY';

/**
 * How an exchange failed. That no connection could be made at all comes as Node says it (`ECONNREFUSED`, `ENOTFOUND`, …): then, and
 * with `HTTP1_CONNECT_TIMEOUT`, nothing of the request was sent.
 */
export class Http1Error extends Error {
  constructor(
    readonly code: Http1ErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = 'Http1Error';
  }
}

/** An answer that is none. @param what is wrong with it; never holds bytes of the answer */
export const broken = (what: string): Http1Error => new Http1Error('HTTP1_PROTOCOL', what);
