import { type Wanted } from '@nebo/contracts';
import { type AgentLog } from '../agent-log.js';
import { type NetworkDriver } from '../drivers/types.js';
import { Backoff } from '../system/timing.js';
import { type Observation, type Reporter } from './reporter.js';
import { type Worker } from './worker.js';

export interface VpcParts {
  driver: NetworkDriver;
  reporter: Reporter;
  log: AgentLog;
}

type WantedVpc = Extract<Wanted, { kind: 'vpc' }>;

/**
 * One VPC: hands what is wanted to the driver and reports what the driver made of it. With every full comparison the
 * driver looks again, so that what was lost on the host comes back; where something failed it is tried again before, since
 * an address may only have to leave another network first.
 */
export class VpcWorker implements Worker {
  private newest: WantedVpc | null = null;
  private reported: string | null = null;
  private turn: Promise<void> = Promise.resolve();
  private ended = false;
  private readonly backoff = new Backoff(300, 20_000);
  private again: NodeJS.Timeout | null = null;

  constructor(
    private readonly id: string,
    private readonly parts: VpcParts,
  ) {}

  want(item: Wanted, full = false): void {
    if (item.kind !== 'vpc' || this.ended) return;
    if (!full && this.newest && item.generation < this.newest.generation) return;
    this.settle(item.generation !== this.newest?.generation);
    this.newest = item;
    this.turn = this.turn.then(() => this.apply(item));
  }

  async vanished(): Promise<void> {
    this.ended = true;
    this.settle(false);
    await this.turn;
    await this.parts.driver.remove(this.id);
    if (this.newest) this.report(this.newest.generation, 'gone', null, {}, true);
  }

  async stop(): Promise<void> {
    this.ended = true;
    this.settle(false);
    await this.turn;
  }

  private async apply(item: WantedVpc): Promise<void> {
    // A newer one is already waiting for its turn.
    if (this.ended || item !== this.newest) return;
    const { driver, log } = this.parts;
    try {
      if (item.gone) {
        await driver.remove(this.id);
        this.report(item.generation, 'gone', null, {}, true);
        return;
      }
      const { state, reason, facts } = await driver.ensure(this.id, item.generation, item.spec);
      this.report(item.generation, state, reason, facts);
      if (Object.keys(facts.faults ?? {}).length > 0) this.tryAgain(item);
      else this.backoff.reset();
    } catch (error) {
      // The next full comparison tries again.
      log.error({ vpc: this.id, error: String((error as Error)?.stack ?? error) }, 'VPC was not reconciled');
      this.report(item.generation, 'error', `the network could not be made: ${(error as Error).message}`, {});
      this.tryAgain(item);
    }
  }

  private tryAgain(item: WantedVpc): void {
    if (this.ended || item !== this.newest) return;
    this.settle(false);
    this.again = setTimeout(() => this.want(item), this.backoff.next());
  }

  /** @param news whether it is another thing that is wanted, which need not wait as long as the last one */
  private settle(news: boolean): void {
    if (this.again) clearTimeout(this.again);
    this.again = null;
    if (news) this.backoff.reset();
  }

  private report(
    generation: number,
    state: 'active' | 'error' | 'gone',
    reason: string | null,
    facts: Record<string, unknown>,
    last = false,
  ): void {
    const observation: Observation = { kind: 'vpc', id: this.id, generation, state, reason, facts };
    const words = JSON.stringify(observation);
    // The control plane that asks again whether something is gone wants to hear it again.
    if (words === this.reported && !last) return;
    this.reported = words;
    this.parts.reporter.report(observation, last);
  }
}
