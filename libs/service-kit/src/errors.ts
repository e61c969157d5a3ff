import { isDatabaseAway } from '@nebo/persistence';

/** One wrong field of a request, in the form that older clients read. */
export interface FieldError {
  /** `body`, `query` or `path`, then the field. */
  loc: (string | number)[];
  msg: string;
  type: string;
}

/**
 * An error that a caller may see: status, code and public message. What only the log may see is the cause.
 */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly detail: readonly FieldError[] | undefined;
  /** More fields of the error object, for programs: `{ affordable_max_tokens: 120 }`. Never code, message or secrets. */
  readonly fields: Readonly<Record<string, unknown>> | undefined;

  constructor(
    status: number,
    code: string,
    message: string,
    more: {
      cause?: unknown;
      headers?: Record<string, string>;
      detail?: FieldError[];
      fields?: Record<string, unknown>;
    } = {},
  ) {
    super(message, { cause: more.cause });
    this.name = 'ApiError';
    this.status = status;
    this.code = code;
    this.headers = more.headers ?? {};
    this.detail = more.detail;
    this.fields = more.fields;
  }
}

/** Absent and another account's look the same, so that existence is not revealed. */
export const notFound = () => new ApiError(404, 'not_found', 'not found');
/** A reference in a body that is absent or another account's. */
export const referenceNotFound = (field: string) => new ApiError(404, 'not_found', `${field}: not found`);
export const unknownOperation = () => new ApiError(404, 'unknown_operation', 'the API has no such operation');
export const unauthorized = (message = 'the key is missing, unknown, revoked or disabled') =>
  new ApiError(401, 'unauthorized', message, { headers: { 'www-authenticate': 'Bearer' } });
export const forbidden = (action: string) => new ApiError(403, 'forbidden', `the key lacks ${action} here`);
export const conflict = (code: string, message: string) => new ApiError(409, code, message);
export const badRequest = (code: string, message: string) => new ApiError(400, code, message);
export const tooLarge = (message: string) => new ApiError(413, 'payload_too_large', message);
export const unsupportedMediaType = (wanted: string) =>
  new ApiError(415, 'unsupported_media_type', `the body must be sent with content type ${wanted}`);
export const insufficientBalance = (message: string) => new ApiError(402, 'insufficient_balance', message);
export const billingUnavailable = (cause?: unknown) =>
  new ApiError(503, 'billing_unavailable', 'the balance could not be read; nothing was charged, try again', {
    cause,
    headers: { 'retry-after': '5' },
  });
/** A part that the answer needs is away; the caller may try again. */
export const unavailable = (message: string, cause?: unknown) =>
  new ApiError(503, 'unavailable', message, { cause, headers: { 'retry-after': '5' } });

const databaseAway = (cause: unknown) =>
  unavailable('a part that the answer needs is away for a moment; try again', cause);

/** 422 for fields, named one by one. */
export function validationError(detail: FieldError[]): ApiError {
  const first = detail[0];
  const where = first ? first.loc.slice(1).join('.') || String(first.loc[0]) : 'body';
  return new ApiError(422, 'validation_error', first ? `${where}: ${first.msg}` : 'validation failed', {
    detail,
  });
}

/** 422 for one field of the body. */
export const fieldError = (field: string, msg: string, type = 'value_error') =>
  validationError([{ loc: ['body', field], msg, type }]);

/** The body of an error answer, made here and nowhere else. */
export interface ErrorAnswer {
  status: number;
  headers: Record<string, string>;
  body: {
    error: {
      code: string;
      message: string;
      details?: readonly FieldError[];
      request_id?: string;
      [field: string]: unknown;
    };
    detail?: readonly FieldError[];
  };
}

const codesByStatus: Record<number, [string, string]> = {
  400: ['bad_request', 'the request could not be read'],
  401: ['unauthorized', 'the key is missing, unknown, revoked or disabled'],
  404: ['unknown_operation', 'the API has no such operation'],
  405: ['method_not_allowed', 'the path has no such method'],
  408: ['request_timeout', 'the request did not arrive in time'],
  413: ['payload_too_large', 'the body is larger than this operation takes'],
  415: ['unsupported_media_type', 'the body must be sent with content type application/json'],
  431: ['headers_too_large', 'the headers are larger than 16 KiB'],
};

/**
 * Turns anything that was thrown into an answer. What is not an `ApiError` shows its status' standard words; a 5xx shows
 * the request id and nothing of the inside. A database that is away for a moment is no fault of the request: 503.
 */
export function errorAnswer(error: unknown, requestId: string): ErrorAnswer {
  const headers: Record<string, string> = { 'content-type': 'application/json; charset=utf-8' };
  if (error instanceof ApiError) {
    Object.assign(headers, error.headers);
    return {
      status: error.status,
      headers,
      body: {
        error: {
          ...error.fields,
          code: error.code,
          message: error.message,
          ...(error.detail ? { details: error.detail } : {}),
          ...(error.status >= 500 ? { request_id: requestId } : {}),
        },
        ...(error.detail ? { detail: error.detail } : {}),
      },
    };
  }
  const status = statusOf(error);
  if (status === 500 && isDatabaseAway(error)) return errorAnswer(databaseAway(error), requestId);
  const [code, message] = codesByStatus[status] ?? [
    'internal_error',
    'something failed on our side; the request id finds it in the log',
  ];
  return {
    status,
    headers,
    body: { error: { code, message, ...(status >= 500 ? { request_id: requestId } : {}) } },
  };
}

function statusOf(error: unknown): number {
  if (error instanceof SyntaxError && 'statusCode' in error) return 400;
  const carrier = error as { getStatus?: () => number; statusCode?: number } | null;
  const status = carrier?.getStatus?.() ?? carrier?.statusCode;
  return typeof status === 'number' && codesByStatus[status] ? status : 500;
}

/** Most bytes of a refused body that are read and thrown away, so that the client gets to read the refusal. */
const drainLimit = 64 * 1024 * 1024;

/**
 * Whether the rest of a refused body may be read to its end: closing the connection on a client that is still sending
 * would cost it the answer. A body of unknown or absurd length is not read.
 */
export function mayDrain(headers: Readonly<Record<string, unknown>>): boolean {
  const length = headers['content-length'];
  return length === undefined ? headers['transfer-encoding'] === undefined : Number(length) <= drainLimit;
}
