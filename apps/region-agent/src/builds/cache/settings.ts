import { type CacheLimits, defaultCacheLimits } from './build-cache.js';

/**
 * `NEBO_BUILD_CACHE_APP` and `NEBO_BUILD_CACHE_MAX`, bytes; 0 keeps nothing.
 * @throws Error that names the setting when it is no number of bytes
 */
export function cacheLimits(env: Record<string, string | undefined>): CacheLimits {
  const bytes = (name: string, usual: number): number => {
    const text = env[name];
    if (text === undefined || text === '') return usual;
    if (!/^\d{1,15}$/.test(text)) throw new Error(`${name} must be a number of bytes, not "${text}"`);
    return Number(text);
  };
  return {
    appBytes: bytes('NEBO_BUILD_CACHE_APP', defaultCacheLimits.appBytes),
    totalBytes: bytes('NEBO_BUILD_CACHE_MAX', defaultCacheLimits.totalBytes),
  };
}
