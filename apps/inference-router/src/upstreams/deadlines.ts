import { Injectable, type OnModuleDestroy } from '@nestjs/common';

/** How late a deadline may be noticed, milliseconds. */
const sweepEvery = 250;

/** One thing that must not stay silent for too long, by a clock that nobody sets. */
export class Deadline {
  private at = performance.now();
  private paused = false;

  /**
   * @param limit milliseconds of silence; 0: none counts
   * @param onLate called once, then it is forgotten
   */
  constructor(
    public limit: number,
    readonly onLate: (limit: number) => void,
  ) {}

  /** There was a sign of life. */
  touch(): void {
    this.at = performance.now();
  }

  /** While paused its time does not run: somebody else is waited for. */
  pause(): void {
    this.paused = true;
  }

  resume(): void {
    this.paused = false;
    this.at = performance.now();
  }

  isLate(now: number): boolean {
    return this.limit > 0 && !this.paused && now - this.at >= this.limit;
  }
}

/** All deadlines of a process on one timer: a timer for each would be set anew with every chunk of every answer. */
@Injectable()
export class Deadlines implements OnModuleDestroy {
  private readonly running = new Set<Deadline>();
  private timer: NodeJS.Timeout | undefined;

  watch(deadline: Deadline): void {
    this.running.add(deadline);
    this.timer ??= setInterval(() => this.sweep(), sweepEvery).unref();
  }

  forget(deadline: Deadline): void {
    this.running.delete(deadline);
  }

  onModuleDestroy(): void {
    clearInterval(this.timer);
    this.timer = undefined;
    this.running.clear();
  }

  private sweep(): void {
    if (this.running.size === 0) {
      clearInterval(this.timer);
      this.timer = undefined;
      return;
    }
    const now = performance.now();
    for (const deadline of this.running) {
      if (!deadline.isLate(now)) continue;
      this.running.delete(deadline);
      deadline.onLate(deadline.limit);
    }
  }
}
