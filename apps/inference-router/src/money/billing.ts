import { Injectable } from '@nestjs/common';
import type {
  PriceInfo,
  PricesSetRequest,
  SliceOpenAnswer,
  SliceOpenRequest,
  SliceRenewAnswer,
  SliceRenewRequest,
  SliceReturnAnswer,
  SliceReturnRequest,
  SliceSettleAnswer,
  SliceSettleRequest,
  SliceTakeAnswer,
  SliceTakeRequest,
} from '@nebo/contracts';
import { Peers } from '@nebo/service-kit';

const service = 'identity-billing';

/** The operations of identity-billing that this service needs (docs: libs/contracts/src/internal/slices.ts, money.ts). */
@Injectable()
export class Billing {
  constructor(private readonly peers: Peers) {}

  open(request: SliceOpenRequest): Promise<SliceOpenAnswer> {
    return this.slices('open', null, request);
  }

  take(request: SliceTakeRequest): Promise<SliceTakeAnswer> {
    return this.slices('take', request.account_id, request);
  }

  renew(request: SliceRenewRequest): Promise<SliceRenewAnswer> {
    return this.slices('renew', null, request);
  }

  /** `return` in the contract. */
  giveBack(request: SliceReturnRequest): Promise<SliceReturnAnswer> {
    return this.slices('return', null, request);
  }

  settle(request: SliceSettleRequest): Promise<SliceSettleAnswer> {
    return this.slices('settle', null, request);
  }

  /** Present prices of all models. */
  async prices(): Promise<PriceInfo[]> {
    const answer = await this.peers.call<PriceInfo[] | { prices: PriceInfo[] }>(
      service,
      '/internal/v1/prices?prefix=model.',
      { account: null },
    );
    return Array.isArray(answer) ? answer : answer.prices;
  }

  setPrices(request: PricesSetRequest): Promise<unknown> {
    return this.peers.call(service, '/internal/v1/prices', { method: 'PUT', account: null, body: request });
  }

  private slices<T>(name: string, account: string | null, body: unknown): Promise<T> {
    return this.peers.call(service, `/internal/v1/slices/${name}`, { account, body });
  }
}
