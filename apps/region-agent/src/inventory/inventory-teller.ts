import { type RegionThing } from '@nebo/contracts';
import { type AgentLog } from '../agent-log.js';
import { type InventoryPlane, Superseded } from '../control/control-plane.js';
import { Backoff, ignoreAbort, sleep } from '../system/timing.js';

export interface InventoryTellerParts {
  plane: InventoryPlane;
  log: AgentLog;
  /** Seconds that a question may wait. */
  waitSeconds: number;
  /** Looks at the host. */
  look(): Promise<RegionThing[]>;
  onSuperseded(): void;
}

/** Things in one part of an answer. */
const partSize = 1_000;

/**
 * Answers audits: waits until somebody asks what the region's host has, looks, tells. A part that is lost, or an agent that
 * dies in the middle, leaves a question that is still open: the next look answers it.
 */
export class InventoryTeller {
  constructor(private readonly parts: InventoryTellerParts) {}

  async run(signal: AbortSignal): Promise<void> {
    const { plane, log, waitSeconds } = this.parts;
    const backoff = new Backoff(500, 30_000);
    while (!signal.aborted) {
      try {
        const asked = Date.now();
        const { number } = await plane.inventoryWanted(waitSeconds, signal);
        if (number !== null) await this.tell(number, signal);
        // A control plane that does not wait must not be asked without end.
        else if (Date.now() - asked < 50) await sleep(1_000, signal);
        backoff.reset();
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Superseded) {
          this.parts.onSuperseded();
          return;
        }
        log.debug({ error: String(error) }, 'nobody can be told what this host has');
        await sleep(backoff.next(), signal).catch(ignoreAbort);
      }
    }
  }

  private async tell(number: number, signal: AbortSignal): Promise<void> {
    const things = await this.parts.look();
    for (let from = 0; from === 0 || from < things.length; from += partSize) {
      const last = from + partSize >= things.length;
      await this.parts.plane.tellInventory(
        { number, things: things.slice(from, from + partSize), last },
        signal,
      );
    }
  }
}
