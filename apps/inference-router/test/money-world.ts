import { randomUUID } from 'node:crypto';
import { ApiError, unavailable } from '@nebo/service-kit';
import { createMetrics } from '@nebo/telemetry';
import { pino } from 'pino';
import type { Billing } from '../src/money/billing.js';
import { Clock } from '../src/money/clock.js';
import { MoneyMetrics } from '../src/money/money-metrics.js';
import type { Hold } from '../src/money/purse.js';
import { Purses } from '../src/money/purses.js';
import { FakeSlices } from './fake-slices.js';

/** A clock that stands until it is moved. */
export class TestClock extends Clock {
  ms = 1_000_000;
  day = new Date('2026-11-21T12:00:00Z');

  override now(): number {
    return this.ms;
  }

  override date(): Date {
    return this.day;
  }

  override wait(): Promise<void> {
    return new Promise((resolve) => setImmediate(resolve));
  }
}

type Name = 'open' | 'take' | 'renew' | 'return' | 'settle';

/** One router's purses on slices in memory, without a service around them. */
export class MoneyWorld {
  readonly routerId = randomUUID();
  readonly metrics = new MoneyMetrics(createMetrics('test'));
  readonly log = pino({ level: process.env['NEBO_TEST_LOG'] ?? 'silent' });
  readonly purses: Purses;
  readonly billing: Billing;
  readonly calls: { name: Name; body: Record<string, unknown> }[] = [];
  /** Calls of these names fail before anything happens. */
  away = new Set<Name>();
  /** What happens around a call; tests put delays and lost answers here. */
  around: (name: Name, work: () => unknown) => Promise<unknown> = async (_, work) => work();

  constructor(
    readonly slices = new FakeSlices(),
    readonly clock = new TestClock(),
  ) {
    slices.now = () => clock.now();
    slices.month = () => clock.day.toISOString().slice(0, 7);
    this.billing = {
      open: (body: unknown) => this.call('open', body),
      take: (body: unknown) => this.call('take', body),
      renew: (body: unknown) => this.call('renew', body),
      giveBack: (body: unknown) => this.call('return', body),
      settle: (body: unknown) => this.call('settle', body),
    } as unknown as Billing;
    this.purses = new Purses(this.billing, clock, this.metrics, { log: this.log });
  }

  /** Begins a life of the router. */
  open(): this {
    const [, answer] = this.slices.call('open', { router_id: this.routerId } as never);
    this.purses.open({ router_id: this.routerId, epoch: (answer as { epoch: number }).epoch });
    return this;
  }

  /** Calls of a name so far. */
  count(name: Name): number {
    return this.calls.filter((call) => call.name === name).length;
  }

  /** Ends a hold with a charge that identity-billing takes at once. */
  async settle(hold: Hold, account: string, cost: bigint): Promise<void> {
    this.purses.end(hold, cost);
    if (cost === 0n) return;
    await hold.purse.gate.enter();
    hold.purse.gate.leave();
    if (!hold.purse.gate.beginSettle()) throw new Error('the gate is closed');
    this.slices.call('settle', {
      router_id: this.routerId,
      settlements: [
        {
          operation_id: randomUUID(),
          account_id: account,
          slice_id: hold.slice.id,
          month: hold.month,
          amount: cost.toString(),
          ...(hold.keySlice ? { key_id: hold.keySlice.keyId, key_slice_id: hold.keySlice.id } : {}),
        },
      ],
    } as never);
    hold.purse.acknowledge(hold, cost, true);
    hold.purse.gate.endSettle();
  }

  private async call(name: Name, body: unknown): Promise<unknown> {
    // Nothing is answered in the turn in which it was asked.
    await new Promise((resolve) => setImmediate(resolve));
    this.calls.push({ name, body: body as Record<string, unknown> });
    if (this.away.has(name)) throw unavailable('identity-billing does not answer');
    const work = () => {
      const [status, answer] = this.slices.call(name, body as never);
      if (status < 400) return answer;
      const { code, message, details } = (
        answer as { error: { code: string; message: string; details?: unknown } }
      ).error;
      throw new ApiError(status, code, message, details ? { fields: { details } } : {});
    };
    return this.around(name, work);
  }
}
