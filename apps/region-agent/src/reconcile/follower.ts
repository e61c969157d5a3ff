import { type Wanted } from '@nebo/contracts';
import { type AgentLog } from '../agent-log.js';
import { type ServicePlane, Superseded } from '../control/control-plane.js';
import { Backoff, ignoreAbort, sleep } from '../system/timing.js';

/** So many things are compared once in `fullMs`; more of them in as much more time, so that comparing costs no more a second. */
const mostAtOnce = 20_000;

export interface FollowerParts {
  /** Name of the service, for the log. */
  service: string;
  plane: ServicePlane;
  log: AgentLog;
  /** Seconds that a question for news may wait. */
  waitSeconds: number;
  /** Milliseconds between full comparisons, as long as there are not many things. */
  fullMs: number;
  /** Makes it so; `full`: what is not listed is not wanted. */
  apply(items: readonly Wanted[], full: boolean): Promise<void>;
  /** The service answers again or does not answer any more. */
  contact(there: boolean): void;
  onSuperseded(): void;
}

/**
 * Follows what one service wants of the region: everything at start, after a silence and once in a while, and the news in
 * between. Ends when its signal is aborted or the region is another agent's.
 */
export class Follower {
  constructor(private readonly parts: FollowerParts) {}

  async run(signal: AbortSignal): Promise<void> {
    const { plane, log, service } = this.parts;
    const backoff = new Backoff(200, 5_000);
    let cursor: string | null = null;
    let fullAt = 0;
    let quiet = false;
    while (!signal.aborted) {
      try {
        const full = cursor === null || Date.now() >= fullAt;
        const left = Math.max(1, Math.ceil((fullAt - Date.now()) / 1000));
        const wait = full ? 0 : Math.min(this.parts.waitSeconds, left);
        const asked = Date.now();
        const answer = await plane.wanted(full ? null : cursor, wait, signal);
        // All of it before anything of it counts: what is not listed is not wanted.
        for (let next = answer.next ?? null; answer.full && next !== null;) {
          const page = await plane.wanted(null, 0, signal, next);
          answer.items.push(...page.items);
          next = page.next ?? null;
        }
        cursor = answer.cursor;
        if (full || answer.full)
          fullAt = Date.now() + this.parts.fullMs * Math.max(1, answer.items.length / mostAtOnce);
        if (quiet) {
          log.info({ service }, 'the control plane is back');
          // It may have lost what it was told and what it had said.
          cursor = null;
          quiet = false;
          this.parts.contact(true);
        }
        backoff.reset();
        await this.parts.apply(answer.items, answer.full);
        // A control plane that does not wait must not be asked without end.
        if (!full && answer.items.length === 0 && Date.now() - asked < 50) await sleep(200, signal);
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Superseded) {
          this.parts.onSuperseded();
          return;
        }
        if (!quiet) {
          const fields = { service, error: String(error) };
          log.warn(fields, 'the control plane does not answer; what runs goes on running');
          this.parts.contact(false);
        }
        quiet = true;
        await sleep(backoff.next(), signal).catch(ignoreAbort);
      }
    }
  }
}
