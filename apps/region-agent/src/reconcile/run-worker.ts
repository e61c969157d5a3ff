import { type RunSpec, type RunState, type Wanted } from '@nebo/contracts';
import { type AgentLog } from '../agent-log.js';
import { type RunDriver } from '../drivers/run-driver.js';
import { LaunchRefused } from '../drivers/sandbox.js';
import { type RecordLog } from '../drivers/simulated/record-log.js';
import { type BlobAccess } from '../drivers/types.js';
import { type LogShipper, type LogWriter } from '../log/log-shipper.js';
import { type Places, settledWithin } from '../system/timing.js';
import { type Reporter } from './reporter.js';
import { type Worker } from './worker.js';

/** How a run ended. */
export interface RunEnd {
  state: Exclude<RunState, 'running'>;
  reason: string | null;
  facts: Record<string, unknown>;
}

/** What is kept on disk of a run from just before its start until the control plane does not list it any more. */
export interface RunRecord {
  id: string;
  /** Null while it runs: found so by another agent, nobody saw its end. */
  end: RunEnd | null;
}

export interface RunParts {
  driver: RunDriver;
  blobs: BlobAccess;
  shipper: LogShipper;
  reporter: Reporter;
  records: RecordLog<RunRecord>;
  /** How many runs there may be at a time. */
  places: Places;
  log: AgentLog;
}

type WantedRun = Extract<Wanted, { kind: 'run' }>;

const interrupted: RunEnd = {
  state: 'error',
  reason: 'the region was interrupted while this run was under way; it is not repeated',
  facts: {},
};

/**
 * One run: starts its command once and never again. `running` is taken by the control plane before the command starts, and
 * a record is on disk: whoever finds either without the process says that the run was interrupted.
 */
export class RunWorker implements Worker {
  private newest: WantedRun | null = null;
  private readonly cut = new AbortController();
  private turn: Promise<void> = Promise.resolve();
  private work: Promise<void> | null = null;
  private ended = false;

  constructor(
    private readonly id: string,
    private readonly parts: RunParts,
  ) {}

  want(item: Wanted): void {
    if (item.kind !== 'run' || this.ended) return;
    if (this.newest && item.generation <= this.newest.generation) return;
    this.newest = item;
    if (item.gone) this.cut.abort();
    this.turn = this.turn
      .then(() => this.apply(item))
      .catch((error: unknown) => {
        // The next full comparison tries again.
        if (this.newest === item) this.newest = null;
        const text = String((error as Error)?.stack ?? error);
        this.parts.log.error({ run: this.id, error: text }, 'run was not reconciled');
      });
  }

  async vanished(): Promise<void> {
    await this.finishWork();
    await this.parts.records.delete(this.id);
    // Known as ended there: this only has the reporter forget it.
    if (this.newest) this.say({ state: 'cancelled', reason: null, facts: {} }, true);
  }

  async stop(): Promise<void> {
    await this.finishWork();
    const record = this.parts.records.records.get(this.id);
    // What did not begin waits for the next agent.
    if (record && record.end === null && this.newest) await this.keep(interrupted);
  }

  private async finishWork(): Promise<void> {
    this.ended = true;
    this.cut.abort();
    await this.turn;
    await this.work;
  }

  private say(
    end: RunEnd | { state: 'running'; reason: null; facts: Record<string, unknown> },
    last = false,
  ): void {
    const { generation } = this.newest!;
    this.parts.reporter.report({ kind: 'run', id: this.id, generation, ...end }, last);
  }

  private async keep(end: RunEnd): Promise<void> {
    await this.parts.records.set({ id: this.id, end });
    this.say(end);
  }

  private async apply(item: WantedRun): Promise<void> {
    if (this.ended || item !== this.newest) return;
    const { records } = this.parts;
    if (item.gone) await this.work;
    const record = records.records.get(this.id);
    if (record?.end) return this.say(record.end, item.gone);
    if (item.gone) return this.say({ state: 'cancelled', reason: null, facts: {} }, true);
    // Another generation of the same run changes nothing: it is under way.
    if (this.work) return;
    if (record || item.spec.begun) return this.keep(interrupted);
    this.work = this.begin(item.spec);
  }

  private async begin(spec: RunSpec): Promise<void> {
    const { signal } = this.cut;
    let writer: LogWriter | null = null;
    const make = async (): Promise<void> => {
      const { driver, blobs, shipper, reporter, records } = this.parts;
      writer = await shipper.open(spec.log_stream);
      this.say({ state: 'running', reason: null, facts: { isolated: driver.isolated } });
      await reporter.taken('run', this.id, signal);
      await records.set({ id: this.id, end: null });
      const outcome = await driver.run(this.id, spec, { log: writer, blobs, signal });
      await this.finish(writer, { ...outcome, facts: { ...outcome.facts } });
    };
    try {
      await this.parts.places.run(make, signal, spec.account_id);
    } catch (error) {
      const log = writer as LogWriter | null;
      if (signal.aborted) {
        // `apply`, `vanished` or `stop` says what it is now. Not awaited: its log must not hold its place.
        void log?.close(!this.ended);
        return;
      }
      const text = String((error as Error)?.stack ?? error);
      this.parts.log.error({ run: this.id, error: text }, 'run could not be made');
      const reason =
        error instanceof LaunchRefused
          ? error.message
          : 'the region could not start the command; run it again';
      await this.finish(log, { state: 'error', reason, facts: {} });
    }
  }

  /** Keeps the end, closes the log, reports: in this order, so that a crash between repeats and loses nothing. */
  private async finish(writer: LogWriter | null, end: RunEnd): Promise<void> {
    await this.parts.records.set({ id: this.id, end });
    // The last line is taken before the end is known; a control plane that is away must not hold the place for ever.
    if (writer) await settledWithin(writer.close(true), 30_000);
    this.say(end);
  }
}
