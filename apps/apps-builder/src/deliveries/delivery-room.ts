import { type Readable } from 'node:stream';
import { ApiError, unavailable } from '@nebo/service-kit';

/** Deliveries whose bodies are held at the same time: who needs no key must not fill the memory. */
const places = 16;
/** So many wait for a place, with nothing read of them; hosts do not send again what was turned away. */
const mostWaiting = 2_000;
/** A body must be here within so long, milliseconds; hosts themselves give up after about ten seconds. */
const longestMs = 15_000;

/** Where bodies of deliveries are read: so many at a time, the others wait in their order. */
export class DeliveryRoom {
  private held = 0;
  private readonly waiting: (() => void)[] = [];

  /**
   * Runs `work` once there is a place.
   * @throws ApiError 503 when too many wait
   */
  async in<T>(work: () => Promise<T>): Promise<T> {
    if (this.held >= places) {
      if (this.waiting.length >= mostWaiting) throw unavailable('too many deliveries at once; send it again');
      // Whoever leaves hands the place on: nobody can take it in between.
      await new Promise<void>((resolve) => this.waiting.push(resolve));
    } else this.held += 1;
    try {
      return await work();
    } finally {
      const next = this.waiting.shift();
      if (next) next();
      else this.held -= 1;
    }
  }
}

/**
 * A body's bytes, or null when it is larger than `limit`; the rest is read and dropped then, up to four times that.
 * @throws ApiError 408 when it does not arrive in time
 */
export async function readBody(body: Readable, limit: number): Promise<Buffer | null> {
  const parts: Buffer[] = [];
  let size = 0;
  const late = new ApiError(408, 'request_timeout', 'the delivery did not arrive in time');
  const clock = setTimeout(() => body.destroy(late), longestMs);
  try {
    for await (const part of body) {
      size += (part as Buffer).length;
      if (size <= limit) parts.push(part as Buffer);
      else parts.length = 0;
      if (size > 4 * limit) return null;
    }
  } finally {
    clearTimeout(clock);
  }
  return size > limit ? null : Buffer.concat(parts);
}
