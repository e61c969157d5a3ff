/**
 * How many bytes of bodies are kept at once that are still on their way in. They cost memory before anybody has looked at the
 * money of who sends them, and a body may take its time; of all the room one account has half at most.
 */
export class BodyRoom {
  private used = 0;
  private readonly byAccount = new Map<string, number>();

  /** @param most bytes */
  constructor(private readonly most: number) {}

  /** @returns false when there is no room: then nothing was taken */
  take(account: string, bytes: number): boolean {
    const own = (this.byAccount.get(account) ?? 0) + bytes;
    if (this.used + bytes > this.most || own > this.most / 2) return false;
    this.used += bytes;
    this.byAccount.set(account, own);
    return true;
  }

  giveBack(account: string, bytes: number): void {
    if (bytes === 0) return;
    this.used -= bytes;
    const left = this.byAccount.get(account)! - bytes;
    if (left > 0) this.byAccount.set(account, left);
    else this.byAccount.delete(account);
  }
}
