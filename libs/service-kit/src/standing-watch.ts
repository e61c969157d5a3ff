import type { OnApplicationBootstrap, OnModuleDestroy } from '@nestjs/common';
import type { AccountStanding } from '@nebo/contracts';
import type { Metrics } from '@nebo/telemetry';
import type { Peers } from './peers.js';
import type { Runtime } from './runtime.js';

/**
 * Compares what a service runs with the standing of its accounts: now and then, and at once when an event says so. The table of
 * identity-billing is the truth, so a lost event changes nothing; billing that is away changes nothing either.
 */
export abstract class StandingWatch implements OnApplicationBootstrap, OnModuleDestroy {
  private timer: NodeJS.Timeout | undefined;
  private running: Promise<void> | undefined;
  private again = false;
  private stopped = false;
  private readonly everyMs: number;

  constructor(
    private readonly peers: Peers,
    private readonly metrics: Metrics,
    private readonly runtime: Pick<Runtime, 'config' | 'log'>,
  ) {
    this.everyMs = 1_000 * runtime.config.int('NEBO_STANDING_SECONDS', 15, { min: 1, max: 3_600 });
  }

  /** Makes it so; several replicas may do it at once. */
  protected abstract apply(standing: readonly AccountStanding[]): Promise<void>;

  onApplicationBootstrap(): void {
    this.timer = setInterval(() => this.soon(), this.everyMs).unref();
  }

  /** The handler of the events: a hint to compare. */
  handle(): Promise<void> {
    this.soon();
    return Promise.resolve();
  }

  /** @throws ApiError when billing is away; then nothing is changed */
  async compare(): Promise<void> {
    const standing = await this.peers.call<AccountStanding[]>('identity-billing', '/internal/v1/standing', {
      account: null,
    });
    await this.apply(standing);
  }

  /** Compares now, or once more after the comparison that runs. */
  private soon(): void {
    if (this.stopped) return;
    if (this.running) {
      this.again = true;
      return;
    }
    this.running = this.round().finally(() => {
      this.running = undefined;
      if (!this.again) return;
      this.again = false;
      this.soon();
    });
  }

  private async round(): Promise<void> {
    try {
      await this.compare();
    } catch (err) {
      this.metrics.failure('standing');
      this.runtime.log.warn({ err }, 'standing of accounts');
    }
  }

  async onModuleDestroy(): Promise<void> {
    this.stopped = true;
    clearInterval(this.timer);
    await this.running;
  }
}

/** The accounts in one of these states. */
export const accountsIn = (
  standing: readonly AccountStanding[],
  ...states: AccountStanding['state'][]
): string[] => standing.filter(({ state }) => states.includes(state)).map(({ account_id }) => account_id);
