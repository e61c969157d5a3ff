import { randomUUID } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import {
  type KeyIdentity,
  type PageOf,
  pageOf,
  type PageQuery,
  toFilter,
  type V1FloatingIP,
  type V1FloatingIPCreate,
  type V1FloatingIPUpdate,
} from '@nebo/contracts';
import { Database, type Sql } from '@nebo/persistence';
import { conflict, fieldError, type IdempotentRequest, idOrNull, once } from '@nebo/service-kit';
import { actorOf, sayAct } from '../events.js';
import { Regions } from '../shared/regions.js';
import { AddressMoney } from './address-money.js';
import {
  findFloatingIp,
  floatingIpColumns,
  floatingIpRecord,
  type FloatingIpRow,
  floatingIps,
  insertFloatingIp,
  lockFloatingIp,
  releaseFloatingIp,
} from './floating-ip.rows.js';
import { AddressPool } from './pool.js';

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
    return floatingIpRecord(
      await this.database.transaction((tx) => findFloatingIp(tx, account_id, id), account_id),
    );
  }

  /**
   * A page of what the key may see, oldest first.
   * @param region null: of all regions
   */
  async list(caller: KeyIdentity, region: string | null, page: PageQuery): Promise<PageOf<V1FloatingIP>> {
    const filter = toFilter(caller, 'floating_ip:read', 'floating_ip');
    const regionId = region === null ? null : idOrNull(region);
    if (!filter.any || (region !== null && regionId === null)) return pageOf([], 0, page);
    const where = `f.account_id = $1::uuid and f.released_at is null and ($2::uuid is null or f.region_id = $2::uuid)
      and ($3::uuid[] is null or f.id = any($3::uuid[])) and f.id <> all($4::uuid[])`;
    const values = [
      caller.account_id,
      regionId,
      filter.allowProjects === null ? null : ids(filter.allowIds),
      ids(filter.denyIds),
    ];
    return this.database.transaction(async (tx) => {
      const [counted] = await tx.query<{ total: number }>(
        `select count(*)::int as total from floating_ip f where ${where}`,
        values,
      );
      const rows = await tx.query<FloatingIpRow>(
        `select ${floatingIpColumns} from ${floatingIps} where ${where}
         order by f.created_at, f.id limit $5::int offset $6::int`,
        [...values, page.limit, page.offset],
      );
      return pageOf(rows.map(floatingIpRecord), counted!.total, page);
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
          const id = randomUUID();
          // Inside, so that the repeat of an order that was made asks for no money.
          const address = await this.money.withMonth(account_id, async (money) => {
            const taken = await this.pool.take(tx, region, id);
            const made = { id, account_id, region_id: region.id, address: taken, name, money };
            await insertFloatingIp(tx, { ...made, span_id: randomUUID() });
            return taken;
          });
          await sayAct(tx, caller, 'networking_create_floating_ip', `floating_ip:${id}`, { address, name });
          return { status: 201, body: floatingIpRecord(await findFloatingIp(tx, account_id, id)) };
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
      const { id: known } = await findFloatingIp(tx, account_id, id);
      await tx.query('update floating_ip set name = $2 where id = $1::uuid', [known, name]);
      await sayAct(tx, caller, 'networking_update_floating_ip', `floating_ip:${known}`, { name });
      return floatingIpRecord(await findFloatingIp(tx, account_id, known));
    }, account_id);
  }

  /**
   * Releases an address: the charge ends now. It goes back to the pool at once, or when its region confirms that it is free.
   * @throws ApiError 404, 409 `floating_ip_attached`, `held_by_nat_gateway`
   */
  async delete(caller: KeyIdentity, id: string): Promise<void> {
    const { account_id } = caller;
    await this.database.transaction(async (tx) => {
      // Of two releases at once the second finds nothing.
      const row = await lockFloatingIp(tx, account_id, id);
      await refuseOfGateway(tx, row);
      if (row.status === 'attaching' || row.status === 'attached')
        throw conflict(
          'floating_ip_attached',
          `the address is ${row.status}; detach it before it is released`,
        );
      await releaseFloatingIp(tx, this.pool, actorOf(caller), row);
    }, account_id);
  }
}

/** What a NAT gateway has goes with the gateway, and by no other way. @throws ApiError 409 `held_by_nat_gateway` */
export async function refuseOfGateway(tx: Sql, { id }: FloatingIpRow): Promise<void> {
  const [gateway] = await tx.query<{ vpc_id: string }>(
    'select vpc_id from nat_gateway where fip_id = $1::uuid',
    [id],
  );
  if (gateway)
    throw conflict(
      'held_by_nat_gateway',
      `the NAT gateway of VPC ${gateway.vpc_id} has the address; disabling it releases the address`,
    );
}

function checkLabel(name: string | null): void {
  if (name !== null && (name.trim() === '' || name.includes('\0')))
    throw fieldError('name', 'must not be blank');
}
