/** What the process says when it ends (panel-and-cli.md section 8); scripts rely on these numbers. */
export const exitCodes = {
  done: 0,
  failed: 1,
  usage: 2,
  key: 3,
  right: 4,
  notFound: 5,
  conflict: 6,
  money: 7,
  rateLimit: 8,
  service: 9,
  timeout: 10,
  interrupted: 130,
} as const;

export type ExitCode = (typeof exitCodes)[keyof typeof exitCodes];

/** One line per exit code, as `nebo help exit-codes` prints them. */
export const exitCodeMeanings: readonly (readonly [ExitCode, string])[] = [
  [exitCodes.done, 'done (an empty list is 0 too)'],
  [exitCodes.failed, 'refused or failed: another 4xx, or the work that was waited for failed'],
  [exitCodes.usage, 'usage, or the contract has no such operation: nothing was sent'],
  [exitCodes.key, 'no valid key (401)'],
  [exitCodes.right, 'no right (403)'],
  [exitCodes.notFound, 'not found (404)'],
  [exitCodes.conflict, 'conflict (409)'],
  [exitCodes.money, 'money (402)'],
  [exitCodes.rateLimit, 'rate limit, after retries (429)'],
  [exitCodes.service, 'service or network, try again (5xx, connection)'],
  [exitCodes.timeout, 'the wait was ended by --timeout; the work goes on'],
  [exitCodes.interrupted, 'interrupted (Ctrl-C)'],
];

const byStatus: Readonly<Record<number, ExitCode>> = {
  401: exitCodes.key,
  402: exitCodes.money,
  403: exitCodes.right,
  404: exitCodes.notFound,
  409: exitCodes.conflict,
  429: exitCodes.rateLimit,
};

/** The exit code for an answer that is not 2xx. */
export function exitOfStatus(status: number): ExitCode {
  return byStatus[status] ?? (status >= 500 ? exitCodes.service : exitCodes.failed);
}
