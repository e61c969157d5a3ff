import { type ReplicaSpec } from '@nebo/contracts';
import { type AgentLog } from '../agent-log.js';
import { type ReplicaHost, type ReplicaProcess } from '../drivers/sandbox.js';
import { type ReplicaIo, type ReplicaObservation } from '../drivers/types.js';
import { LineSplitter } from '../log/lines.js';
import { Redactor } from '../log/redact.js';
import { type Run, type Runs } from '../system/runs.js';
import { Backoff, ignoreAbort, isAbort, sleep } from '../system/timing.js';
import { type ArtifactCache } from './artifact-cache.js';
import { probe } from './probe.js';

/** Crashes before the first readiness after which a replica has failed. */
const startAttempts = 3;
/** Lines kept for `logs` and for reasons. */
const keptLines = 50;

export interface SupervisorParts {
  host: ReplicaHost;
  runs: Runs;
  cache: ArtifactCache;
  log: AgentLog;
  /** Time between SIGTERM and SIGKILL, milliseconds. */
  graceMs: number;
}

/** One replica of one spec: starts it, waits until it is ready, starts it again after a crash, ends it. */
export class ReplicaSupervisor {
  readonly lines: string[] = [];
  observation: ReplicaObservation;
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
    const facts = { isolated: parts.host.isolated };
    this.observation = { id, generation, state: 'starting', reason: null, facts };
  }

  start(): void {
    this.io.changed(this.observation);
    this.life = this.live().catch((error: unknown) => {
      if (this.stopping.signal.aborted) return;
      this.parts.log.error({ replica: this.id, error: String(error) }, 'replica could not be kept');
      this.observe({ state: 'failed', reason: 'The region could not start this replica. Try again.' });
    });
  }

  /** Only the number has changed. */
  renumber(generation: number): void {
    this.observe({ generation });
  }

  /** Ends the replica; settled when nothing of it is left. */
  async stop(): Promise<void> {
    this.stopping.abort();
    await this.life;
  }

  private observe(change: Partial<ReplicaObservation>): void {
    this.observation = { ...this.observation, ...change };
    if (!this.stopping.signal.aborted) this.io.changed(this.observation);
  }

  private say(line: string): void {
    this.io.log.line(line);
  }

  private async live(): Promise<void> {
    const { signal } = this.stopping;
    const { cache, host, runs } = this.parts;
    const artifact = await this.artifact();
    if (!artifact) return;
    const backoff = new Backoff(500, 30_000);
    let crashes = 0;
    try {
      while (!signal.aborted) {
        const run = runs.create('replica', this.id);
        const output = new LineSplitter(this.redactor, (line) => this.output(line));
        const startedAt = new Date();
        let child: ReplicaProcess;
        try {
          child = await host.launch(run, artifact, this.spec, (chunk) => output.push(chunk));
        } catch (error) {
          await run.forget();
          throw error;
        }
        const ended = await this.attend(child, run, startedAt, output);
        if (ended === null) return;
        if (ended.wasReady) {
          crashes = 0;
          if (Date.now() - startedAt.getTime() > 60_000) backoff.reset();
        } else if (++crashes >= startAttempts) {
          this.observe({ state: 'failed', reason: ended.reason });
          this.say(`nebo: the replica has failed: ${ended.reason}`);
          return;
        }
        const wait = backoff.next();
        const again = `${ended.reason}; it starts again in ${(wait / 1000).toFixed(1)} s`;
        this.say(`nebo: ${again}`);
        this.observe({ state: 'starting', reason: again, facts: { isolated: host.isolated } });
        await sleep(wait, signal).catch(ignoreAbort);
      }
    } finally {
      cache.release(this.spec.artifact.sha256);
    }
  }

  /** The artifact's folder; a download that fails is tried again until the replica's time is up. */
  private async artifact(): Promise<string | null> {
    const { signal } = this.stopping;
    const backoff = new Backoff(300, 5_000);
    for (const until = Date.now() + Math.max(this.spec.ready_timeout_ms, 30_000); ;) {
      try {
        return await this.parts.cache.hold(this.spec.artifact.sha256, this.io.blobs, signal);
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

  /** One life of the process: null when it was stopped or has failed for good, otherwise why it ended. */
  private async attend(
    child: ReplicaProcess,
    run: Run,
    startedAt: Date,
    output: LineSplitter,
  ): Promise<{ wasReady: boolean; reason: string } | null> {
    const { signal } = this.stopping;
    const over = new AbortController();
    const facts = {
      host: child.host,
      port: child.port,
      started_at: startedAt.toISOString(),
      ready_at: null,
      isolated: this.parts.host.isolated,
    };
    let wasReady = false;
    const exited = child.exited.then((exit) => {
      over.abort();
      return exit;
    });
    const either = AbortSignal.any([signal, over.signal]);
    try {
      const verdict = await this.becomeReady(child, either);
      if (verdict.ready) {
        wasReady = true;
        this.observe({
          state: 'ready',
          reason: null,
          facts: { ...facts, ready_at: new Date().toISOString() },
        });
        await aborted(either);
      } else if (!either.aborted) {
        const seconds = Math.round(this.spec.ready_timeout_ms / 1000);
        const reason = `The app was not ready within ${seconds} s: ${verdict.found}.`;
        await child.stop(this.parts.graceMs);
        output.end();
        this.say(`nebo: ${reason}`);
        this.observe({ state: 'failed', reason, facts });
        return null;
      }
      if (signal.aborted) {
        await child.stop(this.parts.graceMs);
        output.end();
        return null;
      }
      const exit = await exited;
      output.end();
      const last = tellingLine(this.lines);
      const what = exit.limit ?? `exited with code ${exit.code}`;
      return { wasReady, reason: last === undefined ? what : `${what}: ${last.slice(0, 500)}` };
    } finally {
      await child.stop(0);
      await run.forget();
    }
  }

  private async becomeReady(
    child: ReplicaProcess,
    signal: AbortSignal,
  ): Promise<{ ready: boolean; found: string }> {
    const until = Date.now() + this.spec.ready_timeout_ms;
    let found = 'it was not asked yet';
    const cut = aborted(signal).then(() => null);
    try {
      while (!signal.aborted && Date.now() < until) {
        const began = Date.now();
        const left = Math.min(5_000, until - began);
        const result = await Promise.race([
          probe(child.host, child.port, this.spec.readiness_path, left),
          cut,
        ]);
        if (result === null) break;
        if (result.ready) return result;
        found = result.found;
        await sleep(Math.max(0, 100 - (Date.now() - began)), signal);
      }
    } catch (error) {
      if (!isAbort(error)) throw error;
    }
    return { ready: false, found };
  }

  private output(line: string): void {
    this.lines.push(line);
    if (this.lines.length > keptLines) this.lines.shift();
    this.say(line);
  }
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
