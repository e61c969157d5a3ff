/** How a breaker decides. */
export interface BreakerSettings {
  /** Failures in a row that open it; 0: it never opens. */
  failures: number;
  /** Share of failures, of at least `leastResults` results in `windowMs`, that opens it too. */
  ratio: number;
  leastResults: number;
  windowMs: number;
  /** First pause, milliseconds; doubled with each probe that fails, up to `longestPause`. */
  firstPause: number;
  longestPause: number;
}

export const breakerDefaults: BreakerSettings = {
  failures: 5,
  ratio: 0.5,
  leastResults: 20,
  windowMs: 30_000,
  firstPause: 1_000,
  longestPause: 60_000,
};

export type BreakerState = 'closed' | 'half_open' | 'open';

/** One request's leave to use a route; exactly one of its ends is called. */
export interface Pass {
  /** The vendor answered. */
  succeeded(): void;
  /** It did not. `isFinal`: it will not for anybody, so the route closes at once. */
  failed(isFinal?: boolean): void;
  /** It asks to be left alone for so many seconds. */
  wait(seconds: number): void;
  /** Nobody waited for the outcome. */
  forget(): void;
}

/** Milliseconds that only ever rise, whatever somebody does to the date. */
export const breakerNow = (): number => performance.now();

/**
 * A circuit breaker of one route. Closed it counts failures in a row and their share among the latest results; open it
 * lets nothing through until its pause is over; half open it lets one request probe. Times are milliseconds of `now`.
 */
export class Breaker {
  private current: BreakerState = 'closed';
  private inRow = 0;
  private pauses = 0;
  private openUntil = 0;
  private isProbed = false;
  /** Results of the running window. */
  private results = { since: 0, good: 0, bad: 0 };

  /**
   * @param changed told of every change of state
   * @param random from 0 (included) to 1 (excluded): pauses are spread, so that replicas do not probe together
   */
  constructor(
    private readonly settings: BreakerSettings,
    private readonly changed: (state: BreakerState) => void = () => undefined,
    private readonly now: () => number = breakerNow,
    private readonly random: () => number = Math.random,
  ) {}

  get state(): BreakerState {
    return this.current;
  }

  /** When a request may be let through again; 0: now. */
  get retryAt(): number {
    if (this.current === 'closed') return 0;
    if (this.now() < this.openUntil) return this.openUntil;
    // A probe is out: its answer decides.
    return this.isProbed ? this.now() + 1_000 : 0;
  }

  /** Lets a request through, or not. */
  enter(): Pass | null {
    if (this.current === 'closed') return this.pass(false);
    if (this.now() < this.openUntil || this.isProbed) return null;
    this.isProbed = true;
    this.become('half_open');
    return this.pass(true);
  }

  /** An answer that had begun was broken off by the vendor. */
  broke(): void {
    this.bad(false, false);
  }

  private pass(isProbe: boolean): Pass {
    let ended = false;
    const once = (end: () => void) => () => {
      if (ended) return;
      ended = true;
      if (isProbe) this.isProbed = false;
      end();
    };
    return {
      succeeded: once(() => this.good(isProbe)),
      failed: (isFinal = false) => once(() => this.bad(isProbe, isFinal))(),
      wait: (seconds) => once(() => this.open(seconds * 1_000))(),
      // A probe without outcome: the next request probes.
      forget: once(() => undefined),
    };
  }

  private good(isProbe: boolean): void {
    this.inRow = 0;
    if (isProbe) {
      this.pauses = 0;
      this.results = { since: this.now(), good: 0, bad: 0 };
      this.become('closed');
    } else {
      this.window().good += 1;
    }
  }

  private bad(isProbe: boolean, isFinal: boolean): void {
    const { failures, ratio, leastResults } = this.settings;
    if (failures === 0) return;
    this.inRow += 1;
    const results = this.window();
    results.bad += 1;
    const all = results.good + results.bad;
    const tooMany = all >= leastResults && results.bad / all >= ratio;
    // Requests that began before it opened add nothing to its pause.
    if (isProbe || (this.current === 'closed' && (isFinal || this.inRow >= failures || tooMany))) {
      this.open(this.pause());
    }
  }

  /** From half to all of the pause that is due. */
  private pause(): number {
    const { firstPause, longestPause } = this.settings;
    const whole = Math.min(longestPause, firstPause * 2 ** Math.min(this.pauses, 30));
    this.pauses += 1;
    return whole / 2 + (whole / 2) * this.random();
  }

  private open(ms: number): void {
    if (this.settings.failures === 0) return;
    this.openUntil = Math.max(this.openUntil, this.now() + ms);
    this.inRow = 0;
    this.become('open');
  }

  private window() {
    if (this.now() - this.results.since > this.settings.windowMs)
      this.results = { since: this.now(), good: 0, bad: 0 };
    return this.results;
  }

  private become(state: BreakerState): void {
    if (this.current === state) return;
    this.current = state;
    this.changed(state);
  }
}
