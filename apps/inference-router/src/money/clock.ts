import { Injectable } from '@nestjs/common';

/** Time as the money sees it; tests have their own. */
@Injectable()
export class Clock {
  private known = { month: '', from: Infinity, until: -Infinity };

  /** Milliseconds that only ever rise: terms of slices are measured with it, whatever somebody does to the date. */
  now(): number {
    return performance.now();
  }

  date(): Date {
    return new Date();
  }

  /** The calendar month (UTC) of now: `2026-11`. Asked for by each request, made once a month. */
  month(): string {
    const date = this.date();
    const time = date.getTime();
    if (time < this.known.from || time >= this.known.until) {
      const [year, month] = [date.getUTCFullYear(), date.getUTCMonth()];
      this.known = {
        month: date.toISOString().slice(0, 7),
        from: Date.UTC(year, month),
        until: Date.UTC(year, month + 1),
      };
    }
    return this.known.month;
  }

  /** Resolves after so many milliseconds. */
  wait(ms: number): Promise<void> {
    return new Promise((resolve) => setTimeout(resolve, ms));
  }
}
