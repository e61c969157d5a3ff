import { randomUUID } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import type { PriceInfo, PriceRef, ReserveRequest, VoidRequest } from '@nebo/contracts';
import { ApiError, billingUnavailable, Peers } from '@nebo/service-kit';

/** Size and number of permanently reserved replicas. */
export interface Reserved {
  replica_count: number;
  vcpu: number;
  memory_mb: number;
}

/** What permanent replicas cost, and whether an account can pay for them. */
@Injectable()
export class ReplicaMoney {
  constructor(private readonly peers: Peers) {}

  /**
   * Price of permanent replicas, 10⁻⁹ rubles a month: vCPUs and memory in GiB of each (control API, part 8), rounded up once.
   * @throws ApiError 503 when the prices cannot be read
   */
  async perMonth({
    replica_count,
    vcpu,
    memory_mb,
  }: Reserved): Promise<{ amount: bigint; prices: PriceRef[] }> {
    const prices = await this.peers.call<PriceInfo[]>(
      'identity-billing',
      '/internal/v1/prices?prefix=replica.',
      { account: null },
    );
    const [cpu, memory] = ['replica.vcpu.month', 'replica.memory_gb.month'].map((id) => {
      const found = prices.find((candidate) => candidate.id === id);
      if (!found) throw billingUnavailable(new Error(`there is no price ${id}`));
      return found;
    }) as [PriceInfo, PriceInfo];
    const one = BigInt(cpu.amount) * BigInt(vcpu) * 1024n + BigInt(memory.amount) * BigInt(memory_mb);
    return {
      amount: (one * BigInt(replica_count) + 1_023n) / 1_024n,
      prices: [cpu, memory].map(({ id, version }) => ({ id, version })),
    };
  }

  /**
   * An order of permanent replicas needs the price of their first hour as available (interfaces.md, 5). The money is asked
   * for and given back at once: the span charges it hour by hour while the replicas serve.
   * @throws ApiError 402 with billing's reason, 503 `billing_unavailable` when the balance cannot be read
   */
  async requireFirstHour(account: string, reserved: Reserved): Promise<void> {
    const operation_id = randomUUID();
    try {
      const { amount: month, prices } = await this.perMonth(reserved);
      const hours = BigInt(hoursOfMonth(new Date()));
      const request: ReserveRequest = {
        operation_id,
        account_id: account,
        kind: 'control',
        amount: ((month + hours - 1n) / hours).toString(),
        description: 'first hour of permanent replicas',
        prices,
        expires_in_seconds: 60,
      };
      await this.peers.call('identity-billing', '/internal/v1/money/reserve', {
        account,
        body: request,
        operationId: operation_id,
      });
    } catch (error) {
      if (error instanceof ApiError && error.status === 402) throw error;
      throw billingUnavailable(error);
    }
    const back: VoidRequest = { operation_id, account_id: account };
    // Lost, it expires by itself in a minute.
    await this.peers
      .call('identity-billing', '/internal/v1/money/void', { account, body: back, operationId: operation_id })
      .catch(() => undefined);
  }
}

/** Hours of the calendar month in UTC: a month is a calendar month (interfaces.md, 6). */
export function hoursOfMonth(at: Date): number {
  return 24 * new Date(Date.UTC(at.getUTCFullYear(), at.getUTCMonth() + 1, 0)).getUTCDate();
}
