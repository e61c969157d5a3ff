import { type EdgeError } from '../http/errors.js';
import { type NotWoken, type WakeFailed } from './waker.js';

/** What visitors read when a sleeping app cannot be given to them: nothing of the app's inside. */
const sentences: Record<NotWoken, Pick<EdgeError, 'status' | 'code' | 'message'>> = {
  queue_full: {
    status: 503,
    code: 'app_starting',
    message: 'The app is starting, and too many requests wait for it already.',
  },
  crashed: {
    status: 503,
    code: 'app_start_failed',
    message: 'The app does not start: it ends before it is ready.',
  },
  not_ready: {
    status: 504,
    code: 'app_start_timeout',
    message: 'The app was started, but was not ready in time.',
  },
  timeout: { status: 504, code: 'app_start_timeout', message: 'The app did not start in time.' },
  failed: { status: 503, code: 'app_start_failed', message: 'The app could not be started.' },
  unknown: { status: 503, code: 'app_not_running', message: 'The app is not running at the moment.' },
  moved: { status: 503, code: 'app_not_running', message: 'The app is changing its version.' },
  away: {
    status: 503,
    code: 'app_asleep',
    message: 'The app is asleep, and cannot be woken at the moment.',
  },
};

/** The answer to a request that got no replica. */
export function wakeError(failed: WakeFailed, requestId: string, close: boolean): EdgeError {
  const retryAfter = Math.max(1, Math.ceil(failed.retryAfterMs / 1000));
  return { ...sentences[failed.code], requestId, retryAfter, close };
}
