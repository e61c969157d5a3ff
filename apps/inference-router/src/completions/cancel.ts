/** A way to end something under way. An AbortSignal would do the same for ten times the price, on every request. */
export class Cancel {
  private why: Error | null = null;
  private listeners: ((reason: Error) => void)[] = [];
  private controller: AbortController | null = null;

  /** Why it was cancelled; null: it was not. */
  get reason(): Error | null {
    return this.why;
  }

  /** The same as a signal, for what knows nothing else; made when it is first asked for. */
  get signal(): AbortSignal {
    if (!this.controller) {
      this.controller = new AbortController();
      if (this.why) this.controller.abort(this.why);
    }
    return this.controller.signal;
  }

  /** Cancels, once; listeners are told before this returns. */
  cancel(reason: Error): void {
    if (this.why) return;
    this.why = reason;
    const { listeners } = this;
    this.listeners = [];
    for (const listener of listeners) listener(reason);
    this.controller?.abort(reason);
  }

  /**
   * Calls `listener` when it is cancelled; at once when it was already.
   * @returns takes the listener away again
   */
  onCancel(listener: (reason: Error) => void): () => void {
    if (this.why) {
      listener(this.why);
      return () => undefined;
    }
    this.listeners.push(listener);
    return () => {
      const at = this.listeners.indexOf(listener);
      if (at >= 0) this.listeners.splice(at, 1);
    };
  }

  throwIfCancelled(): void {
    if (this.why) throw this.why;
  }
}
