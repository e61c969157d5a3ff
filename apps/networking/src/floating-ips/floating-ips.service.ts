import { randomUUID } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import {
  formatRubles,
  type KeyIdentity,
  type PageOf,
  pageOf,
  type PageQuery,
  toFilter,
  type V1FloatingIP,
  type V1FloatingIPCreate,
  type V1FloatingIPUpdate,
} from '@nebo/contracts';
import { start, wake } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import { fieldError, type IdempotentRequest, idOrNull, notFound, once, pathId } from '@nebo/service-kit';
import { sayAct } from '../events.js';
import { Regions } from '../shared/regions.js';
import { AddressMoney } from './address-money.js';
import { AddressPool } from './pool.js';

interface Row {
  id: string;
  region_id: string;
  address: string;
  name: string | null;
  amount_per_month: string;
  created_at: Date;
}

const columns =
  'id, region_id, host(address) as address, name, amount_per_month::text as amount_per_month, created_at';
const ids = (texts: readonly string[]): string[] => texts.map(idOrNull).filter((id) => id !== null);

/** Public addresses: ordered, labelled, listed, released. */
@Injectable()
export class FloatingIpsService {
  constructor(
    private readonly database: Database,
    private readonly regions: Regions,
    private readonly money: AddressMoney,
    private readonly pool: AddressPool,
  ) {}

  /** @throws ApiError 404 */
  async get({ account_id }: KeyIdentity, id: string): Promise<V1FloatingIP> {
    return record(await this.database.transaction((tx) => this.find(tx, account_id, id), account_id));
  }

  /**
   * A page of what the key may see, oldest first.
   * @param region null: of all regions
   */
  async list(caller: KeyIdentity, region: string | null, page: PageQuery): Promise<PageOf<V1FloatingIP>> {
    const filter = toFilter(caller, 'floating_ip:read', 'floating_ip');
    const regionId = region === null ? null : idOrNull(region);
    if (!filter.any || (region !== null && regionId === null)) return pageOf([], 0, page);
    const where = `account_id = $1::uuid and ($2::uuid is null or region_id = $2::uuid)
      and ($3::uuid[] is null or id = any($3::uuid[])) and id <> all($4::uuid[])`;
    const values = [
      caller.account_id,
      regionId,
      filter.allowProjects === null ? null : ids(filter.allowIds),
      ids(filter.denyIds),
    ];
    return this.database.transaction(async (tx) => {
      const [counted] = await tx.query<{ total: number }>(
        `select count(*)::int as total from floating_ip where ${where}`,
        values,
      );
      const rows = await tx.query<Row>(
        `select ${columns} from floating_ip where ${where} order by created_at, id limit $5::int offset $6::int`,
        [...values, page.limit, page.offset],
      );
      return pageOf(rows.map(record), counted!.total, page);
    }, caller.account_id);
  }

  /**
   * Orders an address: a month's price must be available, then it is charged hour by hour until the release.
   * @throws ApiError 404 for an unknown region, 402, 503 `billing_unavailable` and `no_capacity`, 422 for a blank label
   */
  async create(
    caller: KeyIdentity,
    body: V1FloatingIPCreate,
    idem: IdempotentRequest | null,
  ): Promise<V1FloatingIP> {
    const name = body.name ?? null;
    checkLabel(name);
    const region = await this.regions.choose(body.cluster_id, 'cluster_id');
    const { account_id } = caller;
    const answer = await this.database.transaction(
      (tx) =>
        once(tx, idem, async () => {
          // Inside, so that the repeat of an order that was made asks for no money. Undone, the hold expires in a minute.
          const held = await this.money.holdMonth(account_id);
          const [id, span]: [string, string] = [randomUUID(), randomUUID()];
          const address = await this.pool.take(tx, region, id);
          const [row] = await tx.query<Row>(
            `insert into floating_ip (id, account_id, region_id, address, name, amount_per_month)
             values ($1::uuid, $2::uuid, $3::uuid, $4::inet, $5, $6::numeric) returning ${columns}`,
            [id, account_id, region.id, address, name, held.amount],
          );
          await tx.query(
            `insert into span (id, account_id, fip_id, address, reservation_id, amount_per_month, price_version)
             values ($1::uuid, $2::uuid, $3::uuid, $4::inet, $5::uuid, $6::numeric, $7::int)`,
            [span, account_id, id, address, held.reservation_id, held.amount, held.price_version],
          );
          await start(tx, 'span', span, 'opening');
          await sayAct(tx, caller, 'networking_create_floating_ip', `floating_ip:${id}`, { address, name });
          return { status: 201, body: record(row!) };
        }),
      account_id,
    );
    return answer.body;
  }

  /** Labels an address; null or nothing clears the label (4-client-behaviours.md, 1). @throws ApiError 404, 422 */
  async update(caller: KeyIdentity, id: string, body: V1FloatingIPUpdate): Promise<V1FloatingIP> {
    const name = body.name ?? null;
    checkLabel(name);
    const { account_id } = caller;
    return this.database.transaction(async (tx) => {
      const { id: known } = await this.find(tx, account_id, id);
      const [row] = await tx.query<Row>(
        `update floating_ip set name = $2 where id = $1::uuid returning ${columns}`,
        [known, name],
      );
      if (!row) throw notFound();
      await sayAct(tx, caller, 'networking_update_floating_ip', `floating_ip:${known}`, { name });
      return record(row);
    }, account_id);
  }

  /** Releases an address: the charge ends now, the address goes back to the pool. @throws ApiError 404 */
  async delete(caller: KeyIdentity, id: string): Promise<void> {
    const { account_id } = caller;
    await this.database.transaction(async (tx) => {
      // Of two releases at once the second finds nothing.
      const [row] = await tx.query<Row>(
        `delete from floating_ip where id = $1::uuid and account_id = $2::uuid returning ${columns}`,
        [pathId(id), account_id],
      );
      if (!row) throw notFound();
      await this.pool.giveBack(tx, row.id);
      const [span] = await tx.query<{ id: string }>(
        'update span set ended_at = now() where fip_id = $1::uuid returning id',
        [row.id],
      );
      await wake(tx, 'span', span!.id);
      const details = { address: row.address, name: row.name };
      await sayAct(tx, caller, 'networking_delete_floating_ip', `floating_ip:${row.id}`, details);
    }, account_id);
  }

  private async find(tx: Sql, account: string, id: string): Promise<Row> {
    const [row] = await tx.query<Row>(
      `select ${columns} from floating_ip where id = $1::uuid and account_id = $2::uuid`,
      [pathId(id), account],
    );
    if (!row) throw notFound();
    return row;
  }
}

function checkLabel(name: string | null): void {
  if (name !== null && (name.trim() === '' || name.includes('\0')))
    throw fieldError('name', 'must not be blank');
}

/** A row as the contract's record. Nothing can be attached yet, so every address is available. */
const record = (row: Row): V1FloatingIP => ({
  id: row.id,
  address: row.address,
  cluster_id: row.region_id,
  status: 'available',
  name: row.name,
  internal_address: null,
  target_kind: 'interface',
  vm_id: null,
  vm_interface_id: null,
  vm_project_id: null,
  vpc_id: null,
  auto_release: false,
  last_error: null,
  monthly_price: formatRubles(BigInt(row.amount_per_month)),
  created_at: row.created_at.toISOString(),
});
