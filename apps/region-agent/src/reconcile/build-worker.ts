import { isDeepStrictEqual } from 'node:util';
import { type BuildSpec, type Wanted } from '@nebo/contracts';
import { type AgentLog } from '../agent-log.js';
import { type BlobAccess, type BuildDriver } from '../drivers/types.js';
import { type LogShipper, type LogWriter } from '../log/log-shipper.js';
import { type Places, settledWithin } from '../system/timing.js';
import { isOf, type Outcomes } from './outcomes.js';
import { type Reporter } from './reporter.js';
import { type Worker } from './worker.js';

export interface BuildParts {
  driver: BuildDriver;
  /** @param tell hears a sentence for the user when the control plane is waited for */
  blobs: (tell: (sentence: string) => void) => BlobAccess;
  shipper: LogShipper;
  reporter: Reporter;
  outcomes: Outcomes;
  /** How many builds run at a time. */
  places: Places;
  log: AgentLog;
}

interface Present {
  spec: BuildSpec;
  generation: number;
  stop: AbortController;
  work: Promise<void>;
}

type WantedBuild = Extract<Wanted, { kind: 'build' }>;

/** One build: the newest generation wins, older work is aborted, an end is reported once its log has been taken. */
export class BuildWorker implements Worker {
  private newest: WantedBuild | null = null;
  private present: Present | null = null;
  private turn: Promise<void> = Promise.resolve();
  private ended = false;

  constructor(
    private readonly id: string,
    private readonly parts: BuildParts,
  ) {}

  want(item: Wanted): void {
    if (item.kind !== 'build' || this.ended) return;
    if (this.newest && item.generation <= this.newest.generation) return;
    this.newest = item;
    // A change that makes the running work useless ends it at once, not when its turn comes.
    if (this.present && (item.gone || !isDeepStrictEqual(this.present.spec, item.spec)))
      this.present.stop.abort();
    this.turn = this.turn
      .then(() => this.apply(item))
      .catch((error: unknown) => {
        // The next full comparison tries again.
        if (this.newest === item) this.newest = null;
        this.parts.log.error(
          { build: this.id, error: String((error as Error)?.stack ?? error) },
          'build was not reconciled',
        );
      });
  }

  async vanished(): Promise<void> {
    this.ended = true;
    const generation = this.newest?.generation ?? 0;
    this.present?.stop.abort();
    await this.turn;
    await this.present?.work;
    const outcome = this.parts.outcomes.get(this.id);
    await this.parts.outcomes.drop(this.id);
    // What has ended is known as that: said for the last time, it only has the reporter forget it.
    if (outcome) this.parts.reporter.report({ ...outcome.observation }, true);
    else if (this.newest) this.say({ generation, state: 'cancelled' }, true);
  }

  async stop(): Promise<void> {
    this.ended = true;
    this.present?.stop.abort();
    await this.turn;
    await this.present?.work;
  }

  private say(what: { generation: number; state: 'building' | 'cancelled' }, last = false): void {
    this.parts.reporter.report({ kind: 'build', id: this.id, reason: null, facts: {}, ...what }, last);
  }

  private async apply(item: WantedBuild): Promise<void> {
    if (this.ended || item !== this.newest) return;
    const { outcomes, reporter } = this.parts;
    const { generation, spec } = item;
    const running = this.present;
    if (running && !item.gone && isDeepStrictEqual(running.spec, spec) && !running.stop.signal.aborted) {
      running.generation = generation;
      return;
    }
    running?.stop.abort();
    await running?.work;
    const kept = outcomes.get(this.id);
    if (item.gone) {
      // What has ended stays what it was; `cancelled` is for what did not get to its end.
      if (kept) reporter.report({ ...kept.observation, generation }, true);
      else this.say({ generation, state: 'cancelled' }, true);
      await outcomes.drop(this.id);
      return;
    }
    const same = kept && isOf(kept, spec);
    if (
      kept &&
      same &&
      (kept.observation.generation === generation || kept.observation.state === 'success')
    ) {
      reporter.report({ ...kept.observation, generation });
      return;
    }
    await outcomes.drop(this.id);
    const stop = new AbortController();
    const present = { spec, generation, stop, work: Promise.resolve() };
    this.present = present;
    present.work = this.build(present).finally(() => {
      if (this.present === present) this.present = null;
    });
  }

  private async build(present: Present): Promise<void> {
    const { driver, shipper, places } = this.parts;
    const { spec } = present;
    const { signal } = present.stop;
    let writer: LogWriter | null = null;
    const blobs = this.parts.blobs((sentence) => writer?.line(`note: ${sentence}`));
    const make = async (): Promise<void> => {
      this.say({ generation: present.generation, state: 'building' });
      writer = await shipper.open(spec.log_stream);
      if (!driver.isolated) writer.line('note: this region builds without isolation (simulated driver)');
      const outcome = await driver.build(this.id, spec, { log: writer, blobs, signal });
      signal.throwIfAborted();
      const said =
        outcome.state === 'success'
          ? { reason: null, facts: { ...outcome.facts } }
          : { reason: outcome.reason, facts: { ...outcome.facts } };
      await this.finish(present, writer, { state: outcome.state, ...said });
    };
    try {
      await places.run(make, signal, spec.account_id);
    } catch (error) {
      const log = writer as LogWriter | null;
      if (signal.aborted) {
        // `apply` or `vanished` says what an aborted build is now. Not awaited: its log must not hold its place.
        log?.line('the build was cancelled');
        void log?.close(!this.ended);
        return;
      }
      this.parts.log.error(
        { build: this.id, error: String((error as Error)?.stack ?? error) },
        'build could not be made',
      );
      const reason = 'The region could not make this build. Deploy again.';
      log?.line(reason);
      await this.finish(present, log, { state: 'error', reason, facts: {} });
    }
  }

  /** Keeps the outcome, closes the log, reports: in this order, so that a crash between repeats and loses nothing. */
  private async finish(
    present: Present,
    writer: LogWriter | null,
    said: { state: 'success' | 'error'; reason: string | null; facts: Record<string, unknown> },
  ): Promise<void> {
    const { outcomes, reporter } = this.parts;
    const observation = { kind: 'build' as const, id: this.id, generation: present.generation, ...said };
    await outcomes.keep(this.id, present.spec, observation);
    // The last line is taken before the end is known; a control plane that is away must not hold the place for ever.
    if (writer) await settledWithin(writer.close(true), 30_000);
    reporter.report({ ...observation, generation: present.generation });
  }
}
