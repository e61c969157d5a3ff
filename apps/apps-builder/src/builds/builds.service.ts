import { Injectable } from '@nestjs/common';
import {
  type KeyIdentity,
  type PageOf,
  pageOf,
  type PageQuery,
  type V1AppDeployResult,
  type V1Build,
  type V1DeployRequest,
} from '@nebo/contracts';
import { say } from '@nebo/bus';
import { wake } from '@nebo/lifecycle';
import { Database } from '@nebo/persistence';
import {
  conflict,
  fieldError,
  type IdempotentRequest,
  notFound,
  once,
  type OnceAnswer,
  pathId,
  repeatOf,
} from '@nebo/service-kit';
import { AppsService, checkImage } from '../apps/apps.service.js';
import { says, sayAct } from '../events.js';
import { lockApp, makeRevision } from '../rollouts/rollout.rows.js';
import type { App, Build } from '../generated/prisma/client.js';
import { Store, type Tx } from '../shared/prisma.js';
import { type CommitSource, SourcesService } from '../sources/sources.service.js';
import { beginBuild, type BuildSource, cancelledOnRequest } from './build.rows.js';
import { buildRecord, deployResult } from './build.mapper.js';

/** Builds: what starts and stops them, and what is shown of them. Their life is in `build.lifecycle.ts`. */
@Injectable()
export class BuildsService {
  constructor(
    private readonly store: Store,
    private readonly database: Database,
    private readonly apps: AppsService,
    private readonly sources: SourcesService,
  ) {}

  /** A page of an app's builds, newest first. */
  async list(
    caller: KeyIdentity,
    projectId: string | null,
    appId: string,
    page: PageQuery,
  ): Promise<PageOf<V1Build>> {
    return this.store.as(caller.account_id, async ({ db }) => {
      const app = await this.apps.find(db, caller, projectId, appId);
      const where = { app_id: app.id };
      const total = await db.build.count({ where });
      const rows = await db.build.findMany({
        where,
        orderBy: { seq: 'desc' },
        skip: page.offset,
        take: page.limit,
      });
      return pageOf(rows.map(buildRecord), total, page);
    });
  }

  /** @throws ApiError 404 */
  async get(caller: KeyIdentity, projectId: string | null, appId: string, id: string): Promise<V1Build> {
    return this.store.as(caller.account_id, async ({ db }) => {
      const app = await this.apps.find(db, caller, projectId, appId);
      return buildRecord(await findBuild(db, app, id));
    });
  }

  /**
   * Builds and deploys the newest source: of an upload app the archive stored last, of a git app the head of its branch or
   * the commit that is named, of an image app what its image's name stands for by now.
   * @throws ApiError 404, 409 `no_source` and `git_reconnect`, 422 for a commit that is not there, 503 when the git host is away
   */
  async deploy(
    caller: KeyIdentity,
    projectId: string | null,
    appId: string,
    body: V1DeployRequest,
    idem: IdempotentRequest | null,
  ): Promise<OnceAnswer<V1AppDeployResult>> {
    const repeat = await repeatOf<V1AppDeployResult>(this.database, caller.account_id, idem);
    if (repeat) return repeat;
    const found = await this.store.as(caller.account_id, ({ db }) =>
      this.apps.find(db, caller, projectId, appId),
    );
    // The host is asked before the transaction, which must not wait for it.
    const commit =
      found.source_type === 'git' ? await this.sources.resolve(found, body.commit_sha ?? null) : null;
    return this.store.as(caller.account_id, ({ db, sql }) =>
      once(sql, idem, async () => {
        const app = await this.apps.find(db, caller, projectId, appId);
        if (commit !== null) {
          const build = await beginBuild(sql, app, 'deploy', { commit });
          await this.sources.works(sql, app.id);
          const details = { build_id: build.id, commit_sha: commit.commit.sha };
          await sayAct(sql, caller, 'apps_deploy_app', app, details);
          return { status: 200, body: deployResult(build) };
        }
        if (app.source_type === 'docker_image') return this.deployImage(sql, caller, app, body);
        if (body.commit_sha != null) throw fieldError('commit_sha', 'an uploaded folder has no commits');
        const newest = await db.build.findFirst({
          where: { app_id: app.id, source_sha256: { not: null } },
          orderBy: { seq: 'desc' },
        });
        if (!newest)
          throw conflict('no_source', 'this app has no source yet: send a folder to …/deployments first');
        const build = await beginBuild(sql, app, 'deploy', sourceOf(newest));
        await sayAct(sql, caller, 'apps_deploy_app', app, { build_id: build.id });
        return { status: 200, body: deployResult(build) };
      }),
    );
  }

  private async deployImage(
    sql: Tx['sql'],
    caller: KeyIdentity,
    app: App,
    body: V1DeployRequest,
  ): Promise<{ status: number; body: V1AppDeployResult }> {
    if (body.commit_sha != null) throw fieldError('commit_sha', 'an image has no commits');
    if (app.docker_image === null)
      throw conflict('no_source', 'this app has no image yet: set docker_image first');
    // The region relies on names that can be read.
    checkImage(app.docker_image, app.source_type);
    const image = { reference: app.docker_image, digest: null };
    const build = await beginBuild(sql, app, 'deploy', { image });
    const details = { build_id: build.id, docker_image: image.reference };
    await sayAct(sql, caller, 'apps_deploy_app', app, details);
    return { status: 200, body: deployResult(build) };
  }

  /**
   * Builds the same bytes again, with the variables of today; of a commit that was never fetched, the same commit; of an
   * image that was never pulled, what its name stands for.
   * @throws ApiError 404, 409 `no_source` when the build never had a source
   */
  async rebuild(
    caller: KeyIdentity,
    projectId: string | null,
    appId: string,
    id: string,
    idem: IdempotentRequest | null,
  ): Promise<OnceAnswer<V1AppDeployResult>> {
    return this.store.as(caller.account_id, ({ db, sql }) =>
      once(sql, idem, async () => {
        const app = await this.apps.find(db, caller, projectId, appId);
        const from = await findBuild(db, app, id);
        const source = sourceOf(from);
        if (source.bytes == null && source.commit == null && source.image == null)
          throw conflict('no_source', 'this build has no stored source');
        const build = await beginBuild(sql, app, 'rebuild', source);
        await sayAct(sql, caller, 'apps_rebuild_build', app, { build_id: build.id, from_build_id: from.id });
        return { status: 200, body: deployResult(build) };
      }),
    );
  }

  /**
   * Has an earlier build serve again: its artifact as it is, with the variables and the size of today. Nothing is built, and the
   * command before a deploy is not run: it belongs to a version's first deploy.
   * @throws ApiError 404, 409 `no_artifact` for a build that made nothing, `predeploy_failed` for one whose command did not end well,
   *   `build_is_live` for the one that serves, `deploy_in_progress` for the one that is rolling
   */
  async rollback(
    caller: KeyIdentity,
    projectId: string | null,
    appId: string,
    id: string,
    idem: IdempotentRequest | null,
  ): Promise<OnceAnswer<V1AppDeployResult>> {
    return this.store.as(caller.account_id, ({ db, sql }) =>
      once(sql, idem, async () => {
        const { id: app_id } = await this.apps.find(db, caller, projectId, appId);
        if ((await lockApp(sql, app_id)) === null) throw notFound();
        const app = await this.apps.find(db, caller, projectId, appId);
        const to = await findBuild(db, app, id);
        if (to.status !== 'success' || to.artifact_sha256 === null)
          throw conflict(
            'no_artifact',
            `the build made nothing that could be served: it ended with ${to.status}`,
          );
        const commands = await sql.query<{ status: string }>(
          "select status from job_run where build_id = $1::uuid and kind = 'predeploy'",
          [to.id],
        );
        if (commands.length > 0 && commands.every(({ status }) => status !== 'success'))
          throw conflict(
            'predeploy_failed',
            'its pre-deploy command never ended well: deploy or rebuild it instead',
          );
        const [wanted] = await sql.query<{ build_id: string }>(
          'select build_id from revision where id = $1::uuid',
          [app.target_revision_id],
        );
        if (wanted?.build_id === to.id) {
          throw app.current_revision_id === app.target_revision_id
            ? conflict('build_is_live', 'this build is the one that serves')
            : conflict('deploy_in_progress', 'this build is on its way already');
        }
        await makeRevision(sql, app.id, to.id, 'rollback');
        await sql.query("update build set deploy_state = 'rolling', boot_error = null where id = $1::uuid", [
          to.id,
        ]);
        await wake(sql, 'rollout', app.id);
        await sayAct(sql, caller, 'apps_rollback_build', app, { build_id: to.id });
        return { status: 200, body: deployResult({ id: to.id, app_id: app.id, status: to.status }) };
      }),
    );
  }

  /**
   * Stops a build: at once while it waits, otherwise as soon as the region has stopped it.
   * @throws ApiError 404, 409 `build_finished`
   */
  async cancel(
    caller: KeyIdentity,
    projectId: string | null,
    appId: string,
    id: string,
    idem: IdempotentRequest | null,
  ): Promise<OnceAnswer<V1Build>> {
    return this.store.as(caller.account_id, ({ db, sql }) =>
      once(sql, idem, async () => {
        const app = await this.apps.find(db, caller, projectId, appId);
        const before = await findBuild(db, app, id);
        if (before.status === 'success' || before.status === 'error') {
          throw conflict('build_finished', `the build has already ended with ${before.status}`);
        }
        await sql.query(
          `update build set gone = true, generation = generation + 1,
             status = case when status = 'queued' then 'cancelled' else status end,
             error = case when status = 'queued' then $2 else error end,
             finished_at = case when status = 'queued' then now() else finished_at end,
             log_done = log_done or (status = 'queued' and observed_state is null)
           where id = $1::uuid and not gone and status in ('queued', 'building')`,
          [before.id, cancelledOnRequest],
        );
        await wake(sql, 'build', before.id);
        const build = await db.build.findUniqueOrThrow({ where: { id: before.id } });
        if (build.status === 'cancelled' && before.status !== 'cancelled') {
          await say(
            sql,
            says.buildFinished(
              {
                build_id: build.id,
                app_id: app.id,
                status: 'cancelled',
                error: build.error,
                duration_ms: null,
              },
              { account: app.account_id },
            ),
          );
        }
        await sayAct(sql, caller, 'apps_cancel_build', app, { build_id: build.id });
        return { status: 200, body: buildRecord(build) };
      }),
    );
  }
}

/** @throws ApiError 404 when the app has no such build */
export async function findBuild(db: Tx['db'], app: App, id: string): Promise<Build> {
  const build = await db.build.findFirst({ where: { id: pathId(id), app_id: app.id } });
  if (!build) throw notFound();
  return build;
}

/** What a build was made of. */
function sourceOf(build: Build): BuildSource {
  if (build.docker_image !== null) {
    const {
      docker_image: reference,
      docker_image_digest: digest,
      artifact_sha256: sha256,
      artifact_bytes,
    } = build;
    const bytes = sha256 === null ? null : { sha256, bytes: artifact_bytes! };
    return { bytes, image: { reference, digest } };
  }
  const bytes =
    build.source_sha256 === null ? null : { sha256: build.source_sha256, bytes: build.source_bytes! };
  return { bytes, commit: commitOf(build) };
}

function commitOf(build: Build): CommitSource | null {
  if (build.commit_sha === null || build.clone_url === null) return null;
  return {
    commit: { sha: build.commit_sha, message: build.commit_message, author: build.commit_author },
    branch: build.branch,
    clone_url: build.clone_url,
    clone_username: build.clone_username,
    connection_id: build.git_connection_id,
  };
}
