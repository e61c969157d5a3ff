import { type AgentLog } from '../../agent-log.js';
import { type ControlPlane, Superseded } from '../../control/control-plane.js';
import { ignoreAbort, sleep } from '../../system/timing.js';
import { type BuildCaches } from './build-cache.js';

export interface SweeperParts {
  caches: BuildCaches;
  plane: Pick<ControlPlane, 'goneApps'>;
  log: AgentLog;
  /** Milliseconds between two questions. */
  everyMs: number;
  onSuperseded(): void;
}

/** Apps in one question. */
const most = 1_000;
/** Form of the ids that a control plane knows; anything else is nobody's. */
const idForm = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** Removes the caches of apps that have been deleted: asks now and then, since nobody says so by name. */
export class CacheSweeper {
  constructor(private readonly parts: SweeperParts) {}

  async run(signal: AbortSignal): Promise<void> {
    const { log, everyMs } = this.parts;
    while (!signal.aborted) {
      try {
        await this.sweep(signal);
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Superseded) return this.parts.onSuperseded();
        // The next question is as good.
        log.debug({ error: String(error) }, 'nobody says which apps are gone');
      }
      await sleep(everyMs, signal).catch(ignoreAbort);
    }
  }

  private async sweep(signal: AbortSignal): Promise<void> {
    const { caches, plane, log } = this.parts;
    const kept = (await caches.list()).filter(({ app_id }) => idForm.test(app_id));
    for (let from = 0; from < kept.length; from += most) {
      const part = kept.slice(from, from + most);
      const gone = new Set(
        await plane.goneApps(
          part.map(({ app_id }) => app_id),
          signal,
        ),
      );
      for (const owner of part.filter(({ app_id }) => gone.has(app_id))) {
        await caches.remove(owner);
        log.info({ app: owner.app_id, bytes: owner.bytes }, 'the build cache of a deleted app is removed');
      }
    }
  }
}
