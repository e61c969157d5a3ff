import { exitCodes, type ExitCode } from './exit-codes.js';

export interface ErrorMore {
  /** What to do next, one line. */
  hint?: string | undefined;
  /** Id of the request that failed, for the operator's log. */
  requestId?: string | undefined;
  /** Further lines for people: wrong fields, choices, similar names. */
  lines?: readonly string[] | undefined;
  /** Further fields of the JSON error. */
  extra?: Readonly<Record<string, unknown>> | undefined;
}

/** Everything that ends a command otherwise than well: what to print and with which code to exit. */
export class CliError extends Error {
  constructor(
    readonly exit: ExitCode,
    /** Machine-readable word: the API's `error.code`, or one of our own. */
    readonly code: string,
    message: string,
    readonly more: ErrorMore = {},
  ) {
    super(message);
    this.name = 'CliError';
  }

  /** The error as `-o json` prints it on stderr. */
  toJSON(): { error: Record<string, unknown> } {
    const { hint, requestId, extra } = this.more;
    return {
      error: {
        code: this.code,
        message: this.message,
        request_id: requestId ?? null,
        hint: hint ?? null,
        ...extra,
      },
    };
  }

  /** The same error with another hint. */
  withHint(hint: string): CliError {
    return new CliError(this.exit, this.code, this.message, { ...this.more, hint });
  }
}

/** The command was wrong and nothing was sent: exit 2. */
export function usageError(message: string, more: ErrorMore = {}): CliError {
  return new CliError(exitCodes.usage, 'usage', message, more);
}

/** Ctrl-C or a signal: exit 130. */
export function interrupted(): CliError {
  return new CliError(exitCodes.interrupted, 'interrupted', 'Interrupted');
}

/** `--timeout` ended the wait: exit 10. @param ms the limit */
export function timedOut(ms: number): CliError {
  return new CliError(
    exitCodes.timeout,
    'timeout',
    `Not finished after ${ms / 1000} s; --timeout ended the wait`,
  );
}

/** Anything that was thrown, as a CliError; a bug keeps its stack in `extra`. */
export function asCliError(error: unknown): CliError {
  if (error instanceof CliError) return error;
  const { code, message, stack } = error as NodeJS.ErrnoException;
  if (typeof code === 'string' && /^E[A-Z]+$/.test(code))
    return new CliError(exitCodes.failed, code, message);
  return new CliError(exitCodes.failed, 'internal', message ?? String(error), {
    hint: 'This is a bug in nebo. With --debug it prints where.',
    lines:
      process.env['NEBO_DEBUG'] || process.argv.includes('--debug') ? (stack ?? '').split('\n').slice(1) : [],
  });
}
