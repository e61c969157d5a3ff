import { Inject, Injectable, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common';
import { LifecycleWorker } from '@nebo/lifecycle';
import { Database } from '@nebo/persistence';
import { HealthRegistry, RUNTIME, type Runtime } from '@nebo/service-kit';
import { BuildLifecycle } from '../builds/build.lifecycle.js';
import { RolloutLifecycle } from '../rollouts/rollout.lifecycle.js';
import { SpanLifecycle } from '../rollouts/span.lifecycle.js';

/** Takes the steps of all that lives here, with the application. */
@Injectable()
export class Lives implements OnApplicationBootstrap, OnModuleDestroy {
  private worker: LifecycleWorker | undefined;
  private trouble: string | null = null;

  constructor(
    private readonly database: Database,
    private readonly builds: BuildLifecycle,
    private readonly rollouts: RolloutLifecycle,
    private readonly spans: SpanLifecycle,
    @Inject(RUNTIME) private readonly runtime: Runtime,
    health: HealthRegistry,
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
    this.worker = new LifecycleWorker(this.database, [this.builds, this.rollouts, this.spans], {
      observer: {
        missed: (step, reason) => log.warn({ ...idsOf(step), reason }, 'deadline missed'),
        threw: (step, err, attempt, retryMs) =>
          log.warn({ ...idsOf(step), err, attempt, retry_ms: retryMs }, 'step failed'),
        leaseLost: (step) => log.warn(idsOf(step), 'lease lost'),
        trouble: (err) => {
          this.trouble = err.message;
          log.warn({ err }, 'lifecycles of apps-builder');
        },
      },
    });
    await this.worker.start();
  }

  async onModuleDestroy(): Promise<void> {
    await this.worker?.stop();
  }
}

const idsOf = ({ kind, id, state }: { kind: string; id: string; state: string }) => ({ kind, id, state });
