import { randomUUID } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import {
  InvalidImageReference,
  type KeyIdentity,
  type Owner,
  type PageOf,
  pageOf,
  type PageQuery,
  parseImageReference,
  toFilter,
  type V1App,
  type V1AppCreate,
  type V1AppUpdate,
} from '@nebo/contracts';
import { start, wake } from '@nebo/lifecycle';
import { BatchedRead, Database, type Sql } from '@nebo/persistence';
import {
  conflict,
  fieldError,
  type IdempotentRequest,
  idOrNull,
  notFound,
  once,
  type OnceAnswer,
  pathId,
  Peers,
  repeatOf,
} from '@nebo/service-kit';
import { releaseDomains } from '../domains/domain.rows.js';
import { says, sayAct } from '../events.js';
import type { App, Prisma } from '../generated/prisma/client.js';
import { ReplicaMoney } from '../rollouts/money.js';
import { isUniqueViolation, Store, type Tx } from '../shared/prisma.js';
import { VpcReferences } from '../networks/vpc-reference.js';
import { Regions } from '../shared/regions.js';
import { Settings } from '../shared/settings.js';
import { SourcesService } from '../sources/sources.service.js';
import { type AppColumns, appRecord } from './app.mapper.js';
import { labelCandidates } from './default-domain.js';

/** Name of an app as it is compared: without case and Unicode form. */
export const nameKey = (name: string): string => name.normalize('NFKC').toLowerCase();

const newest = {
  builds: { orderBy: { seq: 'desc' }, take: 1, select: { status: true, deploy_state: true } },
} as const;

type Hot = AppColumns & { newest_status: string | null; newest_deploy_state: string | null };

/** Apps: what their owners want of them. What becomes of it is the rollout lifecycle's (`rollouts/`). */
@Injectable()
export class AppsService {
  private readonly reads: BatchedRead<{ account: string; id: string }, Hot | null>;

  constructor(
    private readonly store: Store,
    private readonly database: Database,
    private readonly regions: Regions,
    private readonly money: ReplicaMoney,
    private readonly settings: Settings,
    private readonly peers: Peers,
    private readonly sources: SourcesService,
    private readonly vpcs: VpcReferences,
  ) {
    this.reads = new BatchedRead(async (asked) => {
      const [answer] = await database.named<{ found: (Hot | null)[] }>(
        'app_get_many',
        'select app_get_many($1, $2) as found',
        [asked.map(({ account }) => account), asked.map(({ id }) => id)],
      );
      return answer!.found;
    });
  }

  /**
   * One app, cheaply: in one round trip with the other apps that are read at this moment, their rows as one JSON text,
   * since pg spends more on 27 columns than on everything else.
   * @param projectId null by the flat path; otherwise the app must lie in it
   * @throws ApiError 404
   */
  async get(caller: KeyIdentity, projectId: string | null, id: string): Promise<V1App> {
    const row = await this.reads.get({ account: caller.account_id, id: pathId(id) });
    if (row === null || (projectId !== null && row.project_id !== projectId.toLowerCase())) throw notFound();
    return appRecord(
      row,
      row.newest_status === null
        ? null
        : { status: row.newest_status, deploy_state: row.newest_deploy_state },
    );
  }

  /** A page of what the key may see, oldest first. */
  async list(caller: KeyIdentity, projectId: string | null, page: PageQuery): Promise<PageOf<V1App>> {
    const where = visible(caller, projectId);
    if (where === null) return pageOf([], 0, page);
    return this.store.as(caller.account_id, async ({ db }) => {
      const total = await db.app.count({ where });
      const rows = await db.app.findMany({
        where,
        include: newest,
        orderBy: [{ created_at: 'asc' }, { id: 'asc' }],
        skip: page.offset,
        take: page.limit,
      });
      return pageOf(
        rows.map((row) => appRecord(row, row.builds[0] ?? null)),
        total,
        page,
      );
    });
  }

  /**
   * Creates an app with its default domain; nothing is built yet. The gateway has checked that the project is the
   * caller's and that the key may create there.
   * @throws ApiError 404 for a project, region, VPC or git connection that is not there, 403 without `vpc:read` on the VPC, 400
   *   `vpc_region_mismatch`, 409 `name_taken`, `project_busy` and
   *   `git_reconnect`, 422 for a repository or branch that is not there, 402 and 503 for permanent replicas
   */
  async create(
    caller: KeyIdentity,
    projectId: string,
    body: V1AppCreate,
    idem: IdempotentRequest | null,
  ): Promise<OnceAnswer<V1App>> {
    const project_id = pathId(projectId);
    checkName(body.name);
    checkImage(body.docker_image, body.source_type);
    const repeat = await repeatOf<V1App>(this.database, caller.account_id, idem);
    if (repeat) return repeat;
    const region = await this.regions.choose(body.cluster_id);
    const vpc_id = body.vpc_id == null ? null : await this.vpcs.admit(caller, body.vpc_id, region.id);
    const git = await this.sources.admit(caller, body);
    const size = {
      replica_count: body.replica_count,
      vcpu: body.replica_vcpu ?? 1,
      memory_mb: body.replica_memory_mb ?? 512,
    };
    if (size.replica_count > 0) await this.money.requireFirstHour(caller.account_id, size);
    const id = randomUUID();
    const data = {
      id,
      project_id,
      account_id: caller.account_id,
      region_id: region.id,
      name: body.name,
      name_key: nameKey(body.name),
      app_type: body.app_type,
      runtime_type: body.runtime_type,
      source_type: body.source_type,
      ...git,
      repo_full_name: body.repo_full_name,
      repo_id: BigInt(body.repo_id),
      branch: body.branch,
      auto_deploy: body.auto_deploy,
      docker_image: body.docker_image ?? null,
      framework: body.framework ?? null,
      nodejs_version: body.nodejs_version ?? null,
      root_directory: body.root_directory ?? null,
      install_command: body.install_command ?? null,
      build_command: body.build_command ?? null,
      start_command: body.start_command ?? null,
      output_directory: body.output_directory ?? null,
      predeploy_command: body.predeploy_command ?? null,
      readiness_path: body.readiness_path || null,
      vpc_id,
      replica_count: size.replica_count,
      replica_vcpu: size.vcpu,
      replica_memory_mb: size.memory_mb,
      deploy_strategy: body.deploy_strategy,
    };
    return this.nameTaken(body.name, () =>
      this.store.as(caller.account_id, ({ db, sql }) =>
        once(sql, idem, async () => {
          await this.holdProject(sql, caller.account_id, project_id);
          const row = await db.app.create({ data });
          await this.addDefaultDomain(db, row);
          await start(sql, 'rollout', id, 'idle');
          await this.sources.attach(sql, row);
          const event = says.appCreated(
            { app_id: id, project_id, region_id: region.id, name: row.name },
            { account: caller.account_id },
          );
          await sayAct(
            sql,
            caller,
            'apps_create_app',
            row,
            { name: row.name, source_type: row.source_type },
            event,
          );
          return { status: 201, body: appRecord(row, null) };
        }),
      ),
    );
  }

  /**
   * Changes an app. Another size restarts its replicas at once, another number starts or stops some; an image waits for
   * the next deploy, a readiness path for the next start of a replica. Another `vpc_id` has them replaced by others in that
   * network, null by others in none; elsewhere null is "no change".
   * @throws ApiError 404, also for a VPC that is not there, 403 and 400 `vpc_region_mismatch` for one, 409 `name_taken`, 422 for an
   *   image of an app that is not one, 402 and 503 for more replicas
   */
  async update(caller: KeyIdentity, projectId: string | null, id: string, body: V1AppUpdate): Promise<V1App> {
    if (body.name != null) checkName(body.name);
    const before = await this.store.as(caller.account_id, ({ db }) => this.find(db, caller, projectId, id));
    checkImage(body.docker_image, before.source_type);
    // Undefined: not sent.
    const vpc_id =
      body.vpc_id == null ? body.vpc_id : await this.vpcs.admit(caller, body.vpc_id, before.region_id);
    const size = {
      replica_count: body.replica_count ?? before.replica_count,
      vcpu: body.replica_vcpu ?? before.replica_vcpu,
      memory_mb: body.replica_memory_mb ?? before.replica_memory_mb,
    };
    const grows =
      size.replica_count > before.replica_count ||
      size.vcpu > before.replica_vcpu ||
      size.memory_mb > before.replica_memory_mb;
    if (size.replica_count > 0 && grows) await this.money.requireFirstHour(caller.account_id, size);
    // Only what is sent: two changes at once must not undo each other.
    const data: Prisma.AppUpdateInput = {
      updated_at: new Date(),
      ...(body.name != null ? { name: body.name, name_key: nameKey(body.name) } : {}),
      ...(body.replica_count != null ? { replica_count: body.replica_count } : {}),
      ...(body.replica_vcpu != null ? { replica_vcpu: body.replica_vcpu } : {}),
      ...(body.replica_memory_mb != null ? { replica_memory_mb: body.replica_memory_mb } : {}),
      ...(body.docker_image != null ? { docker_image: body.docker_image } : {}),
      ...(body.predeploy_command != null ? { predeploy_command: body.predeploy_command || null } : {}),
      ...(body.readiness_path != null ? { readiness_path: body.readiness_path || null } : {}),
      ...(vpc_id !== undefined ? { vpc_id } : {}),
      ...(body.deploy_strategy != null ? { deploy_strategy: body.deploy_strategy } : {}),
    };
    return this.nameTaken(body.name ?? '', () =>
      this.store.as(caller.account_id, async ({ db, sql }) => {
        const { replica_vcpu, replica_memory_mb } = await this.find(db, caller, projectId, id);
        const row = await db.app.update({ where: { id: before.id }, data, include: newest });
        if (row.replica_vcpu !== replica_vcpu || row.replica_memory_mb !== replica_memory_mb) {
          // Due now: the lifecycle makes a resource-only revision of it, if anything runs.
          await sql.query('update app set restart_at = now() where id = $1::uuid', [row.id]);
        }
        await wake(sql, 'rollout', row.id);
        await sayAct(sql, caller, 'apps_update_app_route', row, {
          changed: Object.keys(data).filter((field) => field in body),
        });
        return appRecord(row, row.builds[0] ?? null);
      }),
    );
  }

  /**
   * Deletes an app from any state: it is unlisted and its names are free at once, replicas and rows follow.
   * @throws ApiError 404
   */
  async delete(caller: KeyIdentity, projectId: string | null, id: string): Promise<void> {
    await this.store.as(caller.account_id, async ({ db, sql }) => {
      const row = await this.find(db, caller, projectId, id);
      // Two deletes at once: the second finds nothing.
      const { count } = await db.app.updateMany({
        where: { id: row.id, deleted_at: null },
        data: { deleted_at: new Date() },
      });
      if (count === 0) throw notFound();
      await db.appDomain.deleteMany({ where: { app_id: row.id, is_default: true } });
      await releaseDomains(sql, row.id);
      // After the domains: one that is just being taken adds its route first, and it goes here.
      await sql.query('update route set removed_at = now() where app_id = $1::uuid and removed_at is null', [
        row.id,
      ]);
      await this.sources.detach(sql, row);
      await wake(sql, 'rollout', row.id);
      const event = says.appDeleted(
        { app_id: row.id, project_id: row.project_id, region_id: row.region_id, name: row.name },
        { account: caller.account_id },
      );
      await sayAct(sql, caller, 'apps_delete_app_route', row, { name: row.name }, event);
    });
  }

  /**
   * The app of a path, for what hangs on it.
   * @throws ApiError 404 when it is absent, another account's, or in another project than the path says
   */
  async find(db: Tx['db'], caller: KeyIdentity, projectId: string | null, id: string): Promise<App> {
    const row = await db.app.findFirst({
      where: { id: pathId(id), account_id: caller.account_id, deleted_at: null },
    });
    if (!row || (projectId !== null && row.project_id !== projectId.toLowerCase())) throw notFound();
    return row;
  }

  /** Apps that lie in a project, for the service that would delete it; waits for those that are just being made. */
  async countIn(projectId: string): Promise<number> {
    const id = pathId(projectId);
    const [row] = await this.database.transaction(async (tx) => {
      await tx.query('select pg_advisory_xact_lock(hashtextextended($1, 0))', [`project|${id}`]);
      return tx.query<{ count: number }>(
        'select count(*)::int as count from app where project_id = $1::uuid and deleted_at is null',
        [id],
      );
    });
    return row!.count;
  }

  /**
   * Keeps a project from being deleted until the transaction ends: whoever deletes it counts first, and waits here.
   * @throws ApiError 404 when it is gone, 409 `project_busy` when it is just being deleted
   */
  private async holdProject(sql: Sql, account: string, id: string): Promise<void> {
    await sql.query('select pg_advisory_xact_lock_shared(hashtextextended($1, 0))::text as held', [
      `project|${id}`,
    ]);
    await this.peers.call<Owner>('identity-billing', `/internal/v1/owners/project/${id}?settled=true`, {
      account,
    });
  }

  private async addDefaultDomain(db: Tx['db'], app: App): Promise<void> {
    for (const label of labelCandidates(app.name, app.id)) {
      const { count } = await db.appDomain.createMany({
        data: [
          {
            id: randomUUID(),
            account_id: app.account_id,
            app_id: app.id,
            host: `${label}.${this.settings.appsDomain}`,
            status: 'active',
            is_default: true,
            dns_configured: true,
            verified_at: new Date(),
            proof: 'platform',
          },
        ],
        skipDuplicates: true,
      });
      if (count === 1) return;
    }
    throw new Error(`no free default domain for app ${app.id}`);
  }

  private async nameTaken<T>(name: string, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (isUniqueViolation(error))
        throw conflict('name_taken', `an app named "${name}" exists in this project`);
      throw error;
    }
  }
}

/** Visible apps as a condition, or null when there is none. Ids of a policy that are no ids match nothing. */
function visible(caller: KeyIdentity, projectId: string | null): Prisma.AppWhereInput | null {
  const filter = toFilter(caller, 'app:read', 'app');
  if (!filter.any) return null;
  const ids = (texts: readonly string[]) => texts.map(idOrNull).filter((id) => id !== null);
  const and: Prisma.AppWhereInput[] = [
    { project_id: { notIn: ids(filter.denyProjects) } },
    { id: { notIn: ids(filter.denyIds) } },
  ];
  if (filter.allowProjects !== null) {
    and.push({
      OR: [{ project_id: { in: ids(filter.allowProjects) } }, { id: { in: ids(filter.allowIds) } }],
    });
  }
  if (filter.withinProjects !== null) and.push({ project_id: { in: ids(filter.withinProjects) } });
  if (projectId !== null) and.push({ project_id: { in: ids([projectId]) } });
  return { account_id: caller.account_id, deleted_at: null, AND: and };
}

function checkName(name: string): void {
  if (name.trim() === '') throw fieldError('name', 'must not be blank');
}

/** @throws ApiError 422 for an image of an app that has none, and for what is no image's name */
export function checkImage(image: string | null | undefined, sourceType: string): void {
  if (image == null) return;
  if (sourceType !== 'docker_image')
    throw fieldError('docker_image', 'only apps with source_type docker_image have an image');
  try {
    parseImageReference(image);
  } catch (error) {
    if (error instanceof InvalidImageReference) throw fieldError('docker_image', error.message);
    throw error;
  }
}
