import { join } from 'node:path';
import { type Run } from '../../system/runs.js';
import { sleep } from '../../system/timing.js';
import { type Toolchain } from '../../system/toolchain.js';
import { proxyEnv } from '../egress-env.js';
import { type BuildHost, type BuildSandbox, type SandboxCommand, type SandboxProcess } from '../sandbox.js';
import { type Egress } from '../types.js';
import { plainEnv, startPlain } from './process.js';

/** Builds as plain child processes: for laptops and tests. Not isolated; only the wall clock bounds them. */
export class SimulatedBuildHost implements BuildHost {
  readonly isolated = false;

  constructor(private readonly options: { tools: Toolchain; egress: Egress | null; wallMs: number }) {}

  async cleanUp(): Promise<void> {
    // Processes and folders are found by their records, which the agent has cleaned up before.
  }

  async open(run: Run): Promise<BuildSandbox> {
    const { tools, egress, wallMs } = this.options;
    const running = new Set<SandboxProcess>();
    const until = Date.now() + wallMs;
    return {
      tree: join(run.dir, 'src'),
      owner: null,
      cache: { dir: join(run.dir, 'cache'), inside: join(run.dir, 'cache') },
      env: [...plainEnv(run, tools), ...(egress ? proxyEnv(egress.proxyUrl) : [])],
      run: (command) => this.start(run, command, running, until),
      close: async () => {
        await Promise.all([...running].map((child) => child.stop(0)));
      },
    };
  }

  private async start(
    run: Run,
    command: SandboxCommand,
    running: Set<SandboxProcess>,
    until: number,
  ): Promise<SandboxProcess> {
    const child = await startPlain(
      run,
      command.command,
      join(run.dir, 'src', command.cwd),
      command.env,
      command,
    );
    running.add(child);
    const stopClock = new AbortController();
    let limit: string | null = null;
    sleep(Math.max(1, until - Date.now()), stopClock.signal).then(
      () => {
        limit = `took longer than ${Math.round(this.options.wallMs / 1000)} s`;
        return child.stop(0);
      },
      () => undefined,
    );
    const exited = child.exited.then((exit) => {
      stopClock.abort();
      running.delete(child);
      return { ...exit, limit };
    });
    return { exited, stop: (graceMs) => child.stop(graceMs) };
  }
}
