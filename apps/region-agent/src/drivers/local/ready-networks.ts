import { randomBytes } from 'node:crypto';
import { type AgentLog } from '../../agent-log.js';
import { type RunNetwork } from './networks.js';

/** Pause before a network is made anew, so that it does not take the processor from the app that has just got one. */
const quietMs = 1_000;

/**
 * Networks made in advance for runs that somebody waits for: to make one takes longer than everything else of a start. Each is
 * given away once; who finds none there makes his own.
 */
export class ReadyNetworks {
  private readonly ready: RunNetwork[] = [];
  private work: Promise<void> = Promise.resolve();
  private timer: NodeJS.Timeout | null = null;
  private closed = false;

  /**
   * @param size networks kept ready; 0: none
   * @param open makes one under a name
   */
  constructor(
    private readonly size: number,
    private readonly open: (name: string) => Promise<RunNetwork>,
    private readonly log: AgentLog,
  ) {}

  /** Makes them, in the background. */
  start(): void {
    this.later(0);
  }

  /** A network, at once if one is ready. @throws as `open` does */
  async take(name: string): Promise<RunNetwork> {
    const network = this.ready.shift();
    this.later(quietMs);
    return network ?? this.open(name);
  }

  /** Takes away those that nobody has got. */
  async close(): Promise<void> {
    this.closed = true;
    if (this.timer) clearTimeout(this.timer);
    await this.work;
    await Promise.all(this.ready.splice(0).map((network) => network.close()));
  }

  private later(ms: number): void {
    if (this.closed || this.ready.length >= this.size) return;
    // Each start puts it off: a burst of starts has the processor for itself.
    if (this.timer) clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.timer = null;
      this.work = this.work.then(() => this.fill());
    }, ms);
    this.timer.unref();
  }

  private async fill(): Promise<void> {
    try {
      while (!this.closed && this.ready.length < this.size)
        this.ready.push(await this.open(randomBytes(5).toString('hex')));
    } catch (error) {
      // Starts make their own, and say what is wrong then.
      this.log.warn({ error: String(error) }, 'networks could not be made in advance');
    }
  }
}
