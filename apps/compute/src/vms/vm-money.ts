import { Injectable } from '@nestjs/common';
import type { CaptureRequest, RefundRequest, ReserveRequest, VoidRequest } from '@nebo/contracts';
import { ApiError, billingUnavailable, notFound, Peers } from '@nebo/service-kit';
import type { Quote } from '../catalogue/prices.js';

/** Whose reservation it is: its operation id is the machine's id (interfaces.md, 5). */
export interface Ordered {
  id: string;
  account_id: string;
}

/** Money of machines: each call names the machine's reservation, so a repeat after a lost answer changes nothing. */
@Injectable()
export class VmMoney {
  constructor(private readonly peers: Peers) {}

  /**
   * @param project_id that of an order, which is checked too, as are the versions of the prices
   * @throws ApiError 402 with billing's reason, 503 `billing_unavailable` when the balance cannot be read; 404 and 409
   *   `project_busy` for the project, 409 `price_changed` for the prices
   */
  async reserve(
    { id, account_id }: Ordered,
    { amount, prices }: Quote,
    description: string,
    project_id?: string,
  ): Promise<void> {
    const request: ReserveRequest = {
      operation_id: id,
      account_id,
      kind: 'control',
      amount: amount.toString(),
      description,
      prices,
      expires_in_seconds: 60,
      ...(project_id === undefined ? {} : { project_id }),
    };
    try {
      await this.call('reserve', id, account_id, request);
    } catch (error) {
      if (error instanceof ApiError && error.status === 402) throw error;
      if (error instanceof ApiError && project_id !== undefined) {
        if (['project_busy', 'price_changed'].includes(error.code)) throw error;
        if (error.status === 404 && error.message.startsWith('project_id')) throw notFound();
      }
      throw billingUnavailable(error);
    }
  }

  /**
   * Charges the reservation.
   * @param amount 10⁻⁹ rubles, the rest is given back; all of it when absent
   * @returns why it cannot be charged any more, null when it is
   * @throws ApiError when billing is away: ask again
   */
  async capture({ id, account_id }: Ordered, amount?: string): Promise<string | null> {
    try {
      const request: CaptureRequest = {
        operation_id: id,
        account_id,
        ...(amount === undefined ? {} : { amount }),
      };
      await this.call('capture', id, account_id, request);
      return null;
    } catch (error) {
      if (error instanceof ApiError && [404, 409].includes(error.status))
        return 'The payment could not be completed in time; nothing was charged. Order it again.';
      throw error;
    }
  }

  /** Gives everything back, whether it was charged or only held. @throws ApiError when billing is away: ask again */
  async giveBack({ id, account_id }: Ordered, description: string): Promise<void> {
    const refund: RefundRequest = { operation_id: id, account_id, description };
    const held = await this.unless(['not_captured'], () => this.call('refund', id, account_id, refund));
    if (held) await this.letGo({ id, account_id });
  }

  /**
   * Gives back what is only held: what was charged stays charged, since the machine of an order whose commit was not
   * confirmed may stand.
   * @throws ApiError when billing is away, 409 `already_captured`
   */
  async letGo({ id, account_id }: Ordered): Promise<void> {
    const back: VoidRequest = { operation_id: id, account_id };
    await this.unless(['already_void', 'expired'], () => this.call('void', id, account_id, back));
  }

  /** @returns whether it was refused with one of the codes, or because there is no such reservation */
  private async unless(codes: readonly string[], call: () => Promise<unknown>): Promise<boolean> {
    try {
      await call();
      return false;
    } catch (error) {
      if (error instanceof ApiError && (error.status === 404 || codes.includes(error.code))) return true;
      throw error;
    }
  }

  private call(name: string, id: string, account: string, body: object): Promise<unknown> {
    return this.peers.call('identity-billing', `/internal/v1/money/${name}`, {
      account,
      body,
      operationId: `${name}:${id}`,
    });
  }
}
