import { Inject, Injectable } from '@nestjs/common';
import type { ReconcileReport } from '@nebo/contracts';
import { Database } from '@nebo/persistence';
import { HealthRegistry, RUNTIME, type Runtime } from '@nebo/service-kit';
import { BillingMetrics } from '../observe/billing-metrics.js';

interface DifferenceRow {
  account_id: string;
  subject: string;
  recorded: string;
  computed: string;
}

/**
 * Recomputes every guarded row from the ledger and compares. A difference is shouted (log, health, metric) and never
 * mended: it is an error in the code or a hand in the database, and a person must see it.
 */
@Injectable()
export class ReconcileService {
  private last: ReconcileReport | undefined;

  constructor(
    private readonly database: Database,
    private readonly metrics: BillingMetrics,
    @Inject(RUNTIME) private readonly runtime: Runtime,
    health: HealthRegistry,
  ) {
    health.add('ledger', () => {
      const { last } = this;
      if (!last) return { ok: true, required: false, detail: 'not reconciled yet' };
      const detail = last.ok
        ? `reconciled at ${last.at}`
        : `${last.differences.length} differences at ${last.at}`;
      // Shown, not required: taking the door away would not bring a ruble back.
      return { ok: last.ok, required: false, detail };
    });
  }

  /** Compares now. */
  async run(): Promise<ReconcileReport> {
    const rows = await this.database.query<DifferenceRow>('select * from ledger_reconcile()');
    const differences = rows.map(({ account_id, subject, recorded, computed }) => ({
      account_id,
      subject,
      recorded,
      computed,
    }));
    this.last = { ok: differences.length === 0, at: new Date().toISOString(), differences };
    this.metrics.ledgerDifferences(differences.length);
    this.metrics.reconciledAt(Date.now() / 1_000);
    if (differences.length > 0) {
      this.runtime.log.error(
        { differences: differences.slice(0, 20), count: differences.length },
        'the ledger does not add up',
      );
    }
    return this.last;
  }
}
