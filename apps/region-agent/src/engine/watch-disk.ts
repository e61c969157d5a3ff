import { isAbort, sleep } from '../system/timing.js';
import { type EngineClient } from './client.js';

/**
 * Looks at what the container of the present step has written, on top of its image: the engine itself sets no limit.
 * @returns words of the broken limit; null when the signal fired
 */
export async function watchDisk(
  client: EngineClient,
  container: () => string | null,
  maxBytes: number,
  signal: AbortSignal,
): Promise<string | null> {
  let wait = 2_000;
  try {
    for (;;) {
      await sleep(wait, signal);
      const id = container();
      if (id === null) continue;
      const began = performance.now();
      // Between two steps there is none, and an engine that went is seen elsewhere.
      const size = await client
        .json<{ SizeRw?: number; SizeRootFs?: number }>('GET', `/containers/${id}/json`, {
          query: { size: '1' },
          signal,
        })
        .catch(() => null);
      signal.throwIfAborted();
      if ((size?.SizeRw ?? 0) > maxBytes || (size?.SizeRootFs ?? 0) > 2 * maxBytes)
        return `A step wrote more than ${Math.round(maxBytes / 2 ** 20)} MB.`;
      wait = Math.max(2_000, Math.min(30_000, 20 * (performance.now() - began)));
    }
  } catch (error) {
    if (signal.aborted || isAbort(error)) return null;
    throw error;
  }
}
