/**
 * Keeps two kinds of calls about one account apart. `take`, `renew` and `return` answer with the whole amount of a slice,
 * `settle` lessens it: if both were on their way, nobody could tell whether the amount in one answer has the other call in
 * it already. Calls run one by one; settles only while there is none.
 */
export class CallGate {
  private calling = false;
  private settling = 0;
  private wake: (() => void)[] = [];

  /** Waits for its turn; `leave` must follow. From here on no settle begins. */
  async enter(): Promise<void> {
    while (this.calling) await this.change();
    this.calling = true;
    while (this.settling > 0) await this.change();
  }

  leave(): void {
    this.calling = false;
    this.tell();
  }

  /** @returns false while a call runs or waits; otherwise `endSettle` must follow */
  beginSettle(): boolean {
    if (this.calling) return false;
    this.settling += 1;
    return true;
  }

  endSettle(): void {
    this.settling -= 1;
    this.tell();
  }

  private change(): Promise<void> {
    return new Promise((resolve) => this.wake.push(resolve));
  }

  private tell(): void {
    const wake = this.wake;
    this.wake = [];
    for (const resolve of wake) resolve();
  }
}
