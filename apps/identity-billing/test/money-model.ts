interface Hold {
  amount: bigint;
  credits: bigint;
  kind: 'control' | 'inference';
  key: boolean;
  state: 'held' | 'captured' | 'void' | 'expired';
  captured: bigint;
  capturedCredits: bigint;
  refunded: bigint;
}

/** What a call answers: `ok` or the code of the error. */
export type Outcome = string;

/** One account and one key with a monthly limit, as the rules say, in memory: what PostgreSQL is compared with. */
export class MoneyModel {
  posted = 0n;
  held = 0n;
  credits = 0n;
  creditsHeld = 0n;
  topups = 0n;
  unlocked = false;
  keyUsed = 0n;
  keyCaptured = 0n;
  readonly holds = new Map<string, Hold>();

  constructor(
    private readonly unlockFrom: bigint,
    private readonly keyLimit: bigint,
  ) {}

  topup(amount: bigint): Outcome {
    this.posted += amount;
    this.topups += amount;
    this.unlocked ||= amount >= this.unlockFrom;
    return 'ok';
  }

  credit(amount: bigint): Outcome {
    this.credits += amount;
    return 'ok';
  }

  private spendable(kind: Hold['kind']): bigint {
    return kind === 'control' && this.unlocked ? this.credits - this.creditsHeld : 0n;
  }

  reserve(id: string, kind: Hold['kind'], key: boolean, amount: bigint): Outcome {
    const known = this.holds.get(id);
    if (known)
      return known.amount === amount && known.kind === kind && known.key === key ? 'ok' : 'operation_reused';
    if (kind === 'inference' && this.topups === 0n) return 'topup_required';
    const bonus = this.spendable(kind);
    const available = this.posted - this.held + bonus;
    if (available < amount) {
      const inFlight = this.held + (kind === 'control' && this.unlocked ? this.creditsHeld : 0n);
      return available + inFlight >= amount ? 'held_in_flight' : 'insufficient_balance';
    }
    if (key && this.keyUsed + amount > this.keyLimit) {
      return this.keyCaptured + amount <= this.keyLimit ? 'held_in_flight' : 'key_limit_reached';
    }
    const credits = amount < bonus ? amount : bonus;
    this.held += amount - credits;
    this.creditsHeld += credits;
    if (key) this.keyUsed += amount;
    this.holds.set(id, {
      amount,
      credits,
      kind,
      key,
      state: 'held',
      captured: 0n,
      capturedCredits: 0n,
      refunded: 0n,
    });
    return 'ok';
  }

  private release(hold: Hold, state: 'void' | 'expired'): void {
    this.held -= hold.amount - hold.credits;
    this.creditsHeld -= hold.credits;
    if (hold.key) this.keyUsed -= hold.amount;
    hold.state = state;
  }

  expire(id: string): void {
    const hold = this.holds.get(id);
    if (hold?.state === 'held') this.release(hold, 'expired');
  }

  capture(id: string, wanted: bigint | null): Outcome {
    const hold = this.holds.get(id);
    if (!hold) return 'not_found';
    const amount = wanted ?? hold.amount;
    if (hold.state === 'captured') return hold.captured === amount ? 'ok' : 'already_captured';
    if (hold.state !== 'held') return hold.state === 'void' ? 'already_void' : 'expired';
    if (amount > hold.amount) return 'validation_error';
    const credits = amount < hold.credits ? amount : hold.credits;
    this.held -= hold.amount - hold.credits;
    this.creditsHeld -= hold.credits;
    this.credits -= credits;
    this.posted -= amount - credits;
    if (hold.key) {
      this.keyUsed += amount - hold.amount;
      this.keyCaptured += amount;
    }
    Object.assign(hold, { state: 'captured', captured: amount, capturedCredits: credits });
    return 'ok';
  }

  void(id: string): Outcome {
    const hold = this.holds.get(id);
    if (!hold) return 'not_found';
    if (hold.state === 'captured') return 'already_captured';
    if (hold.state === 'held') this.release(hold, 'void');
    return 'ok';
  }

  refund(id: string, wanted: bigint | null): Outcome {
    const hold = this.holds.get(id);
    if (!hold) return 'not_found';
    if (hold.state !== 'captured') return 'not_captured';
    const amount = wanted ?? hold.captured;
    if (hold.refunded > 0n) return hold.refunded === amount ? 'ok' : 'already_refunded';
    if (amount > hold.captured) return 'validation_error';
    const paid = hold.captured - hold.capturedCredits;
    const money = amount < paid ? amount : paid;
    this.posted += money;
    this.credits += amount - money;
    hold.refunded = amount;
    return 'ok';
  }
}
