import { randomUUID } from 'node:crypto';
import { Inject, Injectable } from '@nestjs/common';
import {
  type KeyIdentity,
  type Owner,
  pageOf,
  type PageOf,
  type PageQuery,
  type ProjectUsage,
  toFilter,
  type V1Project,
  type V1ProjectCreate,
  type V1ProjectUpdate,
} from '@nebo/contracts';
import { Database, prismaSql } from '@nebo/persistence';
import {
  ApiError,
  conflict,
  fieldError,
  type IdempotentRequest,
  notFound,
  once,
  Peers,
  referenceNotFound,
  RUNTIME,
  type Runtime,
} from '@nebo/service-kit';
import { AuditService, keyActor } from '../audit/audit.service.js';
import { asUuid } from '../database/ids.js';
import { isGone, isTaken, PrismaService, type Tx } from '../database/prisma.service.js';
import { type Project } from '../generated/prisma/client.js';
import { nameKey, projectRecord, visibleProjects } from './project.mapper.js';

/** Services that keep things in projects and are asked before one is deleted. */
const keepers = ['apps-builder', 'compute'] as const;

/** Projects: folders of apps and machines inside an account. */
@Injectable()
export class ProjectsService {
  constructor(
    private readonly prisma: PrismaService,
    private readonly database: Database,
    private readonly audit: AuditService,
    private readonly peers: Peers,
    @Inject(RUNTIME) private readonly runtime: Runtime,
  ) {}

  /** The projects that the key's policy shows, oldest first. */
  async list(caller: KeyIdentity, page: PageQuery): Promise<PageOf<V1Project>> {
    const visible = visibleProjects(toFilter(caller, 'project:read', 'project'));
    if (visible === null) return pageOf([], 0, page);
    return this.prisma.forAccount(caller.account_id, async (tx) => {
      const where = { account_id: caller.account_id, ...visible };
      const total = await tx.project.count({ where });
      const rows = await tx.project.findMany({
        where,
        orderBy: [{ created_at: 'asc' }, { id: 'asc' }],
        skip: page.offset,
        take: page.limit,
      });
      return pageOf(rows.map(projectRecord), total, page);
    });
  }

  /** @throws ApiError 404 */
  async get(caller: KeyIdentity, id: string): Promise<V1Project> {
    return projectRecord(
      await this.prisma.forAccount(caller.account_id, (tx) => this.find(tx, caller.account_id, id)),
    );
  }

  private async find(tx: Tx, account: string, id: string): Promise<Project> {
    const projectId = asUuid(id);
    const row = projectId && (await tx.project.findFirst({ where: { id: projectId, account_id: account } }));
    if (!row) throw notFound();
    return row;
  }

  /**
   * Makes a project, once per Idempotency-Key.
   * @throws ApiError 409 `name_taken`, or what `once` throws
   */
  async create(
    caller: KeyIdentity,
    body: V1ProjectCreate,
    request: IdempotentRequest | null,
  ): Promise<V1Project> {
    const answer = await this.prisma.forAccount(caller.account_id, (tx) =>
      once(prismaSql(tx), request, async () => ({
        status: 201,
        body: await this.insert(
          tx,
          caller.account_id,
          body,
          keyActor(caller.key_id),
          'projects_create_project',
        ),
      })),
    );
    return answer.body;
  }

  /** The same by the operator. @throws ApiError 404 for an unknown account, 409 `name_taken` */
  createByOperator(account: string, name: string, actor: string): Promise<V1Project> {
    return this.prisma.forAccount(account, async (tx) => {
      if (!(await tx.account.findUnique({ where: { id: account } }))) throw referenceNotFound('account');
      return this.insert(tx, account, { name }, actor, 'project create');
    });
  }

  private async insert(
    tx: Tx,
    account: string,
    body: V1ProjectCreate,
    actor: string,
    action: string,
  ): Promise<V1Project> {
    checkName(body.name);
    const row = await tx.project
      .create({
        data: {
          id: randomUUID(),
          account_id: account,
          name: body.name,
          name_key: nameKey(body.name),
          description: body.description ?? null,
          emoji: body.emoji ?? null,
        },
      })
      .catch((error: unknown) => {
        throw isTaken(error) ? nameTaken(body.name) : error;
      });
    await this.audit.write(prismaSql(tx), {
      account,
      actor,
      action,
      resource: `project:${row.id}`,
      details: { name: row.name },
    });
    return projectRecord(row);
  }

  /** Changes what is given. @throws ApiError 404; 409 `name_taken` */
  async update(caller: KeyIdentity, id: string, body: V1ProjectUpdate): Promise<V1Project> {
    if (body.name !== undefined) checkName(body.name);
    return this.prisma.forAccount(caller.account_id, async (tx) => {
      const { id: projectId } = await this.find(tx, caller.account_id, id);
      const row = await tx.project
        .update({
          where: { id: projectId },
          data: {
            ...(body.name !== undefined ? { name: body.name, name_key: nameKey(body.name) } : {}),
            ...(body.description !== undefined ? { description: body.description } : {}),
            ...(body.emoji !== undefined ? { emoji: body.emoji } : {}),
          },
        })
        .catch((error: unknown) => {
          // A deletion under way was waited for.
          if (isGone(error)) throw notFound();
          throw isTaken(error) ? nameTaken(body.name!) : error;
        });
      await this.audit.write(prismaSql(tx), {
        account: caller.account_id,
        actor: keyActor(caller.key_id),
        action: 'projects_update_project',
        resource: `project:${projectId}`,
        details: { ...body },
      });
      return projectRecord(row);
    });
  }

  /**
   * Deletes an empty project. The row is deleted first and the keepers are asked before that commits: who makes something
   * in the project meanwhile either is counted (keepers wait for what they are just making), or finds the row taken
   * (`owner` with `settled`).
   * @throws ApiError 404; 409 `project_not_empty`; 503 when a service that may keep something in it cannot be asked
   */
  async delete(caller: KeyIdentity, id: string): Promise<void> {
    const account = caller.account_id;
    await this.prisma.forAccount(account, async (tx) => {
      const project = await this.find(tx, account, id);
      const { count } = await tx.project.deleteMany({ where: { id: project.id, account_id: account } });
      if (count === 0) throw notFound();
      for (const service of keepers) {
        const kept = await this.countAt(service, account, project.id);
        if (kept > 0)
          throw conflict(
            'project_not_empty',
            `the project still holds ${kept} of ${service}; delete them first`,
          );
      }
      await this.audit.write(prismaSql(tx), {
        account,
        actor: keyActor(caller.key_id),
        action: 'projects_delete_project',
        resource: `project:${project.id}`,
        details: { name: project.name },
      });
    });
  }

  private async countAt(service: string, account: string, id: string): Promise<number> {
    if (!this.runtime.targets.has(service)) return 0;
    try {
      const { count } = await this.peers.call<ProjectUsage>(service, `/internal/v1/projects/${id}/usage`, {
        account,
      });
      return count;
    } catch (error) {
      // A service that keeps nothing in projects (yet) has no such operation.
      if (error instanceof ApiError && error.status === 404) return 0;
      throw error;
    }
  }

  /**
   * Whose project it is, whichever account asks.
   * @param settled only when nobody is just deleting it: for a service that is about to put something into it
   * @throws ApiError 404; 409 `project_busy`
   */
  async owner(id: string, settled = false): Promise<Owner> {
    const projectId = asUuid(id);
    if (!projectId) throw notFound();
    const [row] = await this.database.named<{ account_id: string; is_free: boolean }>(
      'project-owner',
      'select account_id, is_free from project_owner($1::uuid, $2::boolean)',
      [projectId, settled],
    );
    if (!row) throw notFound();
    // It may stay: the deletion fails when something is in it.
    if (!row.is_free) throw conflict('project_busy', 'the project is being deleted; try again');
    return { account_id: row.account_id, project_id: projectId, parents: [] };
  }
}

const nameTaken = (name: string) => conflict('name_taken', `the account has a project named "${name}"`);

function checkName(name: string): void {
  if (name.trim() === '') throw fieldError('name', 'must not be blank');
}
