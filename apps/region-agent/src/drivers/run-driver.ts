import { type RunFacts, type RunSpec } from '@nebo/contracts';
import { type LogWriter } from '../log/log-shipper.js';
import { LineSplitter } from '../log/lines.js';
import { Redactor } from '../log/redact.js';
import { meterLife, type SupervisorParts, tellingLine } from '../replicas/supervisor.js';
import { Backoff, settledWithin, sleep } from '../system/timing.js';
import { networkWords } from './address-book.js';
import { type ReplicaProcess } from './sandbox.js';
import { type BlobAccess } from './types.js';

export interface RunIo {
  log: LogWriter;
  blobs: BlobAccess;
  /** Fires when the run is not wanted any more or the agent stops. */
  signal: AbortSignal;
}

/** How a run ended; `reason` is a sentence for the user. */
export interface RunOutcome {
  state: 'success' | 'error' | 'timeout';
  reason: string | null;
  facts: RunFacts;
}

/** Runs a command once in a revision's artifact. */
export interface RunDriver {
  readonly isolated: boolean;
  /**
   * Starts the command in a sandbox as a replica has it, and waits for its end; settled when nothing of it is left.
   * @throws the signal's reason when aborted, and what keeps the command from being started
   */
  run(id: string, spec: RunSpec, io: RunIo): Promise<RunOutcome>;
}

/** So long an artifact that does not come is asked for again, milliseconds. */
const fetchMs = 60_000;

/** The run driver over any way of enclosing replicas. */
export class HostRunDriver implements RunDriver {
  constructor(private readonly parts: SupervisorParts) {}

  get isolated(): boolean {
    return this.parts.host.isolated;
  }

  async run(id: string, spec: RunSpec, io: RunIo): Promise<RunOutcome> {
    const { cache, host, runs } = this.parts;
    const folder = await this.artifact(spec, io);
    try {
      const run = runs.create('run', id);
      const lines = new RunLines(io.log);
      const secrets = spec.env.filter(({ secret }) => secret).map(({ value }) => value);
      const output = new LineSplitter(new Redactor(secrets), (line) => lines.add(line));
      try {
        const { command, ...rest } = spec;
        const enclosed = { ...rest, start_command: command, readiness_path: '', ready_timeout_ms: 0 };
        io.signal.throwIfAborted();
        if (spec.port && !host.joins) io.log.line(networkWords(spec.port, false));
        const began = performance.now();
        const child = await host.launch(run, folder, enclosed, (chunk) => output.push(chunk), io.signal);
        const life = meterLife(this.parts, { kind: 'run', owner: id }, run, child, spec.vcpu);
        try {
          return await this.attend(child, spec, io.signal, began, (over) => {
            if (over) output.end();
            return lines.last();
          });
        } finally {
          await child.stop(0);
          await life.end();
          output.end();
          lines.end();
        }
      } finally {
        await run.forget();
      }
    } finally {
      cache.release(spec);
    }
  }

  private async attend(
    child: ReplicaProcess,
    spec: RunSpec,
    signal: AbortSignal,
    began: number,
    lastLine: (over: boolean) => string | undefined,
  ): Promise<RunOutcome> {
    const cut = new Promise<void>((resolve) => {
      if (signal.aborted) resolve();
      else signal.addEventListener('abort', () => resolve(), { once: true });
    });
    const inTime = await settledWithin(Promise.race([child.exited, cut]), spec.timeout_ms);
    const cutShort = signal.aborted;
    // Before it is asked to stop: what a shell says of that is not what the command said.
    const before = lastLine(false);
    if (!inTime || cutShort) await child.stop(this.parts.graceMs);
    const exit = await child.exited;
    const last = inTime ? lastLine(true) : before;
    if (cutShort) throw signal.reason;
    const facts = {
      exit_code: inTime ? exit.code : null,
      duration_ms: Math.round(performance.now() - began),
      isolated: this.isolated,
    };
    const says = last === undefined ? '' : `: ${last.slice(0, 500)}`;
    if (!inTime) {
      const what = `the command did not end within ${Math.round(spec.timeout_ms / 1000)} s`;
      return { state: 'timeout', reason: `${what}${says}`, facts };
    }
    if (exit.code === 0 && exit.limit === null) return { state: 'success', reason: null, facts };
    const how =
      exit.limit ?? (exit.code === null ? 'was ended by a signal' : `exited with code ${exit.code}`);
    return { state: 'error', reason: `the command ${how}${says}`, facts };
  }

  private async artifact(spec: RunSpec, { blobs, signal }: RunIo): Promise<string> {
    const backoff = new Backoff(300, 5_000);
    for (const until = Date.now() + fetchMs; ;) {
      try {
        return await this.parts.cache.hold(spec, blobs, signal);
      } catch (error) {
        if (signal.aborted || Date.now() > until) throw error;
        await sleep(backoff.next(), signal);
      }
    }
  }
}

/** Lines that are sent as they come; of more, the last ones at the end. A command that only prints must not fill the region's way out. */
const liveLines = 5_000;
const lastLines = 200;

class RunLines {
  private sent = 0;
  private readonly held: string[] = [];
  private left = 0;
  private readonly recent: string[] = [];

  constructor(private readonly log: LogWriter) {}

  add(line: string): void {
    this.recent.push(line);
    if (this.recent.length > 20) this.recent.shift();
    if (this.sent < liveLines) {
      this.sent += 1;
      this.log.line(line);
      return;
    }
    this.held.push(line);
    if (this.held.length <= lastLines) return;
    this.held.shift();
    this.left += 1;
  }

  /** The last line that says something. */
  last(): string | undefined {
    return tellingLine(this.recent);
  }

  /** Sends what was held. */
  end(): void {
    if (this.left > 0) this.log.line(`nebo: ${this.left} lines were left out here`);
    for (const line of this.held.splice(0)) this.log.line(line);
  }
}
