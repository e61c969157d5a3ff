import { Inject, Injectable, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common';
import { RUNTIME, type Runtime } from '@nebo/service-kit';
import { Blobs } from './blobs.js';

/** Forgets bytes that no row owns. */
@Injectable()
export class Housekeeping implements OnApplicationBootstrap, OnModuleDestroy {
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly blobs: Blobs,
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'log'>,
  ) {}

  onApplicationBootstrap(): void {
    this.timer = setInterval(() => {
      this.blobs
        .collect()
        .catch((err: unknown) => this.runtime.log.warn({ err }, 'housekeeping of compute failed'));
    }, 600_000).unref();
  }

  onModuleDestroy(): void {
    clearInterval(this.timer);
  }
}
