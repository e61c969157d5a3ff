import {
  Inject,
  Injectable,
  type OnApplicationBootstrap,
  type OnModuleDestroy,
  type OnModuleInit,
} from '@nestjs/common';
import { say, type Subscription } from '@nebo/bus';
import { Database } from '@nebo/persistence';
import { ApiError, RUNTIME, type Runtime } from '@nebo/service-kit';
import { hears, says } from '../events.js';
import { Catalogue } from './catalogue.js';

/** How long a replica that missed the hint may go on offering a withdrawn model. Milliseconds. */
const refreshEvery = 10_000;

/**
 * What the operator withdrew from sale (interfaces.md, 10): gone from the list and 404 for new requests, in every replica;
 * requests that run finish at the price of their admission, and history keeps the name.
 */
@Injectable()
export class ModelSales implements OnModuleInit, OnApplicationBootstrap, OnModuleDestroy {
  private subscription: Subscription | undefined;
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly database: Database,
    private readonly catalogue: Catalogue,
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'bus' | 'log'>,
  ) {}

  /** Before the first request: what is withdrawn must never be sold because of a restart. */
  async onModuleInit(): Promise<void> {
    await this.refresh();
  }

  async onApplicationBootstrap(): Promise<void> {
    const again = () =>
      this.refresh().catch((err: unknown) => this.runtime.log.warn({ err }, 'withdrawn models'));
    this.subscription = await this.runtime.bus.subscribeAll(hears.modelChanged.subject, again);
    this.timer = setInterval(() => void again(), refreshEvery).unref();
  }

  async onModuleDestroy(): Promise<void> {
    clearInterval(this.timer);
    await this.subscription?.close();
  }

  /**
   * Takes a model from sale, or offers it again; a repeat changes nothing.
   * @throws ApiError 404 `model_not_found` for one that the catalogue does not know
   */
  async set(model: string, offered: boolean): Promise<void> {
    if (!this.catalogue.knows(model))
      throw new ApiError(
        404,
        'model_not_found',
        `there is no model "${model.slice(0, 100)}" in the catalogue`,
      );
    await this.database.transaction(async (tx) => {
      const changed = offered
        ? await tx.query('delete from withdrawn_model where model_id = $1 returning 1', [model])
        : await tx.query(
            'insert into withdrawn_model (model_id) values ($1) on conflict do nothing returning 1',
            [model],
          );
      if (changed.length === 0) return;
      const action = offered ? 'model offer' : 'model withdraw';
      const line = {
        actor: 'operator',
        action,
        resource: `model:${model}`,
        project_id: null,
        details: {},
      };
      await say(tx, says.modelChanged({ model_id: model, offered }), says.auditWritten(line));
    });
    await this.refresh();
  }

  /** Since when each withdrawn model is off sale. */
  async withdrawnSince(): Promise<ReadonlyMap<string, Date>> {
    const rows = await this.database.query<{ model_id: string; withdrawn_at: Date }>(
      'select model_id, withdrawn_at from withdrawn_model',
    );
    return new Map(rows.map((row) => [row.model_id, row.withdrawn_at]));
  }

  private async refresh(): Promise<void> {
    this.catalogue.withdraw([...(await this.withdrawnSince()).keys()]);
  }
}
