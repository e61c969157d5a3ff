import { Injectable } from '@nestjs/common';
import type { PriceInfo, PriceRef } from '@nebo/contracts';
import { billingUnavailable, Peers } from '@nebo/service-kit';

/** What an order costs, and from which versions of which prices that was made. */
export interface Quote {
  /** 10⁻⁹ rubles. */
  amount: bigint;
  prices: PriceRef[];
}

/** What is charged for a machine. */
export interface Priced {
  plan: { name: string; disk_gb: number };
  disk_gb: number;
  backup_count: number;
}

/** Prices of machines, from the table of identity-billing. Asked for at each order: a price must never be an old one. */
@Injectable()
export class Prices {
  constructor(private readonly peers: Peers) {}

  /** The prices in force whose ids begin so. @throws ApiError 503 when they cannot be read */
  async read(prefix: string): Promise<Map<string, PriceInfo>> {
    try {
      const prices = await this.peers.call<PriceInfo[]>(
        'identity-billing',
        `/internal/v1/prices?prefix=${encodeURIComponent(prefix)}`,
        { account: null },
      );
      return new Map(prices.map((price) => [price.id, price]));
    } catch (error) {
      throw billingUnavailable(error);
    }
  }

  /**
   * A prepaid period. A month of the table is a calendar month in UTC; days are that month's share, rounded up once.
   * @throws ApiError 503 `billing_unavailable` when a price is missing or cannot be read
   */
  async period(machine: Priced, period: { months: number } | { days: number }, from: Date): Promise<Quote> {
    const parts: { id: string; count: number }[] = [{ id: `vm.${machine.plan.name}.month`, count: 1 }];
    const extra = machine.disk_gb - machine.plan.disk_gb;
    if (extra > 0) parts.push({ id: 'disk.gb.month', count: extra });
    if (machine.backup_count > 0) parts.push({ id: 'backup.slot.month', count: machine.backup_count });
    const used = await Promise.all(
      parts.map(async ({ id, count }) => {
        const price = (await this.read(id)).get(id);
        if (!price) throw billingUnavailable(new Error(`there is no price ${id}`));
        return { price, count };
      }),
    );
    const month = used.reduce((sum, { price, count }) => sum + BigInt(price.amount) * BigInt(count), 0n);
    return {
      amount: 'months' in period ? month * BigInt(period.months) : shareOfDays(month, period.days, from),
      prices: used.map(({ price: { id, version } }) => ({ id, version })),
    };
  }
}

/** Days at a price per calendar month: each day costs its month's share; the exact sum is rounded up once. */
export function shareOfDays(month: bigint, days: number, from: Date): bigint {
  // The days by the length of their month; at most four lengths.
  const byLength = new Map<number, number>();
  for (let day = 0; day < days; day += 1) {
    const at = new Date(from.getTime() + day * 86_400_000);
    const length = daysOfMonth(at.getUTCFullYear(), at.getUTCMonth());
    byLength.set(length, (byLength.get(length) ?? 0) + 1);
  }
  // One denominator for 28, 29, 30 and 31 days.
  const whole = 28n * 29n * 30n * 31n;
  let sum = 0n;
  for (const [length, count] of byLength) sum += (month * BigInt(count) * whole) / BigInt(length);
  return (sum + whole - 1n) / whole;
}

/** The end of a period that begins at `from`; 31 January and a month end on the last day of February. */
export function periodEnd(from: Date, period: { months: number } | { days: number }): Date {
  if ('days' in period) return new Date(from.getTime() + period.days * 86_400_000);
  const month = from.getUTCMonth() + period.months;
  const day = Math.min(from.getUTCDate(), daysOfMonth(from.getUTCFullYear(), month));
  const end = new Date(from);
  end.setUTCDate(1);
  end.setUTCMonth(month);
  end.setUTCDate(day);
  return end;
}

const daysOfMonth = (year: number, month: number) => new Date(Date.UTC(year, month + 1, 0)).getUTCDate();
