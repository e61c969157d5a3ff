import { Injectable } from '@nestjs/common';
import type { SpanCloseRequest, SpanOpenRequest } from '@nebo/contracts';
import { Lifecycle, type Outcome, State } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import { Peers } from '@nebo/service-kit';
import { ReplicaMoney } from './money.js';

/** A billing span of an app's permanent replicas. */
export interface Span {
  id: string;
  account_id: string;
  app_id: string;
  replica_count: number;
  vcpu: number;
  memory_mb: number;
  started_at: Date;
  ended_at: Date | null;
  amount_per_month: string | null;
}

/**
 * Life of a billing span: opening → open → closing → end. Each call names the span, so a repeat after a lost answer charges
 * nothing twice; billing that is away is asked again until it answers.
 */
@Injectable()
export class SpanLifecycle extends Lifecycle<Span> {
  override readonly kind = 'span';

  constructor(
    private readonly database: Database,
    private readonly peers: Peers,
    private readonly money: ReplicaMoney,
  ) {
    super();
  }

  override async load(tx: Sql, id: string): Promise<Span | null> {
    const [row] = await tx.query<Span>(
      `select id, account_id, app_id, replica_count, vcpu, memory_mb, started_at, ended_at, amount_per_month::text as amount_per_month
       from span where id = $1::uuid`,
      [id],
    );
    return row ?? null;
  }

  @State()
  async opening(span: Span): Promise<Outcome> {
    const request: SpanOpenRequest = {
      operation_id: span.id,
      account_id: span.account_id,
      resource: `app:${span.app_id}`,
      amount_per_month: span.amount_per_month ?? (await this.price(span)),
      started_at: span.started_at.toISOString(),
      description: `${span.replica_count} permanent replica(s) of ${span.vcpu} vCPU and ${span.memory_mb} MB`,
    };
    await this.peers.call('identity-billing', '/internal/v1/money/span-open', {
      account: span.account_id,
      body: request,
      operationId: span.id,
    });
    return this.go('open');
  }

  @State()
  open(span: Span): Outcome {
    return span.ended_at === null ? this.wait() : this.go('closing');
  }

  @State()
  async closing(span: Span): Promise<Outcome> {
    const request: SpanCloseRequest = {
      operation_id: span.id,
      account_id: span.account_id,
      // Not before its beginning, also when the clock was set back between: billing would refuse that, and charge for ever.
      ended_at: new Date(
        Math.max(span.started_at.getTime(), (span.ended_at ?? new Date()).getTime()),
      ).toISOString(),
    };
    await this.peers.call('identity-billing', '/internal/v1/money/span-close', {
      account: span.account_id,
      body: request,
      operationId: span.id,
    });
    return this.end();
  }

  /** The price of the moment, kept before it is used: a repeated call must say the same. */
  private async price(span: Span): Promise<string> {
    const { amount } = await this.money.perMonth(span);
    const rows = await this.database.transaction((tx) =>
      tx.query<{ amount: string }>(
        'update span set amount_per_month = coalesce(amount_per_month, $2::numeric) where id = $1::uuid returning amount_per_month::text as amount',
        [span.id, amount.toString()],
      ),
    );
    return rows[0]?.amount ?? amount.toString();
  }
}
