import { chown, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { diskUsed } from '../../system/disk.js';
import { type Run } from '../../system/runs.js';
import { isAbort, sleep } from '../../system/timing.js';
import { proxyEnv } from '../egress-env.js';
import {
  type BuildHost,
  type BuildSandbox,
  type Exit,
  type SandboxCommand,
  type SandboxProcess,
} from '../sandbox.js';
import { startEnclosed } from './bwrap.js';
import { type Group } from './cgroups.js';
import { type LocalParts } from './create.js';
import { type RunNetwork } from './networks.js';
import { languagesInside } from './languages.js';
import { type Slot } from './slots.js';

/** No disk of today takes more than this, bytes in a millisecond (2 GB/s). */
const writtenPerMs = 2_000_000;

/** Builds in a sandbox without a network, except to the guarded proxy where there is one. */
export class LocalBuildHost implements BuildHost {
  readonly isolated = true;

  constructor(
    private readonly parts: LocalParts,
    readonly cleanUp: () => Promise<void>,
  ) {}

  async open(run: Run): Promise<BuildSandbox> {
    const { networks, slots, cgroups, egress, limits } = this.parts;
    let network: RunNetwork | null = null;
    let slot: Slot | null = null;
    let group: Group | null = null;
    const release = async () => {
      await group?.remove();
      if (network) await network.close();
      else if (slot) slots.release(slot);
    };
    try {
      network = egress ? await networks.open(run.name) : null;
      slot = network?.slot ?? slots.acquire(() => false);
      group = (await cgroups?.create(run.name, limits)) ?? null;
      // Below the run's own folder (root's, 0700), so that the build cannot swap what is bound.
      const work = join(run.dir, 'work');
      await mkdir(join(work, 'home'), { recursive: true });
      await chown(join(work, 'home'), slot.uid, slot.uid);
      await mkdir(join(work, 'cache'));
    } catch (error) {
      await release();
      throw error;
    }
    return new LocalBuild(this.parts, run, {
      network,
      slot,
      group,
      release,
      until: Date.now() + limits.wallMs,
    });
  }
}

interface Held {
  network: RunNetwork | null;
  slot: Slot;
  group: Group | null;
  release(): Promise<void>;
  /** When the wall clock ends it. */
  until: number;
}

class LocalBuild implements BuildSandbox {
  private readonly running = new Set<SandboxProcess>();

  constructor(
    private readonly parts: LocalParts,
    private readonly run_: Run,
    private readonly held: Held,
  ) {}

  get tree(): string {
    return join(this.run_.dir, 'work/src');
  }

  get owner(): { uid: number; gid: number } {
    return { uid: this.held.slot.uid, gid: this.held.slot.uid };
  }

  get cache(): { dir: string; inside: string } {
    return { dir: join(this.run_.dir, 'work/cache'), inside: '/cache' };
  }

  get env(): { name: string; value: string; secret: boolean }[] {
    const proxy = this.held.network?.proxyUrl;
    return [
      { name: 'HOME', value: '/home/nebo', secret: false },
      ...languagesInside(this.parts.tools, 'build').env,
      ...(proxy ? proxyEnv(proxy) : []),
    ];
  }

  async run(command: SandboxCommand): Promise<SandboxProcess> {
    const { tools, limits } = this.parts;
    const child = await startEnclosed({
      run: this.run_,
      tools,
      uid: this.held.slot.uid,
      network: this.held.network?.namespace ?? null,
      group: this.held.group,
      binds: [
        { from: this.tree, to: '/build', writable: true },
        { from: join(this.run_.dir, 'work/home'), to: '/home/nebo', writable: true },
        { from: this.cache.dir, to: this.cache.inside, writable: true },
        ...languagesInside(tools, 'build').binds,
      ],
      cwd: join('/build', command.cwd),
      env: command.env,
      command: command.command,
      limits: { processes: limits.processes, fileBytes: limits.diskBytes, tmpBytes: 512 * 1024 * 1024 },
      onOutput: (chunk) => command.onOutput(chunk),
      paused: command.paused,
    });
    this.running.add(child);
    const watch = new AbortController();
    const broken = this.watch(watch.signal);
    void broken.then((limit) => (limit ? child.stop(0) : undefined));
    const exited: Promise<Exit> = child.exited.then(async (exit) => {
      watch.abort();
      this.running.delete(child);
      const limit = await broken;
      if (limit) return { ...exit, limit };
      if (exit.limit)
        return { ...exit, limit: `used more than ${Math.round(limits.memoryBytes / 2 ** 20)} MB of memory` };
      // SIGXFSZ: one file alone larger than the disk limit.
      if (exit.code === 153) return { ...exit, limit: this.diskWords() };
      if (exit.code !== 0 && (await this.held.group?.outOfProcesses()))
        return { ...exit, limit: `started more than ${limits.processes} processes` };
      return exit;
    });
    return { exited, stop: (graceMs) => child.stop(graceMs) };
  }

  async close(): Promise<void> {
    await Promise.all([...this.running].map((child) => child.stop(0)));
    await this.held.release();
  }

  private diskWords(): string {
    return `wrote more than ${Math.round(this.parts.limits.diskBytes / 2 ** 20)} MB`;
  }

  /** Looks at clock and disk until a limit is broken (its words) or the signal fires (null). */
  private async watch(signal: AbortSignal): Promise<string | null> {
    const { limits } = this.parts;
    let wait = Math.max(500, Math.min(10_000, limits.diskBytes / writtenPerMs));
    try {
      for (;;) {
        const left = this.held.until - Date.now();
        if (left <= 0) return `took longer than ${Math.round(limits.wallMs / 1000)} s`;
        await sleep(Math.min(left, wait), signal);
        const began = performance.now();
        const used = await diskUsed(join(this.run_.dir, 'work'));
        if (used > limits.diskBytes) return this.diskWords();
        // Counting many small files takes time of the build's own processors: at most a twentieth, and not before what is
        // left can have been written.
        const counting = 20 * (performance.now() - began);
        wait = Math.max(500, Math.min(10_000, Math.max(counting, (limits.diskBytes - used) / writtenPerMs)));
      }
    } catch (error) {
      if (isAbort(error)) return null;
      throw error;
    }
  }
}
