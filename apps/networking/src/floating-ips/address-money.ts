import { randomUUID } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import type { PriceInfo, ReserveRequest, VoidRequest } from '@nebo/contracts';
import { ApiError, billingUnavailable, Peers } from '@nebo/service-kit';

/** A month of an address, found to be there and held for a minute. */
export interface MonthHeld {
  reservation_id: string;
  /** 10⁻⁹ rubles a month. */
  amount: string;
  price_version: number;
}

/** What an address costs, and whether an account can pay for it. */
@Injectable()
export class AddressMoney {
  constructor(private readonly peers: Peers) {}

  /**
   * An order needs the whole monthly price as available, though it is charged hour by hour (interfaces.md, 5). The money is
   * held until the address's span is open.
   * @throws ApiError 402 with billing's reason, 503 `billing_unavailable` when price or balance cannot be read
   */
  private async holdMonth(account: string): Promise<MonthHeld> {
    const reservation_id = randomUUID();
    try {
      const prices = await this.peers.call<PriceInfo[]>(
        'identity-billing',
        '/internal/v1/prices?prefix=floating_ip.',
        { account: null },
      );
      const price = prices.find(({ id }) => id === 'floating_ip.month');
      if (!price) throw new Error('there is no price floating_ip.month');
      const { id, amount, version } = price;
      const request: ReserveRequest = {
        operation_id: reservation_id,
        account_id: account,
        kind: 'control',
        amount,
        description: 'first month of a floating IP',
        prices: [{ id, version }],
        expires_in_seconds: 60,
      };
      await this.peers.call('identity-billing', '/internal/v1/money/reserve', {
        account,
        body: request,
        operationId: reservation_id,
      });
      return { reservation_id, amount, price_version: version };
    } catch (error) {
      if (error instanceof ApiError && error.status === 402) throw error;
      throw billingUnavailable(error);
    }
  }

  /**
   * Makes what is ordered with a month's price held; the money of an order that comes to nothing is given back at once.
   * @throws ApiError as `holdMonth`, and what `make` throws
   */
  async withMonth<T>(account: string, make: (money: MonthHeld) => Promise<T>): Promise<T> {
    const money = await this.holdMonth(account);
    try {
      return await make(money);
    } catch (error) {
      await this.giveBack(account, money);
      throw error;
    }
  }

  /** A hold whose return is lost expires in a minute. */
  private async giveBack(account: string, { reservation_id }: MonthHeld): Promise<void> {
    const request: VoidRequest = { operation_id: reservation_id, account_id: account };
    await this.peers
      .call('identity-billing', '/internal/v1/money/void', {
        account,
        body: request,
        operationId: reservation_id,
      })
      .catch(() => undefined);
  }
}
