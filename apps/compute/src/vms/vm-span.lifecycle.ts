import { Injectable } from '@nestjs/common';
import type { PriceRef, SpanCloseRequest, SpanOpenRequest } from '@nebo/contracts';
import { Lifecycle, type Outcome, State } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';
import { Peers } from '@nebo/service-kit';
import { VmMoney } from './vm-money.js';

interface Span {
  id: string;
  account_id: string;
  vm_id: string;
  description: string;
  amount_per_hour: string;
  amount_per_month: string;
  prices: PriceRef[];
  started_at: Date;
  ended_at: Date | null;
}

/**
 * The billing span of a machine that is billed by the second: opening → open → closing → end. It ends when the deletion is
 * asked for, whatever the region does after that. Each call names the span, so a repeat after a lost answer charges nothing
 * twice; billing that is away is asked again until it answers.
 */
@Injectable()
export class VmSpanLifecycle extends Lifecycle<Span> {
  override readonly kind = 'vm_span';

  constructor(
    private readonly peers: Peers,
    private readonly money: VmMoney,
  ) {
    super();
  }

  override async load(tx: Sql, id: string): Promise<Span | null> {
    const [row] = await tx.query<Span>(
      `select id, account_id, vm_id, description, amount_per_hour::text as amount_per_hour,
         amount_per_month::text as amount_per_month, prices, started_at, ended_at from vm_span where id = $1::uuid`,
      [id],
    );
    return row ?? null;
  }

  /** The order's hold of the first hour is given back once the span stands. */
  @State()
  async opening(span: Span): Promise<Outcome> {
    const request: SpanOpenRequest = {
      operation_id: span.id,
      account_id: span.account_id,
      resource: `vm:${span.vm_id}`,
      amount_per_month: span.amount_per_month,
      amount_per_hour: span.amount_per_hour,
      started_at: span.started_at.toISOString(),
      description: span.description,
      prices: span.prices,
    };
    await this.say(span, 'span-open', request);
    // Lost, it expires by itself in a minute.
    await this.money.letGo({ id: span.vm_id, account_id: span.account_id }).catch(() => undefined);
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
      ended_at: (span.ended_at ?? new Date()).toISOString(),
    };
    await this.say(span, 'span-close', request);
    return this.end((tx) => tx.query('delete from vm_span where id = $1::uuid', [span.id]));
  }

  private async say({ id, account_id: account }: Span, name: string, body: object): Promise<void> {
    await this.peers.call('identity-billing', `/internal/v1/money/${name}`, {
      account,
      body,
      operationId: `${name}:${id}`,
    });
  }
}
