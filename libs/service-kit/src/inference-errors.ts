import type { ErrorAnswer } from './errors.js';

const typesByStatus: Record<number, string> = {
  400: 'invalid_request_error',
  401: 'authentication_error',
  402: 'billing_error',
  403: 'permission_error',
  404: 'not_found_error',
  405: 'invalid_request_error',
  408: 'timeout_error',
  413: 'request_too_large',
  415: 'invalid_request_error',
  422: 'invalid_request_error',
  429: 'rate_limit_error',
  431: 'invalid_request_error',
};

/** The `type` of an error at `{ai_url}`: the words that the clients of the three formats know. */
export const inferenceErrorType = (status: number): string => typesByStatus[status] ?? 'api_error';

/**
 * The body of an error at `{ai_url}`, in the shape of the path: `/v1/messages…` has the messages format's envelope, all
 * else `{error:{type,code,message}}` (interfaces.md, 4). For the gateway and for inference-router.
 * @param path path of the request, with or without its query
 */
export function inferenceErrorBody(path: string, answer: Pick<ErrorAnswer, 'status' | 'body'>): object {
  const { code, message, request_id: requestId, details, ...fields } = answer.body.error;
  const error = {
    type: inferenceErrorType(answer.status),
    code,
    message,
    ...fields,
    // Clients read an object of codes there; lists of wrong fields are the control API's.
    ...(Array.isArray(details) ? {} : { details }),
    ...(requestId ? { request_id: requestId } : {}),
  };
  const pathname = path.split('?', 1)[0]!;
  const isMessages = pathname === '/v1/messages' || pathname.startsWith('/v1/messages/');
  return isMessages ? { type: 'error', error } : { error };
}
