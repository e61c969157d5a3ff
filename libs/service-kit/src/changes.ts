import { EventEmitter } from 'node:events';
import { Injectable, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common';
import { Database } from '@nebo/persistence';

/**
 * Somebody's ear for some topics. Made before the first look at the data, it cannot miss what changes after that look.
 */
export class Ear {
  private heard = false;
  private ring: (() => void) | undefined;
  private readonly listener = () => {
    this.heard = true;
    this.ring?.();
  };

  constructor(
    private readonly bell: EventEmitter,
    private readonly topics: readonly string[],
  ) {
    for (const topic of topics) bell.on(topic, this.listener);
  }

  /**
   * Resolves when something was said since the last call, or after `ms`, or when the signal is aborted.
   * @returns whether something was said
   */
  async next(ms: number, signal?: AbortSignal): Promise<boolean> {
    if (!this.heard && !signal?.aborted) {
      await new Promise<void>((resolve) => {
        const done = () => {
          clearTimeout(timer);
          signal?.removeEventListener('abort', done);
          resolve();
        };
        // A notification may be lost with its connection; nobody sleeps longer than the safety poll of 5 s.
        const timer = setTimeout(done, Math.max(0, Math.min(ms, 5_000)));
        signal?.addEventListener('abort', done);
        this.ring = done;
      });
      this.ring = undefined;
    }
    const heard = this.heard;
    this.heard = false;
    return heard;
  }

  close(): void {
    for (const topic of this.topics) this.bell.off(topic, this.listener);
  }
}

/**
 * Hands the database's notifications (`<schema>_changed`) to those who wait in this process: one connection for all.
 * `Topic`: what can be waited for in the service; the payloads of its notifications.
 */
@Injectable()
export class Changes<Topic extends string = string> implements OnApplicationBootstrap, OnModuleDestroy {
  private readonly bell = new EventEmitter().setMaxListeners(0);
  private readonly closing = new AbortController();
  private unlisten: (() => Promise<void>) | undefined;

  constructor(private readonly database: Database) {}

  /** Aborted when the process stops: long polls and streams end then. */
  get stopping(): AbortSignal {
    return this.closing.signal;
  }

  async onApplicationBootstrap(): Promise<void> {
    this.unlisten = await this.database.listen(`${this.database.schema}_changed`, (topic) => {
      if (topic !== '') this.bell.emit(topic);
      // The connection was lost for a while: whoever waits looks again.
      else for (const name of this.bell.eventNames()) this.bell.emit(name);
    });
  }

  /** Close it when done. */
  listen(...topics: Topic[]): Ear {
    return new Ear(this.bell, topics);
  }

  async onModuleDestroy(): Promise<void> {
    this.closing.abort();
    for (const name of this.bell.eventNames()) this.bell.emit(name);
    await this.unlisten?.();
  }
}
