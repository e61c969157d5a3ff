import { setTimeout as sleep } from 'node:timers/promises';
import { Inject, Injectable } from '@nestjs/common';
import { RUNTIME, type Runtime } from '@nebo/service-kit';
import { recallable } from '../database/guarded.js';
import { says } from '../events.js';

/**
 * How long an order waits for routers to return what they do not use, and how often it looks, milliseconds. When they used
 * it all as they last said, which may be seconds ago, a short wait is tried. Not frozen: a test on a busy machine gives routers longer.
 */
export const patienceMs = { idle: 250, leased: 100 };
const lookMs = 15;
/** The same recall is not said again within so long: a thousand orders at once are one recall. Milliseconds. */
const silenceMs = 50;

/**
 * Calls back what routers have leased and do not use, when somebody else needs it. The recall goes straight to the bus: it
 * has to arrive in milliseconds, and losing it costs one refusal.
 */
@Injectable()
export class Recalls {
  private readonly said = new Map<string, number>();

  constructor(@Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'bus' | 'log'>) {}

  /**
   * Runs a guarded statement, and for up to 250 ms again while what routers have leased would cover what it refused.
   * @param except router that asks and need not return anything
   * @throws what the last try threw
   */
  async patiently<T>(account: string, except: string | null, work: () => Promise<T>): Promise<T> {
    const begun = performance.now();
    for (;;) {
      try {
        return await work();
      } catch (error) {
        const recall = recallable(error);
        const now = performance.now();
        if (recall === undefined || now - begun >= patienceMs[recall.isIdle ? 'idle' : 'leased']) throw error;
        this.say(account, recall.key, except, now);
        await sleep(lookMs);
      }
    }
  }

  private say(account: string, key: string | null, except: string | null, now: number): void {
    const name = `${account} ${key} ${except}`;
    if (now - (this.said.get(name) ?? -silenceMs) < silenceMs) return;
    if (this.said.size > 1_000) {
      for (const [old, at] of this.said) if (now - at >= silenceMs) this.said.delete(old);
    }
    this.said.set(name, now);
    const recall = { account_id: account, key_id: key, except_router_id: except };
    this.runtime.bus.publish([says.sliceRecall(recall, { account })]).catch((err: unknown) => {
      this.runtime.log.warn({ err }, 'a recall could not be said');
    });
  }
}
