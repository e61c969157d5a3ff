import { randomUUID } from 'node:crypto';
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
import { start, wake } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';
import {
  ApiError,
  conflict,
  fieldError,
  type IdempotentRequest,
  notFound,
  once,
  type OnceAnswer,
  pathId,
} from '@nebo/service-kit';
import { AppsService } from '../apps/apps.service.js';
import { says, sayAct } from '../events.js';
import type { App, Build } from '../generated/prisma/client.js';
import { Store, type Tx } from '../shared/prisma.js';
import { buildRecord, deployResult } from './build.mapper.js';

/** Bytes that a build is made of. */
export interface Source {
  sha256: string;
  bytes: bigint;
}

/** Builds: what starts and stops them, and what is shown of them. Their life is in `build.lifecycle.ts`. */
@Injectable()
export class BuildsService {
  constructor(
    private readonly store: Store,
    private readonly apps: AppsService,
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
   * Builds and deploys the newest source: of an upload app the archive stored last.
   * @throws ApiError 404, 409 `no_source`, 422 `not_supported` for sources that come later
   */
  async deploy(
    caller: KeyIdentity,
    projectId: string | null,
    appId: string,
    body: V1DeployRequest,
    idem: IdempotentRequest | null,
  ): Promise<OnceAnswer<V1AppDeployResult>> {
    return this.store.as(caller.account_id, ({ db, sql }) =>
      once(sql, idem, async () => {
        const app = await this.apps.find(db, caller, projectId, appId);
        if (app.source_type !== 'upload') throw notSupported(app.source_type);
        if (body.commit_sha != null) throw fieldError('commit_sha', 'an uploaded folder has no commits');
        const newest = await db.build.findFirst({
          where: { app_id: app.id, source_sha256: { not: null } },
          orderBy: { seq: 'desc' },
        });
        if (!newest)
          throw conflict('no_source', 'this app has no source yet: send a folder to …/deployments first');
        const build = await this.begin(sql, app, 'deploy', sourceOf(newest));
        await sayAct(sql, caller, 'apps_deploy_app', app, { build_id: build.id });
        return { status: 200, body: deployResult(build) };
      }),
    );
  }

  /**
   * Builds the same bytes again, with the variables of today.
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
        if (from.source_sha256 === null) throw conflict('no_source', 'this build has no stored source');
        const build = await this.begin(sql, app, 'rebuild', sourceOf(from));
        await sayAct(sql, caller, 'apps_rebuild_build', app, { build_id: build.id, from_build_id: from.id });
        return { status: 200, body: deployResult(build) };
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
             finished_at = case when status = 'queued' then now() else finished_at end,
             log_done = log_done or (status = 'queued' and observed_state is null)
           where id = $1::uuid and not gone and status in ('queued', 'building')`,
          [before.id],
        );
        await wake(sql, 'build', before.id);
        const build = await db.build.findUniqueOrThrow({ where: { id: before.id } });
        if (build.status === 'cancelled' && before.status !== 'cancelled') {
          await say(
            sql,
            says.buildFinished(
              { build_id: build.id, app_id: app.id, status: 'cancelled', error: null, duration_ms: null },
              { account: app.account_id },
            ),
          );
        }
        await sayAct(sql, caller, 'apps_cancel_build', app, { build_id: build.id });
        return { status: 200, body: buildRecord(build) };
      }),
    );
  }

  /**
   * The only way a build comes to be: its row with the variables of this moment, and its first state, in one transaction.
   * @returns the queued build
   */
  async begin(tx: Sql, app: App, cause: 'upload' | 'deploy' | 'rebuild', source: Source) {
    const id = randomUUID();
    await tx.query(
      `insert into build (id, account_id, app_id, region_id, cause, source_sha256, source_bytes, env)
       values ($1::uuid, $2::uuid, $3::uuid, $4::uuid, $5, $6, $7::bigint,
         (select coalesce(jsonb_agg(jsonb_build_object('name', name, 'sealed', encode(sealed, 'base64'), 'secret', is_secret) order by name), '[]')
          from env_var where app_id = $3::uuid))`,
      [id, app.account_id, app.id, app.region_id, cause, source.sha256, source.bytes.toString()],
    );
    await start(tx, 'build', id, 'queued');
    return { id, app_id: app.id, status: 'queued' };
  }
}

/** @throws ApiError 404 when the app has no such build */
export async function findBuild(db: Tx['db'], app: App, id: string): Promise<Build> {
  const build = await db.build.findFirst({ where: { id: pathId(id), app_id: app.id } });
  if (!build) throw notFound();
  return build;
}

const sourceOf = (build: Build): Source => ({ sha256: build.source_sha256!, bytes: build.source_bytes! });

function notSupported(source: string): ApiError {
  const what = source === 'git' ? 'builds from git repositories' : 'apps from Docker images';
  const msg = `${what} come with a later release; create the app with source_type upload and send its folder to …/deployments`;
  return new ApiError(422, 'not_supported', msg, {
    detail: [{ loc: ['path', 'app_id'], msg, type: 'value_error' }],
  });
}
