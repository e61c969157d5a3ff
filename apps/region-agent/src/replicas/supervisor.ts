import { type ReplicaSpec } from '@nebo/contracts';
import { type AgentLog } from '../agent-log.js';
import { networkWords } from '../drivers/address-book.js';
import { LaunchRefused, type ReplicaHost, type ReplicaProcess } from '../drivers/sandbox.js';
import { type ReplicaIo, type ReplicaObservation } from '../drivers/types.js';
import { LineSplitter } from '../log/lines.js';
import { Redactor } from '../log/redact.js';
import { type Run, type Runs } from '../system/runs.js';
import { Backoff, ignoreAbort, isAbort, sleep } from '../system/timing.js';
import { type MeteredLife, type UsageMeter } from '../usage/meter.js';
import { type Artifacts } from './artifacts.js';
import { directStart } from './direct-start.js';
import { OnDemand } from './on-demand.js';
import { probe } from './probe.js';

/** Crashes before readiness after which a start has failed. */
const startAttempts = 3;
/** Lines kept for `logs`. */
const keptLines = 50;
/** Lines of the log in a reason, and how much of each. */
const toldLines = 10;
const toldChars = 200;
/** Patience of one look at a starting replica, and the pause between two: a short one as long as it is young and silent. */
const lookMs = 5_000;
const pauseMs = 100;
const youngPauseMs = 10;
const youngMs = 5_000;
/** A replica that was ready for so long was well; what ends it afterwards is a new trouble. */
const wellMs = 60_000;

export interface SupervisorParts {
  host: ReplicaHost;
  runs: Runs;
  cache: Artifacts;
  log: AgentLog;
  /** Measures what is charged by use. */
  meter: UsageMeter;
  /** Time between SIGTERM and SIGKILL, milliseconds. */
  graceMs: number;
}

/** How one life of the process ended by itself. */
type Ending =
  | { how: 'idle' }
  | { how: 'crash'; wasReady: boolean; reason: string }
  /** Not ready in time, and stopped. */
  | { how: 'late'; reason: string };

/**
 * One replica of one spec: starts it, waits until it is ready, starts it again after a crash, ends it. On demand it is put to
 * sleep when nobody holds it any more and is started by the next hold. Between two starts after a crash there is always a
 * pause, 0.5 s to 30 s.
 */
export class ReplicaSupervisor {
  readonly lines: string[] = [];
  /** Who uses it; null: it runs always. */
  readonly onDemand: OnDemand | null;
  observation: ReplicaObservation;
  /** The log of this life of the process alone. */
  private told: string[] = [];
  /** Crashes in a row, and those of them before readiness. */
  private crashes = 0;
  private failedStarts = 0;
  private readyAt: string | null = null;
  private readonly stopping = new AbortController();
  private readonly redactor: Redactor;
  private life: Promise<void> = Promise.resolve();

  constructor(
    private readonly id: string,
    generation: number,
    readonly spec: ReplicaSpec,
    private readonly parts: SupervisorParts,
    private readonly io: ReplicaIo,
  ) {
    this.redactor = new Redactor(spec.env.filter((entry) => entry.secret).map((entry) => entry.value));
    const { on_demand: onDemand } = spec;
    this.onDemand = onDemand && io.wakeable ? new OnDemand(onDemand.idle_ms) : null;
    this.observation = { id, generation, state: 'starting', reason: null, facts: this.facts() };
  }

  start(): void {
    this.io.changed(this.observation);
    this.life = this.live()
      .catch((error: unknown) => {
        if (this.stopping.signal.aborted) return;
        this.parts.log.error({ replica: this.id, error: String(error) }, 'replica could not be kept');
        const reason =
          error instanceof LaunchRefused
            ? error.message
            : 'The region could not start this replica. Try again.';
        this.observe({ state: 'failed', reason });
      })
      .finally(() => this.onDemand?.end(this.stopping.signal.aborted ? 'unknown' : 'failed'));
  }

  /** Only the number has changed. */
  renumber(generation: number): void {
    this.observe({ generation });
  }

  /** Ends the replica; settled when nothing of it is left. */
  async stop(): Promise<void> {
    this.stopping.abort();
    await this.life;
    this.say(`nebo: replica ${this.id.slice(0, 8)} has stopped`);
  }

  private observe(change: Partial<ReplicaObservation>): void {
    this.observation = { ...this.observation, ...change };
    if (!this.stopping.signal.aborted) this.io.changed(this.observation);
  }

  private say(line: string): void {
    this.io.log.line(line);
  }

  private facts(more: object = {}): ReplicaObservation['facts'] {
    const wakeable = this.onDemand !== null;
    return {
      isolated: this.parts.host.isolated,
      wakeable,
      crashes: this.crashes,
      ready_at: this.readyAt,
      ...more,
    };
  }

  private async live(): Promise<void> {
    const { signal } = this.stopping;
    const { cache } = this.parts;
    const artifact = await this.artifact();
    if (!artifact) return;
    const backoff = new Backoff(500, 30_000);
    let proven = this.spec.on_demand?.proven ?? false;
    let reason: string | null = null;
    try {
      while (!signal.aborted) {
        if (this.onDemand && proven) {
          await this.asleep(this.onDemand, reason);
          if (signal.aborted) return;
        }
        const begun = Date.now();
        const ended = await this.once(artifact);
        if (ended === null) return;
        proven ||= ended.how === 'idle' || (ended.how === 'crash' && ended.wasReady);
        if (ended.how === 'idle') {
          reason = null;
          this.crashes = this.failedStarts = 0;
          backoff.reset();
          continue;
        }
        this.count(ended, Date.now() - begun, backoff);
        if (!(this.onDemand && proven) && (ended.how === 'late' || this.failedStarts >= startAttempts)) {
          this.say(`nebo: the replica has failed: ${ended.reason}`);
          this.observe({ state: 'failed', reason: this.withLog(ended.reason), facts: this.facts() });
          return;
        }
        reason = await this.pause(ended, backoff.next());
      }
    } finally {
      cache.release(this.spec);
    }
  }

  private count(ended: Exclude<Ending, { how: 'idle' }>, livedMs: number, backoff: Backoff): void {
    if (ended.how === 'crash' && ended.wasReady) {
      this.failedStarts = 0;
      if (livedMs > wellMs) {
        this.crashes = 0;
        backoff.reset();
        // A replica on demand need not be up: one end after a good life is no trouble yet.
        if (this.onDemand) return;
      }
    } else this.failedStarts++;
    this.crashes++;
  }

  /**
   * After a crash: says what happened and lets time pass, or on demand only notes when the next start may be.
   * @returns the reason to show meanwhile
   */
  private async pause(ended: Exclude<Ending, { how: 'idle' }>, waitMs: number): Promise<string> {
    const { signal } = this.stopping;
    const again = `${ended.reason}; it starts again in ${(waitMs / 1000).toFixed(1)} s`;
    if (!this.onDemand) {
      this.say(`nebo: ${again}`);
      this.observe({ state: 'starting', reason: this.withLog(again), facts: this.facts() });
      await sleep(waitMs, signal).catch(ignoreAbort);
      return again;
    }
    this.onDemand.rest(waitMs);
    if (ended.how === 'late') this.onDemand.refuse('not_ready', waitMs);
    else if (this.failedStarts >= startAttempts) this.onDemand.refuse('crashed', waitMs);
    const shown = this.onDemand.waiting > 0 ? again : `${ended.reason}; the next request starts it`;
    this.say(`nebo: ${shown}`);
    return this.withLog(shown);
  }

  /** Until somebody wants it. */
  private async asleep(onDemand: OnDemand, reason: string | null): Promise<void> {
    const state = onDemand.waiting > 0 ? 'starting' : 'sleeping';
    this.observe({ state, reason, facts: this.facts() });
    await onDemand.wanted(this.stopping.signal);
    if (!this.stopping.signal.aborted) this.observe({ state: 'starting', reason, facts: this.facts() });
  }

  /** One start: null when it was stopped. */
  private async once(artifact: string): Promise<Ending | null> {
    const { host, runs } = this.parts;
    const run = runs.create('replica', this.id);
    this.told = [];
    this.say(`nebo: replica ${this.id.slice(0, 8)} starts`);
    const output = new LineSplitter(this.redactor, (line) => this.output(line));
    const startedAt = new Date();
    let child: ReplicaProcess;
    const { port } = this.spec;
    if (port) this.say(networkWords(port, host.joins));
    try {
      // What an image starts is its own matter.
      const start_command = this.spec.image
        ? this.spec.start_command
        : await directStart(artifact, this.spec.start_command);
      const spec = { ...this.spec, start_command };
      child = await host.launch(run, artifact, spec, (chunk) => output.push(chunk), this.stopping.signal);
    } catch (error) {
      await run.forget();
      throw error;
    }
    // One that runs always is paid by the month; one that may not sleep, since no edge can wake it here, costs nothing.
    const life = this.onDemand
      ? meterLife(this.parts, { kind: 'replica', owner: this.id }, run, child, this.spec.vcpu)
      : null;
    return this.attend(child, run, startedAt, output).finally(() => life?.end());
  }

  /** The artifact's folder; a download that fails is tried again until the replica's time is up. */
  private async artifact(): Promise<string | null> {
    const { signal } = this.stopping;
    const backoff = new Backoff(300, 5_000);
    for (const until = Date.now() + Math.max(this.spec.ready_timeout_ms, 30_000); ;) {
      try {
        return await this.parts.cache.hold(this.spec, this.io.blobs, signal);
      } catch (error) {
        if (signal.aborted) return null;
        this.parts.log.warn({ replica: this.id, error: String(error) }, 'artifact could not be fetched');
        if (Date.now() > until) {
          this.observe({ state: 'failed', reason: 'The artifact could not be fetched. Deploy again.' });
          return null;
        }
        await sleep(backoff.next(), signal).catch(ignoreAbort);
      }
    }
  }

  /** One life of the process: null when it was stopped, otherwise how it ended. */
  private async attend(
    child: ReplicaProcess,
    run: Run,
    startedAt: Date,
    output: LineSplitter,
  ): Promise<Ending | null> {
    const { signal } = this.stopping;
    const over = new AbortController();
    const exited = child.exited.then((exit) => {
      over.abort();
      return exit;
    });
    const either = AbortSignal.any([signal, over.signal]);
    const end = async (ending: Ending | null): Promise<Ending | null> => {
      await child.stop(this.parts.graceMs);
      output.end();
      return ending;
    };
    let wasReady = false;
    try {
      const verdict = await this.becomeReady(child, either);
      if (verdict.ready) {
        wasReady = true;
        if (await this.serve(child, startedAt, either)) {
          const seconds = Math.round(this.spec.on_demand!.idle_ms / 1000);
          this.say(`nebo: not used for ${seconds} s, it sleeps until the next request`);
          return await end({ how: 'idle' });
        }
      } else if (!either.aborted) {
        const seconds = Math.round(this.spec.ready_timeout_ms / 1000);
        return await end({
          how: 'late',
          reason: `The app was not ready within ${seconds} s: ${verdict.found}.`,
        });
      }
      if (signal.aborted) return await end(null);
      const exit = await exited;
      output.end();
      const last = tellingLine(this.told);
      const what = exit.limit ?? `exited with code ${exit.code}`;
      const reason = last === undefined ? what : `${what}: ${last.slice(0, 500)}`;
      return { how: 'crash', wasReady, reason };
    } finally {
      this.onDemand?.shut();
      await child.stop(0);
      await run.forget();
    }
  }

  /** @returns true when it is to go to sleep, false when it has ended or is stopped */
  private async serve(child: ReplicaProcess, startedAt: Date, ended: AbortSignal): Promise<boolean> {
    const { host, port } = child;
    this.readyAt = new Date().toISOString();
    const facts = this.facts({ host, port, started_at: startedAt.toISOString() });
    this.observe({ state: 'ready', reason: null, facts });
    if (ended.aborted) return false;
    const over = aborted(ended).then(() => false);
    return this.onDemand ? Promise.race([this.onDemand.open(host, port).then(() => true), over]) : over;
  }

  private async becomeReady(
    child: ReplicaProcess,
    signal: AbortSignal,
  ): Promise<{ ready: boolean; found: string }> {
    const since = Date.now();
    const until = since + this.spec.ready_timeout_ms;
    let found = 'it was not asked yet';
    let asked = false;
    const cut = aborted(signal).then(() => null);
    try {
      while (!signal.aborted && Date.now() < until) {
        const began = Date.now();
        const left = Math.min(lookMs, until - began);
        const result = await Promise.race([
          probe(child.host, child.port, this.spec.readiness_path, left),
          cut,
        ]);
        if (result === null) break;
        if (result.ready) return result;
        // A look that had no time left says less than the one before it.
        if (result.silence !== 'late' || left === lookMs || !asked) found = result.found;
        asked = true;
        // While it starts it says nothing yet, so it costs nothing to look often; an app that answers is not hurried.
        const young = result.silence === 'refused' && began - since < youngMs;
        await sleep(Math.max(0, (young ? youngPauseMs : pauseMs) - (Date.now() - began)), signal);
      }
    } catch (error) {
      if (!isAbort(error)) throw error;
    }
    return { ready: false, found };
  }

  private output(line: string): void {
    for (const kept of [this.lines, this.told]) {
      kept.push(line);
      if (kept.length > keptLines) kept.shift();
    }
    this.say(line);
  }

  /** A reason with the end of the log behind it, on lines of their own; one line alone is in the reason already. */
  private withLog(reason: string): string {
    const last = this.told.filter((line) => line.trim() !== '').slice(-toldLines);
    if (last.length < 2) return reason;
    return [`${reason}\nThe end of its log:`, ...last.map((line) => `  ${line.slice(0, toldChars)}`)].join(
      '\n',
    );
  }
}

/** Begins to measure a process that was just started. */
export function meterLife(
  { meter, host }: Pick<SupervisorParts, 'meter' | 'host'>,
  of: { kind: 'replica' | 'run'; owner: string },
  run: Run,
  child: ReplicaProcess,
  vcpu: number,
): MeteredLife {
  const { cpu } = child;
  // What is not isolated is a stand-in: it runs, but nobody pays for it.
  const facts = { id: run.name, real: host.isolated, counted: cpu !== undefined, vcpu };
  return meter.begin({ ...of, ...facts }, () => cpu?.() ?? Promise.resolve(null));
}

/** The last line that says something: not the frames and the footer that Node prints behind an error. */
export function tellingLine(lines: readonly string[]): string | undefined {
  // eslint-disable-next-line no-control-regex
  const plain = lines.map((line) => line.replace(/\u001b\[[0-9;]*m/g, '').trim());
  return plain.findLast((line) => line !== '' && !/^(at |Node\.js v\d|[{}^]+$)/.test(line));
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
