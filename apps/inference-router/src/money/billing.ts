import { Injectable } from '@nestjs/common';
import type {
  CaptureRequest,
  PriceInfo,
  PricesSetRequest,
  Reservation,
  ReserveRequest,
  VoidRequest,
} from '@nebo/contracts';
import { Peers } from '@nebo/service-kit';

const service = 'identity-billing';

/** The operations of identity-billing that a request needs (docs: libs/contracts/src/internal/money.ts). */
@Injectable()
export class Billing {
  constructor(private readonly peers: Peers) {}

  reserve(request: ReserveRequest): Promise<Reservation> {
    return this.peers.call(service, '/internal/v1/money/reserve', {
      account: request.account_id,
      body: request,
    });
  }

  capture(request: CaptureRequest): Promise<Reservation> {
    return this.peers.call(service, '/internal/v1/money/capture', {
      account: request.account_id,
      body: request,
    });
  }

  /** `void` in the contract. */
  giveBack(request: VoidRequest): Promise<Reservation> {
    return this.peers.call(service, '/internal/v1/money/void', {
      account: request.account_id,
      body: request,
    });
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
}
