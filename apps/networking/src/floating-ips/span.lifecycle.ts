import { Injectable } from '@nestjs/common';
import type { SpanCloseRequest, SpanOpenRequest, VoidRequest } from '@nebo/contracts';
import { Lifecycle, type Outcome, State } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';
import { Peers } from '@nebo/service-kit';

/** The billing span of a floating IP. */
export interface Span {
  id: string;
  account_id: string;
  fip_id: string;
  address: string;
  reservation_id: string;
  amount_per_month: string;
  price_version: number;
  started_at: Date;
  ended_at: Date | null;
}

/**
 * Life of a billing span: opening → open → closing → end. Each call names the span, so a repeat after a lost answer charges
 * nothing twice; billing that is away is asked again until it answers.
 */
@Injectable()
export class SpanLifecycle extends Lifecycle<Span> {
  override readonly kind = 'span';

  constructor(private readonly peers: Peers) {
    super();
  }

  override async load(tx: Sql, id: string): Promise<Span | null> {
    const [row] = await tx.query<Span>(
      `select id, account_id, fip_id, host(address) as address, reservation_id, amount_per_month::text as amount_per_month,
         price_version, started_at, ended_at from span where id = $1::uuid`,
      [id],
    );
    return row ?? null;
  }

  /** The order's hold is given back once the span stands: between the two the month is held, not charged twice. */
  @State()
  async opening(span: Span): Promise<Outcome> {
    const open: SpanOpenRequest = {
      operation_id: span.id,
      account_id: span.account_id,
      resource: `floating_ip:${span.fip_id}`,
      amount_per_month: span.amount_per_month,
      started_at: span.started_at.toISOString(),
      description: `floating IP ${span.address}`,
      prices: [{ id: 'floating_ip.month', version: span.price_version }],
    };
    await this.say(span, 'span-open', span.id, open);
    const back: VoidRequest = { operation_id: span.reservation_id, account_id: span.account_id };
    // Lost, or not known any more: a hold expires by itself in a minute, and must not keep the span from its life.
    await this.say(span, 'void', span.reservation_id, back).catch(() => undefined);
    return this.go('open');
  }

  @State()
  open(span: Span): Outcome {
    return span.ended_at === null ? this.wait() : this.go('closing');
  }

  @State()
  async closing(span: Span): Promise<Outcome> {
    const close: SpanCloseRequest = {
      operation_id: span.id,
      account_id: span.account_id,
      // Not before its beginning, also when the clock was set back between: billing would refuse that, and charge for ever.
      ended_at: new Date(
        Math.max(span.started_at.getTime(), (span.ended_at ?? new Date()).getTime()),
      ).toISOString(),
    };
    await this.say(span, 'span-close', span.id, close);
    return this.end((tx) => tx.query('delete from span where id = $1::uuid', [span.id]));
  }

  private async say(
    { account_id: account }: Span,
    name: string,
    operationId: string,
    body: object,
  ): Promise<void> {
    await this.peers.call('identity-billing', `/internal/v1/money/${name}`, { account, body, operationId });
  }
}
