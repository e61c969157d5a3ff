import { ApiError } from '@nebo/service-kit';
import { UpstreamError } from '../upstreams/upstream-error.js';

/**
 * What a client is told about trouble with an upstream. Refusals of the operator's account at the vendor (401, 402, 403)
 * and everything else that is not about the request itself show nothing of the vendor's words.
 */
export function upstreamAnswer(error: UpstreamError): ApiError {
  if (error.isAboutRequest) {
    const words = error.publicMessage || 'the model refused the request';
    const isTooLong = /context.{0,20}(length|window)|too (long|many tokens)|maximum.{0,20}tokens/i.test(
      words,
    );
    return new ApiError(400, isTooLong ? 'context_length_exceeded' : 'rejected_by_model', words, {
      cause: error,
    });
  }
  if (error.trouble === 'closed') {
    return new ApiError(
      503,
      'upstreams_unavailable',
      'the model has failed repeatedly and is left alone for a moment; nothing was charged, try again',
      { cause: error, headers: { 'retry-after': String(error.retryAfter ?? 1) } },
    );
  }
  if (error.trouble === 'refused' && [429, 503, 529].includes(error.status ?? 0)) {
    return new ApiError(503, 'upstream_busy', 'the model is busy; nothing was charged, try again', {
      cause: error,
      headers: { 'retry-after': String(error.retryAfter ?? 5) },
    });
  }
  if (error.trouble === 'broken') {
    return new ApiError(502, 'upstream_broken', 'the answer of the model broke off; nothing was charged', {
      cause: error,
    });
  }
  return new ApiError(502, 'upstream_failed', 'the model could not be reached; nothing was charged', {
    cause: error,
  });
}
