import type { ServerResponse } from 'node:http';

/** How often the right to a stream is looked at when no event asks for it, milliseconds: as long as a key is believed. */
const lookMs = 5_000;

/**
 * Event streams that are open. One lasts for hours, so its key's right to it is looked at again, with each change of a key and
 * now and then: a key that was revoked, or lost its right, must not go on reading.
 */
export class OpenStreams {
  private readonly open = new Map<ServerResponse, () => Promise<boolean>>();
  private timer: NodeJS.Timeout | undefined;

  /** @param mayRead whether the stream may go on; one that cannot be told at the moment goes on */
  watch(response: ServerResponse, mayRead: () => Promise<boolean>): void {
    if (response.destroyed) return;
    this.open.set(response, mayRead);
    this.timer ??= setInterval(() => this.look(), lookMs).unref();
    response.once('close', () => {
      this.open.delete(response);
      if (this.open.size > 0) return;
      clearInterval(this.timer);
      this.timer = undefined;
    });
  }

  /** Cuts those that may not go on: a client takes a stream without its end as truncated, and gets its refusal on its return. */
  look(): void {
    for (const [response, mayRead] of this.open)
      mayRead().then(
        (may) => may || response.destroy(),
        () => undefined,
      );
  }
}
