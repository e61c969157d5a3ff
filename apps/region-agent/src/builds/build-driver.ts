import { ArchiveRefused } from '@nebo/archive';
import { type BuildSpec } from '@nebo/contracts';
import { type AgentLog } from '../agent-log.js';
import { type BuildHost, type BuildSandbox } from '../drivers/sandbox.js';
import { type BuildDriver, type BuildIo, type BuildOutcome, type DriverName } from '../drivers/types.js';
import { type ContainerBuilds } from '../engine/container-builds.js';
import { type Runs } from '../system/runs.js';
import { type Toolchain } from '../system/toolchain.js';
import { type Trash } from '../system/trash.js';
import { type BuildCache } from './cache/build-cache.js';
import { Steps } from './steps.js';
import { BuildFailure } from './tree.js';

export interface BuildDriverParts {
  host: BuildHost;
  runs: Runs;
  tools: Toolchain;
  cache: BuildCache;
  /** Takes what a build leaves. */
  trash: Trash;
  /** Builds of Dockerfiles; null: there is no way to ask an engine. */
  containers?: ContainerBuilds | null;
  log: AgentLog;
}

/** Fetch, detect, install, build, package, over any way of enclosing the commands. */
export class HostBuildDriver implements BuildDriver {
  constructor(
    readonly name: DriverName,
    private readonly parts: BuildDriverParts,
  ) {}

  get isolated(): boolean {
    return this.parts.host.isolated;
  }

  get caches(): BuildCache {
    return this.parts.cache;
  }

  async start(): Promise<void> {
    await this.parts.host.cleanUp();
    await this.parts.trash.start();
    await this.parts.cache.start();
    await this.parts.containers?.start();
  }

  async build(id: string, spec: BuildSpec, io: BuildIo): Promise<BuildOutcome> {
    const began = Date.now();
    const run = this.parts.runs.create('build', id);
    let sandbox: BuildSandbox;
    try {
      sandbox = await this.parts.host.open(run);
    } catch (error) {
      await run.forget();
      throw error;
    }
    const steps = new Steps({
      spec,
      io,
      sandbox,
      tools: this.parts.tools,
      cache: this.parts.cache,
      containers: this.parts.containers ?? null,
      name: run.name,
      dir: run.dir,
      fault: (error) => this.fault(id, 'cache', error),
    });
    try {
      const facts = await steps.all();
      return { state: 'success', facts: { ...facts, ...steps.fetched, duration_ms: Date.now() - began } };
    } catch (error) {
      io.signal.throwIfAborted();
      const reason = steps.redactor.redact(this.reason(id, steps.present, error));
      io.log.line(`\u001b[31m${reason}\u001b[0m`);
      if (steps.usesCache)
        io.log.line(
          'It used what earlier builds left: the variable NEBO_BUILD_CACHE=off has a build do without.',
        );
      return { state: 'error', reason, facts: steps.fetched };
    } finally {
      await sandbox.close();
      await this.parts.trash.take(run.dir);
      await run.forget();
    }
  }

  private reason(id: string, step: string, error: unknown): string {
    if (error instanceof BuildFailure || error instanceof ArchiveRefused) return `${step}: ${error.message}`;
    this.fault(id, step, error);
    return `${step}: the region could not finish this step. Deploy again; the operator's log has the cause.`;
  }

  /** Paths and addresses of the host are nothing for users. */
  private fault(id: string, step: string, error: unknown): void {
    this.parts.log.error(
      { build: id, step, error: String((error as Error)?.stack ?? error) },
      'build step failed inside',
    );
  }
}
