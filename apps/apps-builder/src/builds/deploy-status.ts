import { Changes, pathId } from '@nebo/service-kit';
import { Injectable } from '@nestjs/common';
import type { KeyIdentity } from '@nebo/contracts';
import { AppsService } from '../apps/apps.service.js';
import { Store } from '../shared/prisma.js';
import { Settings } from '../shared/settings.js';
import { comment, doneEvent } from '../shared/sse.js';
import { type BuildColumns, isOver } from './build.mapper.js';
import { findBuild } from './builds.service.js';
import { deployEvent, eventBlock, eventsSince, type Heard } from './deploy-events.js';
import type { Topic } from '../shared/topics.js';

/** Deploy status as an event stream: one `status` event per change of the watched build, `done` when it is live or failed. */
@Injectable()
export class DeployStatus {
  constructor(
    private readonly store: Store,
    private readonly apps: AppsService,
    private readonly changes: Changes<Topic>,
    private readonly settings: Settings,
  ) {}

  /**
   * @param buildId null: the newest one, or the first that will be (interfaces.md, 10)
   * @param heard what a reader that lost its connection has heard already: it goes on behind that, with the same build
   * @throws ApiError 404
   */
  async open(
    caller: KeyIdentity,
    projectId: string | null,
    appId: string,
    buildId: string | null,
    heard: Heard | null,
    gone: AbortSignal,
  ): Promise<AsyncGenerator<string>> {
    const { app, known } = await this.store.as(caller.account_id, async ({ db }) => {
      const found = await this.apps.find(db, caller, projectId, appId);
      if (buildId !== null) await findBuild(db, found, buildId);
      // An id of another app, or of a build that is gone, is none.
      const where = { app_id: found.id, id: heard?.buildId ?? '' };
      const isKnown = heard !== null && (await db.build.count({ where })) === 1;
      return { app: found, known: isKnown ? heard : null };
    });
    const watched = buildId === null ? (known?.buildId ?? null) : pathId(buildId);
    return this.stream(
      caller.account_id,
      app.id,
      watched,
      known?.buildId === watched ? known : null,
      AbortSignal.any([gone, this.changes.stopping]),
    );
  }

  private async *stream(
    account: string,
    appId: string,
    watched: string | null,
    known: Heard | null,
    over: AbortSignal,
  ): AsyncGenerator<string> {
    const ear = this.changes.listen(`app:${appId}`);
    let pinned = watched;
    let heard = known?.place ?? null;
    let said = '';
    let spoke = Date.now();
    try {
      yield comment('deploy status');
      while (!over.aborted) {
        const build = await this.look(account, appId, pinned);
        if (build === 'gone') return;
        if (build !== null) {
          // The build that was newest at first stays the watched one: a newer one does not answer for it.
          pinned = build.id;
          const data = JSON.stringify(deployEvent(build));
          if (data !== said) {
            const events = eventsSince(build, heard);
            // What was heard before the connection was lost is not said again.
            const fresh =
              said === '' && known !== null ? events.filter(({ place }) => place > known.place) : events;
            for (const { place, event } of fresh) {
              yield eventBlock(build.id, place, JSON.stringify(event));
              spoke = Date.now();
            }
            heard = events.at(-1)!.place;
            said = data;
          }
          if (isOver(build)) {
            yield doneEvent(data);
            return;
          }
        }
        const quiet = this.settings.keepAliveMs - (Date.now() - spoke);
        if (quiet <= 0) {
          yield comment('keep-alive');
          spoke = Date.now();
          continue;
        }
        await ear.next(quiet, over);
      }
    } finally {
      ear.close();
    }
  }

  private look(
    account: string,
    appId: string,
    buildId: string | null,
  ): Promise<BuildColumns | null | 'gone'> {
    return this.store.as(account, async ({ db }) => {
      const app = await db.app.findFirst({ where: { id: appId, deleted_at: null }, select: { id: true } });
      if (!app) return 'gone';
      return db.build.findFirst({
        where: { app_id: appId, ...(buildId === null ? {} : { id: buildId }) },
        orderBy: { seq: 'desc' },
      });
    });
  }
}
