/** Says on stderr what the start is doing, with times, so that nobody stares at an empty screen. */
export class Progress {
  private readonly begun = performance.now();

  step(text: string): void {
    const seconds = ((performance.now() - this.begun) / 1000).toFixed(1);
    process.stderr.write(`[${seconds.padStart(5)} s] ${text}\n`);
  }

  get seconds(): number {
    return (performance.now() - this.begun) / 1000;
  }
}
