import { type Readable } from 'node:stream';
import { ApiError, unavailable } from '@nebo/service-kit';

/** Deliveries whose bodies are held at the same time: who needs no key must not fill the memory. */
const places = 16;
const placesOfAccount = 4;
/** So many wait for a place, with nothing read of them; hosts do not send again what was turned away. */
const mostWaiting = 2_000;
const mostWaitingOfAccount = 500;
/** A body must be here within so long, milliseconds; hosts themselves give up after about ten seconds. */
const longestMs = 15_000;

/** Where bodies of deliveries are read: so many at a time, the others wait in their order. */
export class DeliveryRoom {
  private held = 0;
  private readonly byAccount = new Map<string, number>();
  private waiting: { account: string; go: () => void }[] = [];

  /**
   * Runs `work` once there is a place, of which one account never has all: its hosts may be slow on purpose.
   * @throws ApiError 503 when too many wait
   */
  async in<T>(account: string, work: () => Promise<T>): Promise<T> {
    if (this.fits(account)) this.take(account);
    else {
      const own = this.waiting.filter((one) => one.account === account).length;
      if (own >= mostWaitingOfAccount || this.waiting.length >= mostWaiting)
        throw unavailable('too many deliveries at once; send it again');
      await new Promise<void>((go) => this.waiting.push({ account, go }));
    }
    try {
      return await work();
    } finally {
      this.leave(account);
    }
  }

  private fits(account: string): boolean {
    return this.held < places && (this.byAccount.get(account) ?? 0) < placesOfAccount;
  }

  private take(account: string): void {
    this.held += 1;
    this.byAccount.set(account, (this.byAccount.get(account) ?? 0) + 1);
  }

  /** Whoever leaves hands the place on: nobody can take it in between. */
  private leave(account: string): void {
    this.held -= 1;
    const left = this.byAccount.get(account)! - 1;
    if (left > 0) this.byAccount.set(account, left);
    else this.byAccount.delete(account);
    const next = this.waiting.find((one) => this.fits(one.account));
    if (!next) return;
    this.waiting = this.waiting.filter((one) => one !== next);
    this.take(next.account);
    next.go();
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
