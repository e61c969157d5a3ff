import type { Config } from '@nebo/service-kit';

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
export const limitsOf = (
  { limits }: { limits?: Partial<UpstreamLimits> | undefined },
  defaults: UpstreamLimits,
): UpstreamLimits => ({
  ...defaults,
  ...limits,
});
