import { type MachineFacts, type MachineState, type Wanted } from '@nebo/contracts';
import { type AgentLog } from '../agent-log.js';
import { type MachineDriver, MachineFault, type MachineObservation } from '../drivers/machine-driver.js';
import { type BlobAccess, NetworkMissing } from '../drivers/types.js';
import { Backoff, ignoreAbort, sleep } from '../system/timing.js';
import { type Reporter } from './reporter.js';
import { type Worker } from './worker.js';

export interface MachineParts {
  driver: MachineDriver;
  blobs: BlobAccess;
  reporter: Reporter;
  log: AgentLog;
}

type WantedMachine = Extract<Wanted, { kind: 'vm' }>;

/** How often what the host's tools refused is tried again before the machine counts as failed. */
const tries = 3;
/** Two minutes in all. */
const looks = 7;

/**
 * One machine: compares what is wanted with what the driver has, does what is missing, reports what came of it. A newer
 * word ends a step that runs. With every full comparison it looks again, so that what was lost on the host comes back;
 * what has failed waits for a newer generation.
 */
export class MachineWorker implements Worker {
  private newest: WantedMachine | null = null;
  private failed: number | null = null;
  private reported: string | null = null;
  private turn: Promise<void> = Promise.resolve();
  private step = new AbortController();
  private ended = false;
  /** A guest agent comes up some time after its machine, and a disk does not grow during a backup: looked for again. */
  private looking: NodeJS.Timeout | null = null;
  private looked = { about: '', times: 0 };

  constructor(
    private readonly id: string,
    private readonly parts: MachineParts,
  ) {}

  want(item: Wanted, full = false): void {
    if (item.kind !== 'vm' || this.ended) return;
    if (this.newest && item.generation < this.newest.generation) {
      if (!full) return;
      this.failed = null;
    }
    if (item.generation === this.failed) return;
    if (this.newest && item.generation !== this.newest.generation) this.step.abort();
    this.newest = item;
    this.turn = this.turn.then(() => this.apply(item));
  }

  async vanished(): Promise<void> {
    await this.finish();
    await this.parts.driver.remove(this.id);
    if (this.newest) this.report(this.newest.generation, 'gone', null, {}, true);
  }

  stop(): Promise<void> {
    return this.finish();
  }

  private async finish(): Promise<void> {
    this.ended = true;
    if (this.looking) clearTimeout(this.looking);
    this.step.abort();
    await this.turn;
  }

  private async apply(item: WantedMachine): Promise<void> {
    const backoff = new Backoff(200, 2_000);
    let refused = 0;
    for (let attempt = 1; ; attempt += 1) {
      // A newer one is already waiting for its turn.
      if (this.ended || item !== this.newest) return;
      this.step = new AbortController();
      const { signal } = this.step;
      try {
        if (item.gone) {
          await this.parts.driver.remove(this.id);
          this.report(item.generation, 'gone', null, {}, true);
        } else await this.make(item, signal);
        return;
      } catch (error) {
        if (signal.aborted) return;
        this.parts.log.error(
          { vm: this.id, attempt, error: String((error as Error)?.stack ?? error) },
          'machine was not reconciled',
        );
        // What only has to come yet is waited for: nobody would start the machine again once it counts as failed.
        if (!(error instanceof NetworkMissing)) refused += 1;
        const final = error instanceof MachineFault || refused >= tries;
        // What is not removed is not failed: the next full comparison tries again.
        if (final && item.gone) return;
        if (final) return this.fail(item, error);
        await sleep(backoff.next(), signal).catch(ignoreAbort);
      }
    }
  }

  private fail(item: WantedMachine, error: unknown): void {
    this.failed = item.generation;
    const reason =
      error instanceof MachineFault ? error.message : 'The region could not make this machine. Try again.';
    this.report(item.generation, 'failed', reason, {});
  }

  private async make(item: WantedMachine, signal: AbortSignal): Promise<void> {
    const { generation, spec } = item;
    const { driver, blobs } = this.parts;
    const creating = () => this.report(generation, 'creating', null, {}, false, true);
    let seen = await driver.ensure(this.id, spec, { signal, creating, blobs });
    if (spec.power === 'running' && seen.state === 'stopped') {
      this.seen(generation, 'starting', seen, true);
      seen = await driver.power(this.id, 'start', spec, spec.boot, signal);
    } else if (spec.power === 'running' && seen.facts.boot < spec.boot) {
      seen = await driver.power(this.id, 'restart', spec, spec.boot, signal);
    } else if (spec.power === 'stopped' && seen.state === 'running') {
      this.seen(generation, 'stopping', seen, true);
      seen = await driver.power(this.id, 'stop', spec, spec.boot, signal);
    }
    signal.throwIfAborted();
    this.seen(generation, seen.state, seen);
    this.lookAgain(item, seen);
  }

  private lookAgain(item: WantedMachine, { state, facts }: MachineObservation): void {
    const about = `${facts.started_at} ${item.spec.disk_gb}`;
    if (this.looked.about !== about) this.looked = { about, times: 0 };
    const waits = facts.guest_agent === 'absent' || facts.disk_gb < item.spec.disk_gb;
    if (state !== 'running' || !waits || this.looked.times >= looks) return;
    if (this.looking) clearTimeout(this.looking);
    this.looking = setTimeout(
      () => {
        this.turn = this.turn.then(() => this.apply(item));
      },
      1_000 * 2 ** this.looked.times++,
    ).unref();
  }

  private seen(
    generation: number,
    state: MachineState,
    { facts }: MachineObservation,
    passing = false,
  ): void {
    this.report(generation, state, null, facts, false, passing);
  }

  private report(
    generation: number,
    state: MachineState,
    reason: string | null,
    facts: Partial<MachineFacts>,
    last = false,
    passing = false,
  ): void {
    const { driver, reporter } = this.parts;
    const said = { driver: driver.name, real: driver.real, ...facts };
    const observation = { kind: 'vm' as const, id: this.id, generation, state, reason, facts: said };
    const words = JSON.stringify(observation);
    // The control plane that asks again whether something is gone wants to hear it again.
    if (words === this.reported && !last) return;
    this.reported = words;
    reporter.report(observation, last, passing);
  }
}
