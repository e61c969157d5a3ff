import type { Config } from '@nebo/service-kit';
import type { Provider } from '../catalogue/catalogue.js';
import { UpstreamError } from './upstream.js';

/** The operator's limits on upstreams, milliseconds; 0: none. There is no limit on a whole answer. */
export interface UpstreamLimits {
  connect: number;
  /** From the request until the first event. */
  firstByte: number;
  /** Between two reads of an answer. */
  idle: number;
}

/** `NEBO_UPSTREAM_{CONNECT,FIRST_BYTE,IDLE}_TIMEOUT`, seconds. */
export function upstreamLimits(config: Config): UpstreamLimits {
  return {
    connect: config.int('NEBO_UPSTREAM_CONNECT_TIMEOUT', 10) * 1_000,
    firstByte: config.int('NEBO_UPSTREAM_FIRST_BYTE_TIMEOUT', 1_800) * 1_000,
    idle: config.int('NEBO_UPSTREAM_IDLE_TIMEOUT', 1_800) * 1_000,
  };
}

/** The limits of one provider: what the file says of it, else the settings. */
export const limitsOf = ({ limits }: Provider, defaults: UpstreamLimits): UpstreamLimits => ({
  ...defaults,
  ...limits,
});

/** Waits for `work` at most `ms` (0: for ever); calls `onLate` and throws UpstreamError `timeout` then. */
export async function within<T>(ms: number, what: string, work: Promise<T>, onLate: () => void): Promise<T> {
  if (ms === 0) return work;
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(new UpstreamError('timeout', `${what}: nothing in ${ms / 1_000} s`));
      onLate();
    }, ms);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
    // The loser of the race may still fail, and nobody listens any more.
    work.catch(() => undefined);
  }
}
