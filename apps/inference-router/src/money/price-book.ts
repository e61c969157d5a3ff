import { Inject, Injectable, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common';
import { ApiError, billingUnavailable, HealthRegistry, RUNTIME, type Runtime } from '@nebo/service-kit';
import type { Subscription } from '@nebo/bus';
import type { PriceInfo } from '@nebo/contracts';
import { Catalogue } from '../catalogue/catalogue.js';
import { type ModelPrices, priceId, priceKinds } from '../catalogue/model.js';
import type { Tariff } from '../completions/cost.js';
import { hears } from '../events.js';
import { Billing } from './billing.js';
import { Clock } from './clock.js';

/** A price may be used for this long after it was read; milliseconds. */
const keepFor = 60_000;
/** From this age on it is read anew in the background. */
const refreshAfter = 30_000;
const unit = 'million tokens';

/**
 * Prices of the models as identity-billing has them. The operator's file becomes new versions there before any price is
 * used, and models without a price get their sample. Prices that cannot be read are 503: never 402, never free.
 */
@Injectable()
export class PriceBook implements OnApplicationBootstrap, OnModuleDestroy {
  private tariffs = new Map<string, Tariff>();
  private readAt = -Infinity;
  private published = false;
  private running: Promise<void> | undefined;
  private retry: NodeJS.Timeout | undefined;
  private subscription: Subscription | undefined;
  private stopped = false;

  constructor(
    private readonly billing: Billing,
    private readonly catalogue: Catalogue,
    private readonly clock: Clock,
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'bus' | 'log'>,
    health: HealthRegistry,
  ) {
    // Answers need prices, but the catalogue and /healthz do not: shown, not required.
    health.add('prices', () => ({
      ok: this.isFresh(),
      required: false,
      detail: this.isFresh() ? 'read' : 'not read yet',
    }));
  }

  /** Reads prices in the background until identity-billing answers; it may start later than this service. */
  async onApplicationBootstrap(): Promise<void> {
    this.tryUntilRead(250);
    this.subscription = await this.runtime.bus.subscribeAll(hears.priceChanged.subject, () => this.reread());
  }

  async onModuleDestroy(): Promise<void> {
    this.stopped = true;
    clearTimeout(this.retry);
    await this.subscription?.close();
  }

  /**
   * The prices of a model now, with the version that a request keeps to its end.
   * @throws ApiError 503 `billing_unavailable` when they cannot be read, `tariff_unavailable` when there are none
   */
  async of(model: string): Promise<Tariff> {
    const age = this.clock.now() - this.readAt;
    if (age > keepFor) {
      await this.read().catch((cause: unknown) => {
        throw billingUnavailable(cause);
      });
    } else if (age > refreshAfter) {
      this.reread();
    }
    const tariff = this.tariffs.get(model);
    if (!tariff) {
      const words = `the price of ${model} could not be read; nothing was charged, try again`;
      throw new ApiError(503, 'tariff_unavailable', words, { headers: { 'retry-after': '5' } });
    }
    return tariff;
  }

  /** Reads once more; what is being read may have been asked for before the change. */
  private reread(): void {
    const before = this.running?.catch(() => undefined) ?? Promise.resolve();
    before
      .then(() => this.read())
      .catch((err: unknown) => this.runtime.log.warn({ err }, 'prices could not be read anew'));
  }

  private isFresh(): boolean {
    return this.clock.now() - this.readAt <= keepFor;
  }

  private tryUntilRead(wait: number): void {
    this.read().catch((err: unknown) => {
      if (this.stopped) return;
      this.runtime.log.debug({ err }, 'prices could not be read yet');
      this.retry = setTimeout(() => this.tryUntilRead(Math.min(wait * 2, 5_000)), wait).unref();
    });
  }

  private read(): Promise<void> {
    this.running ??= this.readNow().finally(() => (this.running = undefined));
    return this.running;
  }

  private async readNow(): Promise<void> {
    let prices = await this.billing.prices();
    if (!this.published) {
      const wanted = this.toPublish(prices);
      if (wanted.length > 0) {
        await this.billing.setPrices({ prices: wanted });
        this.runtime.log.info({ prices: wanted.map(({ id }) => id) }, 'model prices set');
        prices = await this.billing.prices();
      }
      this.published = true;
    }
    this.tariffs = tariffsOf(prices, this.catalogue);
    this.readAt = this.clock.now();
  }

  /** What the operator's file says, and samples of models that have no price at all. */
  private toPublish(present: readonly PriceInfo[]): { id: string; amount: string; unit: string }[] {
    const known = new Map(present.map((price) => [price.id, price.amount]));
    const wanted: { id: string; amount: string; unit: string }[] = [];
    for (const { model } of this.catalogue.all) {
      const own: Partial<ModelPrices> = this.catalogue.priceOverrides.get(model.id) ?? {};
      for (const kind of priceKinds) {
        const id = priceId(model.id, kind);
        const amount =
          own[kind]?.toString() ?? (known.has(id) ? undefined : model.samplePrices[kind].toString());
        if (amount !== undefined && known.get(id) !== amount) wanted.push({ id, amount, unit });
      }
    }
    return wanted;
  }
}

function tariffsOf(prices: readonly PriceInfo[], catalogue: Catalogue): Map<string, Tariff> {
  const byId = new Map(prices.map((price) => [price.id, price]));
  const tariffs = new Map<string, Tariff>();
  for (const { model } of catalogue.all) {
    const found = priceKinds.map((kind) => byId.get(priceId(model.id, kind)));
    const [input, cacheRead, output] = found;
    if (!input || !cacheRead || !output) continue;
    tariffs.set(model.id, {
      input: BigInt(input.amount),
      cache_read: BigInt(cacheRead.amount),
      output: BigInt(output.amount),
      version: Math.max(input.version, cacheRead.version, output.version),
      refs: [input, cacheRead, output].map(({ id, version }) => ({ id, version })),
    });
  }
  return tariffs;
}
