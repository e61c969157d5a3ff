/** From so many bytes on a body is a large one. */
export const largeBody = 256 * 1024;

/** Most milliseconds that are left to others after a step. */
const longestPause = 10;

/**
 * Lets large pieces of work go one after the other, each in a turn of the event loop of its own: what they cost together
 * is the same, but nobody waits for more than one of them. For bodies of megabytes, whose parsing, reading and writing
 * would otherwise follow each other without a gap, for all that arrived together.
 */
export class Turns {
  private readonly waiting: (() => void)[] = [];
  private isRunning = false;

  /** Resolves when it is this one's turn: do one step at once then. */
  next(): Promise<void> {
    return new Promise((resolve) => {
      this.waiting.push(resolve);
      if (this.isRunning) return;
      this.isRunning = true;
      setImmediate(() => this.run());
    });
  }

  private run(): void {
    const first = this.waiting.shift();
    if (!first) {
      this.isRunning = false;
      return;
    }
    const begun = performance.now();
    first();
    // The step runs with the promise, before this.
    setImmediate(() => {
      // Several large ones leave as much time to all others as they take; one alone is not held up.
      const pause = this.waiting.length > 1 ? Math.min(performance.now() - begun, longestPause) : 0;
      // Not before everything that is ready has been looked at: timers, then sockets.
      setTimeout(() => setImmediate(() => this.run()), pause);
    });
  }
}
