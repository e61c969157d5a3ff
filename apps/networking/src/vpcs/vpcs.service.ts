import { Injectable } from '@nestjs/common';
import {
  type KeyIdentity,
  type PageOf,
  pageOf,
  type PageQuery,
  toFilter,
  type V1Vpc,
  type V1VpcCreate,
  type V1VpcUpdate,
} from '@nebo/contracts';
import { wake } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import {
  conflict,
  fieldError,
  type IdempotentRequest,
  idOrNull,
  notFound,
  once,
  pathId,
} from '@nebo/service-kit';
import { sayAct, says } from '../events.js';
import { Regions } from '../shared/regions.js';
import { requireSubnet } from './subnet.js';
import { type VpcRow, vpcColumns, vpcRecord } from './vpc.mapper.js';
import { insertVpc, nameKey, nameTaken } from './vpc.rows.js';

const ids = (texts: readonly string[]): string[] => texts.map(idOrNull).filter((id) => id !== null);

/** VPCs: what their owners want of them. What becomes of it is the lifecycle's. */
@Injectable()
export class VpcsService {
  constructor(
    private readonly database: Database,
    private readonly regions: Regions,
  ) {}

  /**
   * The VPC of a path.
   * @param lock hold its row: nothing about it changes until the transaction ends
   * @throws ApiError 404 when it is absent, another account's or deleted
   */
  async find(tx: Sql, account: string, id: string, lock = false): Promise<VpcRow> {
    const [row] = await tx.query<VpcRow>(
      `select ${vpcColumns} from vpc where id = $1::uuid and account_id = $2::uuid and deleted_at is null
       ${lock ? 'for update' : ''}`,
      [pathId(id), account],
    );
    if (!row) throw notFound();
    return row;
  }

  /** @throws ApiError 404 */
  async get({ account_id }: KeyIdentity, id: string): Promise<V1Vpc> {
    return vpcRecord(await this.database.transaction((tx) => this.find(tx, account_id, id), account_id));
  }

  /**
   * A page of what the key may see, oldest first.
   * @param region null: of all regions
   */
  async list(caller: KeyIdentity, region: string | null, page: PageQuery): Promise<PageOf<V1Vpc>> {
    const filter = toFilter(caller, 'vpc:read', 'vpc');
    const regionId = region === null ? null : idOrNull(region);
    if (!filter.any || (region !== null && regionId === null)) return pageOf([], 0, page);
    const { account_id } = caller;
    const where = `account_id = $1::uuid and deleted_at is null and ($2::uuid is null or region_id = $2::uuid)
      and ($3::uuid[] is null or id = any($3::uuid[])) and id <> all($4::uuid[])`;
    const values = [
      account_id,
      regionId,
      filter.allowProjects === null ? null : ids(filter.allowIds),
      ids(filter.denyIds),
    ];
    return this.database.transaction(async (tx) => {
      const [counted] = await tx.query<{ total: number }>(
        `select count(*)::int as total from vpc where ${where}`,
        values,
      );
      const rows = await tx.query<VpcRow>(
        `select ${vpcColumns} from vpc where ${where} order by created_at, id limit $5::int offset $6::int`,
        [...values, page.limit, page.offset],
      );
      return pageOf(rows.map(vpcRecord), counted!.total, page);
    }, account_id);
  }

  /**
   * Creates a VPC; the region makes it real.
   * @throws ApiError 422 and 400 `invalid_subnet` for the range, 404 for an unknown region, 409 `subnet_overlaps`, `name_taken`
   */
  async create(caller: KeyIdentity, body: V1VpcCreate, idem: IdempotentRequest | null): Promise<V1Vpc> {
    checkName(body.name);
    const subnet = requireSubnet(body.subnet);
    const region = await this.regions.choose(body.cluster_id, 'cluster_id');
    const { account_id } = caller;
    const answer = await this.database.transaction(
      (tx) =>
        once(tx, idem, async () => {
          const row = await insertVpc(tx, { account_id, region_id: region.id, name: body.name, subnet });
          const details = { name: row.name, subnet: row.subnet };
          const created = says.vpcCreated(vpcEvent(row), { account: account_id });
          await sayAct(tx, caller, 'networking_create_vpc', `vpc:${row.id}`, details, created);
          return { status: 201, body: vpcRecord(row) };
        }),
      account_id,
    );
    return answer.body;
  }

  /**
   * Renames a VPC; an empty body changes nothing.
   * @throws ApiError 404, 409 `name_taken`, 422 for a blank name
   */
  async update(caller: KeyIdentity, id: string, { name }: V1VpcUpdate): Promise<V1Vpc> {
    if (name !== undefined) checkName(name);
    const { account_id } = caller;
    return this.database.transaction(async (tx) => {
      const before = await this.find(tx, account_id, id, true);
      if (name === undefined) return vpcRecord(before);
      const [row] = await tx
        .query<VpcRow>(
          `update vpc set name = $2, name_key = $3 where id = $1::uuid returning ${vpcColumns}`,
          [before.id, name, nameKey(name)],
        )
        .catch((error: unknown) => {
          if ((error as { code?: string }).code === '23505') throw nameTaken(name);
          throw error;
        });
      await sayAct(tx, caller, 'networking_update_vpc', `vpc:${before.id}`, { name });
      return vpcRecord(row!);
    }, account_id);
  }

  /**
   * Deletes a VPC from any state: it is unlisted and its name and range are free at once, the region takes it away after that.
   * @throws ApiError 404, 409 `vpc_in_use` while a port is in it
   */
  async delete(caller: KeyIdentity, id: string): Promise<void> {
    const { account_id } = caller;
    await this.database.transaction(async (tx) => {
      // Locked against claims of ports, which hold the same row.
      const vpc = await this.find(tx, account_id, id, true);
      const used = await tx.query<{ kind: string; count: number }>(
        'select kind, count(*)::int as count from port where vpc_id = $1::uuid group by 1 order by 1',
        [vpc.id],
      );
      if (used.length > 0) {
        const words = used.map(({ kind, count }) => `${count} ${kind.replaceAll('_', ' ')}`).join(', ');
        throw conflict('vpc_in_use', `the VPC still has ports: ${words}`);
      }
      await tx.query('update vpc set deleted_at = now(), generation = generation + 1 where id = $1::uuid', [
        vpc.id,
      ]);
      await wake(tx, 'vpc', vpc.id);
      const deleted = says.vpcDeleted(vpcEvent(vpc), { account: account_id });
      await sayAct(tx, caller, 'networking_delete_vpc', `vpc:${vpc.id}`, { name: vpc.name }, deleted);
    }, account_id);
  }
}

const vpcEvent = ({ id, region_id, name, subnet }: VpcRow) => ({ vpc_id: id, region_id, name, subnet });

function checkName(name: string): void {
  if (name.trim() === '') throw fieldError('name', 'must not be blank');
  if (name.includes('\0')) throw fieldError('name', 'must not contain NUL');
}
