import { randomUUID } from 'node:crypto';
import type {
  SliceInfo,
  SliceRecall,
  SliceRenewRequest,
  SliceReturnRequest,
  SliceSettlement,
  SliceSettleRequest,
  SliceTakeRequest,
} from '@nebo/contracts';

interface FakeAccount {
  balance: bigint;
  /** Code of the 402 that every take gets, whatever the balance. */
  refusal?: string;
}

interface FakeSlice {
  id: string;
  router: string;
  account: string;
  key: string | null;
  month: string | null;
  amount: bigint;
  inUse: bigint;
  version: number;
  expiresAt: number;
}

export type FakeAnswer = [number, unknown];

export const refusal = (code: string, details?: unknown) => ({
  error: { code, message: `refused: ${code}`, ...(details ? { details } : {}) },
});
const sum = (amounts: Iterable<bigint>) => [...amounts].reduce((total, amount) => total + amount, 0n);
const least = (a: bigint, b: bigint) => (a < b ? a : b);
const most = (a: bigint, b: bigint) => (a > b ? a : b);

/** Slices with the arithmetic of libs/contracts/src/internal/slices.ts, in memory. */
export class FakeSlices {
  readonly accounts = new Map<string, FakeAccount>();
  /** Monthly limits of keys. */
  readonly limits = new Map<string, bigint>();
  readonly slices = new Map<string, FakeSlice>();
  readonly epochs = new Map<string, number>();
  /** What was charged, by operation id, and how often it was sent. */
  readonly ledger = new Map<string, { settlement: SliceSettlement; times: number }>();
  /** Operation ids that are refused for good. */
  readonly poisoned = new Set<string>();
  /** Charged although no slice had it: overspent by a router. */
  lost = 0n;
  /** Broken promises; a test expects none. */
  readonly violations: string[] = [];
  term = 30_000;
  now = () => performance.now();
  month = () => new Date().toISOString().slice(0, 7);
  onRecall: (recall: SliceRecall) => void = () => undefined;

  call(name: string, body: never): FakeAnswer {
    const calls: Record<string, (body: never) => FakeAnswer> = {
      open: (request: { router_id: string }) => this.open(request.router_id),
      take: (request: SliceTakeRequest) => this.take(request),
      renew: (request: SliceRenewRequest) => this.renew(request),
      return: (request: SliceReturnRequest) => this.giveBack(request),
      settle: (request: SliceSettleRequest) => this.settle(request),
    };
    const answer = calls[name]!(body);
    for (const [id, { balance }] of this.accounts)
      if (this.leased(id) > balance) this.violations.push(`${name}: ${id} has leased more than its balance`);
    return answer;
  }

  /** The sum of the slices of an account. */
  leased(account: string): bigint {
    return sum(
      this.of((slice) => slice.account === account && slice.key === null).map(({ amount }) => amount),
    );
  }

  charged(account: string): bigint {
    return sum(
      [...this.ledger.values()]
        .filter(({ settlement }) => settlement.account_id === account)
        .map(({ settlement }) => BigInt(settlement.amount)),
    );
  }

  /** What is left of a key's limit this month. */
  limitLeft(key: string): bigint {
    const spent = [...this.ledger.values()]
      .filter(({ settlement: { key_id, month } }) => key_id === key && month === this.month())
      .map(({ settlement }) => BigInt(settlement.amount));
    const leased = this.of((slice) => slice.key === key && slice.month === this.month()).map(
      ({ amount }) => amount,
    );
    return this.limits.get(key)! - sum(spent) - sum(leased);
  }

  private open(router: string): FakeAnswer {
    const epoch = (this.epochs.get(router) ?? 0) + 1;
    this.epochs.set(router, epoch);
    for (const { id } of this.of((slice) => slice.router === router)) this.slices.delete(id);
    return [200, { epoch }];
  }

  private take(request: SliceTakeRequest): FakeAnswer {
    const { account_id: account, router_id: router, key } = request;
    if (this.epochs.get(router) !== request.epoch) return [409, refusal('fenced')];
    const known = this.accounts.get(account);
    if (!known) return [404, refusal('not_found')];
    const [need, want] = [BigInt(request.need), BigInt(request.want)];
    if (want < need) return [422, refusal('validation_error')];
    const available = known.balance - this.leased(account);
    const others = this.of(
      (slice) => slice.account === account && slice.key === null && slice.router !== router,
    );
    const held = sum(others.map(({ amount }) => amount));
    const limit = key && this.limits.has(key.key_id) ? this.limitLeft(key.key_id) : null;
    const figures = {
      available: available.toString(),
      held: held.toString(),
      ...(limit === null ? {} : { key_available: limit.toString() }),
    };
    if (known.refusal) return [402, refusal(known.refusal, figures)];
    if (need > available) {
      const idle = sum(others.map(({ amount, inUse }) => amount - inUse));
      if (need <= available + idle)
        this.onRecall({ account_id: account, key_id: null, except_router_id: router });
      return [402, refusal(need <= available + held ? 'held_in_flight' : 'insufficient_balance', figures)];
    }
    if (key && limit !== null && BigInt(key.need) > limit)
      return [402, refusal('key_limit_reached', figures)];
    const part = this.grow(router, account, null, need, most(need, least(want, available / 4n)));
    const keyNeed = BigInt(key?.need ?? '0');
    const keyPart =
      key && limit !== null
        ? this.grow(router, account, key.key_id, keyNeed, most(keyNeed, least(BigInt(key.want), limit / 4n)))
        : null;
    return [200, { account: this.info(part), key: keyPart ? this.info(keyPart) : null }];
  }

  private grow(router: string, account: string, key: string | null, need: bigint, grant: bigint): FakeSlice {
    const month = key === null ? null : this.month();
    let [slice] = this.of(
      (one) => one.router === router && one.account === account && one.key === key && one.month === month,
    );
    slice ??= {
      id: randomUUID(),
      router,
      account,
      key,
      month,
      amount: 0n,
      inUse: 0n,
      version: 0,
      expiresAt: 0,
    };
    this.slices.set(slice.id, slice);
    slice.amount += grant;
    slice.inUse += need;
    slice.version += 1;
    slice.expiresAt = this.now() + this.term;
    return slice;
  }

  private renew({ router_id, epoch, slices }: SliceRenewRequest): FakeAnswer {
    if (this.epochs.get(router_id) !== epoch) return [409, refusal('fenced')];
    const found = slices.flatMap(({ id, in_use }) => {
      const slice = this.slices.get(id);
      if (slice?.router !== router_id) return [];
      slice.inUse = least(BigInt(in_use), slice.amount);
      if (slice.month === null || slice.month === this.month()) slice.expiresAt = this.now() + this.term;
      return [this.info(slice)];
    });
    return [200, { slices: found }];
  }

  private giveBack({ router_id, epoch, slices }: SliceReturnRequest): FakeAnswer {
    if (this.epochs.get(router_id) !== epoch) return [409, refusal('fenced')];
    const found = slices.flatMap(({ id, version, amount }) => {
      const slice = this.slices.get(id);
      if (slice?.router !== router_id) return [];
      if (slice.version === version) {
        if (BigInt(amount) > slice.amount) this.violations.push('more was returned than there was');
        slice.amount -= least(BigInt(amount), slice.amount);
        slice.inUse = least(slice.inUse, slice.amount);
        slice.version += 1;
      }
      return [this.info(slice)];
    });
    return [200, { slices: found }];
  }

  private settle({ settlements }: SliceSettleRequest): FakeAnswer {
    const settled: string[] = [];
    const refused: { operation_id: string; reason: string }[] = [];
    for (const settlement of settlements) {
      const { operation_id: id, account_id, slice_id, key_slice_id } = settlement;
      const known = this.ledger.get(id);
      const account = this.accounts.get(account_id);
      if (known) known.times += 1;
      else if (!account || this.poisoned.has(id)) {
        refused.push({ operation_id: id, reason: 'unknown account' });
        continue;
      } else {
        const amount = BigInt(settlement.amount);
        const fromSlice = least(this.slices.get(slice_id)?.amount ?? 0n, amount);
        const free = account.balance - this.leased(account_id);
        this.lost += most(0n, amount - fromSlice - free);
        account.balance -= amount;
        this.shrink(slice_id, fromSlice);
        if (key_slice_id) this.shrink(key_slice_id, amount);
        this.ledger.set(id, { settlement, times: 1 });
      }
      settled.push(id);
    }
    return [200, { settled, refused }];
  }

  private shrink(id: string, amount: bigint): void {
    const slice = this.slices.get(id);
    if (!slice) return;
    slice.amount -= least(amount, slice.amount);
    slice.inUse = most(0n, least(slice.inUse - amount, slice.amount));
  }

  private of(test: (slice: FakeSlice) => boolean): FakeSlice[] {
    return [...this.slices.values()].filter(test);
  }

  private info({ id, version, amount, month, expiresAt }: FakeSlice): SliceInfo {
    return {
      id,
      version,
      amount: amount.toString(),
      expires_in: Math.max(0, Math.floor(expiresAt - this.now())),
      ...(month === null ? {} : { month }),
    };
  }
}
