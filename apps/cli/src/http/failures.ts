import { CliError } from '../core/errors.js';
import { exitCodes, exitOfStatus } from '../core/exit-codes.js';
import { type ConnectionBroken } from './transport.js';

interface ErrorText {
  code?: string;
  message?: string;
  lines: string[];
  details?: unknown;
  requestId?: string;
}

/** Reads the envelope `{error:{code,message}}`, and `detail` as older servers of this family write it. */
function readBody(text: string): ErrorText {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    return { lines: [] };
  }
  if (typeof body !== 'object' || body === null) return { lines: [] };
  const { error, detail } = body as { error?: Record<string, unknown>; detail?: unknown };
  const found: ErrorText = { lines: [] };
  if (typeof error?.['code'] === 'string') found.code = error['code'];
  if (typeof error?.['message'] === 'string') found.message = error['message'];
  if (typeof error?.['request_id'] === 'string') found.requestId = error['request_id'];
  if (typeof detail === 'string') found.message ??= detail;
  const fields = Array.isArray(detail) ? detail : error?.['details'];
  if (Array.isArray(fields)) {
    found.details = fields;
    for (const field of fields as { loc?: unknown[]; msg?: string }[]) {
      const where = (field.loc ?? []).filter((step, index) => !(index === 0 && step === 'body')).join('.');
      found.lines.push(where ? `${where}: ${field.msg ?? ''}` : (field.msg ?? ''));
    }
  }
  return found;
}

/** What to do without a key that is good. There is no panel yet: the operator's commands stand in for it. */
export const keyHint =
  'Log in with "nebo auth login", or set NEBO_API_KEY. The operator makes keys: npm run -s admin -- key create. npm start tells the key of its demo account, and .nebo/credentials.json holds it.';

const hints: Readonly<Record<number, string>> = {
  401: keyHint,
  402: '"nebo balance" shows what is left. The operator pays money in: npm run -s admin -- account topup.',
  403: '"nebo whoami" shows what the key may do. The operator makes keys with other rights: npm run -s admin -- key create.',
  405: 'The server knows the path but not the method: it may be older or newer than this nebo.',
  413: 'Leave files out with .neboignore ("nebo deploy --dry-run" lists what goes in), or deploy from git.',
};

/**
 * An answer that is not 2xx as the error that ends the command.
 * @param headers lower-case names, as node:http gives them
 */
export function failureOf(status: number, headers: Record<string, unknown>, text: string): CliError {
  const { code, message, lines, details, requestId } = readBody(text);
  const id = typeof headers['x-request-id'] === 'string' ? headers['x-request-id'] : requestId;
  const retryAfter = typeof headers['retry-after'] === 'string' ? headers['retry-after'] : null;
  let hint = hints[status];
  if (status === 429) hint = retryAfter ? `Try again in ${retryAfter} s.` : 'Try again later.';
  else if (status >= 500) hint = 'Try again. "nebo doctor" looks at the connection.';
  else if (code === 'unknown_operation')
    hint = 'This server does not have the operation: it may be older than this nebo.';
  else if (status >= 300 && status < 400)
    hint = `The address redirects${typeof headers['location'] === 'string' ? ` to ${headers['location']}` : ''}; set --api-url to where the API is.`;
  return new CliError(
    exitOfStatus(status),
    code ?? `http_${status}`,
    message ?? (plain(text) || `The server answered ${status}`),
    {
      hint,
      requestId: id,
      lines,
      extra: { status, ...(details ? { details } : {}) },
    },
  );
}

/** A body that is not JSON, in one short line; nothing of HTML. */
function plain(text: string): string {
  return /^\s*</.test(text) ? '' : text.trim().replace(/\s+/g, ' ').slice(0, 300);
}

/** No whole answer: exit 9. @param origin the server's address */
export function unreachable(error: ConnectionBroken, origin: string): CliError {
  const said: Readonly<Record<string, string>> = {
    ECONNREFUSED: `Nothing listens at ${origin}`,
    ENOTFOUND: `There is no host of that name: ${origin}`,
    NO_ANSWER: `${origin} does not answer (${error.message})`,
  };
  const certificate = /CERT|SELF_SIGNED|UNABLE_TO/.test(error.code);
  return new CliError(
    exitCodes.service,
    'unreachable',
    said[error.code] ?? `The connection to ${origin} broke (${error.message})`,
    {
      hint: certificate
        ? 'Its certificate is not trusted here: NODE_EXTRA_CA_CERTS=/path/to/ca.pem adds the authority.'
        : 'Is --api-url (NEBO_API_URL) right and the server up? "nebo doctor" looks closer.',
      extra: { cause: error.code },
    },
  );
}
