/** Bytes that are read at a time. */
const READ_BYTES = 64 * 1024;

/** Told the time, in milliseconds of `performance.now`. */
export interface Ticked {
  onTick(now: number): void;
}

/**
 * What all connections share: one buffer to read into, since what was read is looked at before anything else is read, and
 * one coarse clock, since a timer for each request would cost more than the request.
 */
export class Http1Reactor {
  readonly buffer = Buffer.allocUnsafeSlow(READ_BYTES);
  /** Time of the last tick: at most `tickMs` old as long as the loop is not held up. */
  now = performance.now();
  private readonly members = new Set<Ticked>();
  private readonly timer: NodeJS.Timeout;

  /** @param tickMs how exact limits of time are: they never end early, and late by at most this */
  constructor(readonly tickMs = 250) {
    this.timer = setInterval(() => this.tick(), tickMs).unref();
  }

  add(member: Ticked): void {
    this.members.add(member);
  }

  delete(member: Ticked): void {
    this.members.delete(member);
  }

  /** The moment by which something that begins now has lasted so long. */
  in(ms: number): number {
    return this.now + ms + this.tickMs;
  }

  /** Stops the clock: no limit of time ends any more. */
  stop(): void {
    clearInterval(this.timer);
  }

  private tick(): void {
    this.now = performance.now();
    for (const member of this.members) member.onTick(this.now);
  }
}
