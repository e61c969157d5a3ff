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

/** What a machine costs that is billed by the second, 10⁻⁹ rubles. */
export interface HourlyQuote {
  /** The plan's. */
  amount_per_hour: bigint;
  /** That of disk beyond the plan: its price is a month's. */
  amount_per_month: bigint;
  /** Both for an hour, rounded up. */
  first_hour: bigint;
  prices: PriceRef[];
}

/** A period that is paid in advance. */
export type Period = { months: number } | { days: number };

/**
 * Prices of machines, from the table of identity-billing. A price must never be an old one: it is asked for each time, or known
 * from before and checked by whoever reserves the money (`ReserveRequest.project_id`).
 */
@Injectable()
export class Prices {
  private known = new Map<string, PriceInfo>();

  constructor(private readonly peers: Peers) {}

  /** Of what is known from before somebody said that it is not in force any more. */
  forget(): void {
    this.known = new Map();
  }

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
   * @param checked a price known from before will do, here and below: its version is checked when the money is reserved
   * @throws ApiError 503 `billing_unavailable` when a price is missing or cannot be read
   */
  async period(machine: Priced, period: Period, from: Date, checked = false): Promise<Quote> {
    const { amount: month, prices } = await this.month(machine, checked);
    return { amount: ofPeriod(month, period, from), prices };
  }

  /** A calendar month of a machine. @throws ApiError 503 `billing_unavailable` */
  month(machine: Priced, checked = false): Promise<Quote> {
    const parts = [
      [`vm.${machine.plan.name}.month`, 1],
      ['disk.gb.month', extraDisk(machine)],
      ['backup.slot.month', machine.backup_count],
    ] as const;
    return this.sum(parts, checked);
  }

  /** A machine that is billed by the second. @throws ApiError 503 `billing_unavailable` */
  async hourly(machine: Priced, at: Date, checked = false): Promise<HourlyQuote> {
    const [hour, disk] = await Promise.all([
      this.sum([[`vm.${machine.plan.name}.hour`, 1]], checked),
      this.sum([['disk.gb.month', extraDisk(machine)]], checked),
    ]);
    const hours = BigInt(24 * daysOfMonth(at.getUTCFullYear(), at.getUTCMonth()));
    return {
      amount_per_hour: hour.amount,
      amount_per_month: disk.amount,
      first_hour: hour.amount + (disk.amount + hours - 1n) / hours,
      prices: [...hour.prices, ...disk.prices],
    };
  }

  /** A month of so many floating IPs. @throws ApiError 503 `billing_unavailable` */
  floatingIps(count: number, checked = false): Promise<Quote> {
    return this.sum([['floating_ip.month', count]], checked);
  }

  /** So many of each price; what is not needed is not asked for. */
  private async sum(
    parts: readonly (readonly [id: string, count: number])[],
    checked: boolean,
  ): Promise<Quote> {
    const used = await Promise.all(
      parts
        .filter(([, count]) => count > 0)
        .map(async ([id, count]) => {
          const price = (checked ? this.known.get(id) : undefined) ?? (await this.read(id)).get(id);
          if (!price) throw billingUnavailable(new Error(`there is no price ${id}`));
          if (checked) this.known.set(id, price);
          return { price, count };
        }),
    );
    return {
      amount: used.reduce((sum, { price, count }) => sum + BigInt(price.amount) * BigInt(count), 0n),
      prices: used.map(({ price: { id, version } }) => ({ id, version })),
    };
  }
}

const extraDisk = ({ disk_gb, plan }: Priced) => Math.max(0, disk_gb - plan.disk_gb);

/** What a period costs at a price per calendar month. */
export const ofPeriod = (month: bigint, period: Period, from: Date): bigint =>
  'months' in period ? month * BigInt(period.months) : shareOfDays(month, period.days, from);

/**
 * The rest of a period at its whole price, rounded up: what is left of its time. Nothing once it is over; all of it before it
 * has begun.
 */
export function restOf(whole: bigint, from: Date, until: Date, now: Date): bigint {
  const total = BigInt(until.getTime() - from.getTime());
  const left = BigInt(until.getTime() - Math.max(now.getTime(), from.getTime()));
  return left <= 0n || total <= 0n ? 0n : (whole * left + total - 1n) / total;
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
export function periodEnd(from: Date, period: Period): Date {
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
