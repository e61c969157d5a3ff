import { Inject, Injectable, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common';
import { KafkaUsageProducer, type UsageRecord, UsageRelay, type UsageSource } from '@nebo/bus';
import { Database } from '@nebo/persistence';
import { HealthRegistry, RUNTIME, type Runtime } from '@nebo/service-kit';
import { Settings } from '../settings.js';

interface UsageRow {
  id: string;
  account_id: string;
  operation_id: string;
  amount: bigint;
  facts: Record<string, unknown>;
  created_at: Date;
}

/** Usage records that wait for the export. */
@Injectable()
export class UsageTable implements UsageSource {
  constructor(private readonly database: Database) {}

  /** The oldest records that are not marked as sent. */
  async fetchUnsent(limit: number): Promise<UsageRecord[]> {
    const rows = await this.database.transaction((tx) =>
      tx.query<UsageRow>(
        `select id, account_id, operation_id, amount, facts, created_at from usage_record
         where sent_at is null order by seq limit $1::integer`,
        [limit],
      ),
    );
    return rows.map((row) => ({
      id: row.id,
      account: row.account_id,
      payload: {
        ...row.facts,
        operation_id: row.operation_id,
        amount: row.amount.toString(),
        time: row.created_at.toISOString(),
      },
    }));
  }

  async markSent(ids: readonly string[]): Promise<void> {
    await this.database.transaction((tx) =>
      tx.query('update usage_record set sent_at = now() where id = any($1::uuid[])', [ids]),
    );
  }
}

/** Exports usage to Kafka when brokers are configured; money never depends on it. */
@Injectable()
export class UsageExport implements OnApplicationBootstrap, OnModuleDestroy {
  private relay: UsageRelay | undefined;

  constructor(
    private readonly table: UsageTable,
    private readonly settings: Settings,
    @Inject(RUNTIME) private readonly runtime: Runtime,
    private readonly health: HealthRegistry,
  ) {}

  onApplicationBootstrap(): void {
    const brokers = this.settings.kafkaBrokers;
    if (brokers.length === 0) return;
    const relay = new UsageRelay(this.table, new KafkaUsageProducer({ brokers }), {
      onError: (err, about) => this.runtime.log.warn({ err, about }, 'usage export'),
    });
    this.health.add('kafka', () => {
      const { connected, detail, sent } = relay.status();
      return { ok: connected, required: false, detail: `${detail}, ${sent} sent` };
    });
    relay.start();
    this.relay = relay;
  }

  async onModuleDestroy(): Promise<void> {
    await this.relay?.stop();
  }
}
