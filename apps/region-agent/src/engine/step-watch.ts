import { type BuildLimits } from '../drivers/create.js';
import { isAbort, sleep } from '../system/timing.js';
import { type EngineClient } from './client.js';
import { type StepGroup } from './step-groups.js';
import { bytesIn, type Written, writtenFolders } from './written.js';

/** The steps of one build, as they can be seen from outside. */
export interface Steps {
  client: EngineClient;
  /** The group that all their processes are in; null: each container's own is looked for. */
  group: StepGroup | null;
  /** Whole ids of this build's containers; none where the engine does not show them. */
  containers(): Promise<string[]>;
  /** Bounds the processes of a container, see `StepGroups.bound`. */
  bound(pid: number, id: string, processes: number): Promise<boolean>;
  /** Folders that the engine keeps layers in. */
  storage: readonly string[];
  /** Told of each folder that steps write into, once or more often. */
  wrote(folder: string): void;
  /** Whether steps that cannot be held to the limits go on all the same. */
  lenient: boolean;
}

const firstMs = 300;
const usualMs = 2_000;
const slowestMs = 30_000;

export const unboundWords =
  'The container engine of this region cannot be held to the limits of a build. ' +
  'Its operator has to name it in NEBO_CONTAINER_ENGINE if it is to build all the same.';

/** Looks at what steps write and start: the engine itself sets no limit. */
export class StepWatch {
  private readonly bounded = new Set<string>();
  private nudged = new AbortController();

  constructor(
    private readonly steps: Steps,
    private readonly limits: Pick<BuildLimits, 'diskBytes' | 'processes'>,
  ) {}

  /** Whether the number of processes is bounded, as far as it was needed. */
  get holds(): boolean {
    return this.steps.group !== null || this.bounded.size > 0;
  }

  /** A step has begun, perhaps: what the engine tells may be a stranger's words. */
  nudge(): void {
    this.nudged.abort();
  }

  /** @returns words of the broken limit; null when the signal fired */
  async run(signal: AbortSignal): Promise<string | null> {
    let wait = firstMs;
    try {
      for (;;) {
        await this.pause(wait, signal);
        const began = performance.now();
        // Between two steps there is nothing, and an engine that went is seen elsewhere.
        const seen = await this.look(signal).catch(() => null);
        signal.throwIfAborted();
        if (seen === 'unbound') return unboundWords;
        if (seen && (seen.own > this.limits.diskBytes || seen.whole > 2 * this.limits.diskBytes))
          return `A step wrote more than ${Math.round(this.limits.diskBytes / 2 ** 20)} MB.`;
        // Counting takes time of the host's processors: at most a twentieth.
        const counting = 20 * (performance.now() - began);
        wait = Math.max(Math.min(2 * wait, usualMs), Math.min(slowestMs, counting));
      }
    } catch (error) {
      if (signal.aborted || isAbort(error)) return null;
      throw error;
    }
  }

  /** Waits; a nudge makes it no shorter than the first wait, so that a step cannot keep us counting. */
  private async pause(ms: number, signal: AbortSignal): Promise<void> {
    await sleep(Math.min(ms, firstMs), signal);
    if (ms > firstMs && ms <= usualMs)
      await sleep(ms - firstMs, AbortSignal.any([signal, this.nudged.signal])).catch(() => undefined);
    else if (ms > usualMs) await sleep(ms - firstMs, signal);
    signal.throwIfAborted();
    this.nudged = new AbortController();
  }

  private async look(signal: AbortSignal): Promise<Written | 'unbound' | null> {
    const { group, storage, wrote } = this.steps;
    const told: Written = { own: 0, whole: 0 };
    const pids = group ? await group.pids() : [];
    for (const id of group ? [] : await this.steps.containers()) {
      const pid = await this.processOf(id, signal);
      if (pid === 'ended') continue;
      if (pid !== null) pids.push(pid);
      else if (!this.steps.lenient) return 'unbound';
      else await this.ask(id, told, signal);
    }
    const folders = await writtenFolders(pids, storage);
    for (const folder of [...folders.own, ...folders.whole]) wrote(folder);
    const seen = await bytesIn(folders);
    return { own: seen.own + told.own, whole: seen.whole + told.whole };
  }

  /** The first process of a container, whose group is bounded by now; null: it is not seen from here. */
  private async processOf(id: string, signal: AbortSignal): Promise<number | 'ended' | null> {
    // It may end between question and answer: only one that still runs and is not found is somewhere else.
    for (let tries = 0; tries < 3; tries += 1) {
      const seen = await this.inspect<{ State?: { Running?: boolean; Pid?: number } }>(id, {}, signal);
      const { Running, Pid = 0 } = seen?.State ?? {};
      if (!Running) return 'ended';
      if (this.bounded.has(id) || (await this.steps.bound(Pid, id, this.limits.processes))) {
        this.bounded.add(id);
        return Pid;
      }
      await sleep(100, signal);
    }
    return null;
  }

  /** Adds what the engine says of a container. */
  private async ask(id: string, sum: Written, signal: AbortSignal): Promise<void> {
    type Size = { SizeRw?: number; SizeRootFs?: number };
    const size = await this.inspect<Size>(id, { size: '1' }, signal);
    sum.own += size?.SizeRw ?? 0;
    sum.whole += size?.SizeRootFs ?? 0;
  }

  private inspect<T>(id: string, query: Record<string, string>, signal: AbortSignal): Promise<T | null> {
    return this.steps.client.json<T>('GET', `/containers/${id}/json`, { query, signal });
  }
}
