import type { FactoryProvider, OnApplicationBootstrap, OnModuleDestroy, Type } from '@nestjs/common';
import { countStates, type Lifecycle, LifecycleWorker, type StepInfo } from '@nebo/lifecycle';
import { Database } from '@nebo/persistence';
import { type Metrics, withSpan } from '@nebo/telemetry';
import { HealthRegistry } from './health.js';
import { SERVICE_NAME } from './peers.js';
import { METRICS, RUNTIME, type Runtime } from './runtime.js';

/** Takes the steps of all that lives in a service, with its application. */
export class Lives implements OnApplicationBootstrap, OnModuleDestroy {
  private worker: LifecycleWorker | undefined;
  private trouble: string | null = null;
  /** States that `/metrics` has shown: one that empties shows 0 from then on. */
  private readonly shown = new Map<string, { kind: string; state: string }>();
  private endRefresh: (() => void) | undefined;

  /** The provider for a service with these lifecycles, which its module provides. */
  static of(...lifecycles: Type<Lifecycle<unknown>>[]): FactoryProvider<Lives> {
    return {
      provide: Lives,
      useFactory: (database, runtime, metrics, health, service, ...all: Lifecycle<unknown>[]) =>
        new Lives(database, all, runtime, metrics, health, service),
      inject: [Database, RUNTIME, METRICS, HealthRegistry, SERVICE_NAME, ...lifecycles],
    };
  }

  private constructor(
    private readonly database: Database,
    private readonly lifecycles: readonly Lifecycle<unknown>[],
    private readonly runtime: Pick<Runtime, 'log' | 'figures'>,
    private readonly metrics: Metrics,
    health: HealthRegistry,
    private readonly service: string,
  ) {
    health.add('lifecycles', () => ({
      ok: this.worker !== undefined,
      required: true,
      ...(this.trouble === null ? {} : { detail: this.trouble }),
    }));
  }

  async onApplicationBootstrap(): Promise<void> {
    const { log } = this.runtime;
    // Made here, not before: the contract is generated from services that never connect.
    this.worker = new LifecycleWorker(this.database, this.lifecycles, {
      observer: {
        around: (step, run) =>
          withSpan(`step ${step.kind}.${step.state}`, () => ({ 'nebo.id': step.id }), run),
        missed: (step, reason) => {
          this.metrics.missedDeadline(step.kind, step.state);
          log.warn({ ...idsOf(step), reason }, 'deadline missed');
        },
        threw: (step, err, attempt, retryMs) =>
          log.warn({ ...idsOf(step), err, attempt, retry_ms: retryMs }, 'step failed'),
        leaseLost: (step) => log.warn(idsOf(step), 'lease lost'),
        trouble: (err) => {
          this.trouble = err.message;
          this.metrics.failure('lifecycles');
          log.warn({ err }, `lifecycles of ${this.service}`);
        },
      },
    });
    await this.worker.start();
    this.endRefresh = this.runtime.figures.beforeScrape(() => this.count());
  }

  /** How many things are in which state, for `/metrics`. */
  private async count(): Promise<void> {
    const counted = await countStates(this.database);
    for (const { kind, state } of this.shown.values()) this.metrics.lifecycles(kind, state, 0, 0);
    for (const { kind, state, count, failing } of counted) {
      this.shown.set(`${kind} ${state}`, { kind, state });
      this.metrics.lifecycles(kind, state, count, failing);
    }
  }

  async onModuleDestroy(): Promise<void> {
    this.endRefresh?.();
    await this.worker?.stop();
  }
}

const idsOf = ({ kind, id, state }: StepInfo) => ({ kind, id, state });
