import { Inject, Injectable } from '@nestjs/common';
import { PeriodicHousekeeping, RUNTIME, type Runtime } from '@nebo/service-kit';
import { Blobs } from './blobs.js';

/** Forgets bytes that no row owns. */
@Injectable()
export class Housekeeping extends PeriodicHousekeeping {
  constructor(
    private readonly blobs: Blobs,
    @Inject(RUNTIME) runtime: Pick<Runtime, 'log'>,
  ) {
    super('compute', runtime.log);
  }

  async run(): Promise<void> {
    await this.blobs.collect();
  }
}
