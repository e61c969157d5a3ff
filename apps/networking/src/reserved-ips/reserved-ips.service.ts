import { Injectable } from '@nestjs/common';
import {
  type KeyIdentity,
  type PageOf,
  pageOf,
  type PageQuery,
  type V1ReservedIp,
  type V1ReservedIpCreate,
} from '@nebo/contracts';
import { Database } from '@nebo/persistence';
import { fieldError, type IdempotentRequest, notFound, once, pathId } from '@nebo/service-kit';
import { sayAct } from '../events.js';
import { canonicalMac, insertPort, portColumns, type PortRow } from '../ports/port.rows.js';
import { newReservation, reserveForInterface } from './reserved-ip.rows.js';
import { VpcsService } from '../vpcs/vpcs.service.js';

/** Addresses of a VPC that are bound to a MAC: ports that the account itself keeps. */
@Injectable()
export class ReservedIpsService {
  constructor(
    private readonly database: Database,
    private readonly vpcs: VpcsService,
  ) {}

  /** A page, oldest first. @throws ApiError 404 */
  async list({ account_id }: KeyIdentity, vpcId: string, page: PageQuery): Promise<PageOf<V1ReservedIp>> {
    return this.database.transaction(async (tx) => {
      const vpc = await this.vpcs.find(tx, account_id, vpcId);
      const [counted] = await tx.query<{ total: number }>(
        "select count(*)::int as total from port where vpc_id = $1::uuid and kind = 'reserved_ip'",
        [vpc.id],
      );
      const rows = await tx.query<PortRow>(
        `select ${portColumns} from port p join vpc v on v.id = p.vpc_id
         where p.vpc_id = $1::uuid and p.kind = 'reserved_ip' order by p.created_at, p.id limit $2::int offset $3::int`,
        [vpc.id, page.limit, page.offset],
      );
      return pageOf(rows.map(reservedIpRecord), counted!.total, page);
    }, account_id);
  }

  /**
   * Reserves an address. Of a MAC that a machine's interface has, the interface gets the address, with its next lease
   * (docs/decisions/016-reserved-address-of-an-interface).
   * @throws ApiError 404, 400 `address_outside_subnet`, 409 `address_in_use`, `mac_in_use`, 422 for a blank name
   */
  async create(
    caller: KeyIdentity,
    vpcId: string,
    body: V1ReservedIpCreate,
    idem: IdempotentRequest | null,
  ): Promise<V1ReservedIp> {
    if (body.name.trim() === '' || body.name.includes('\0')) throw fieldError('name', 'must not be blank');
    const { account_id } = caller;
    const answer = await this.database.transaction(
      (tx) =>
        once(tx, idem, async () => {
          const vpc = await this.vpcs.find(tx, account_id, vpcId, true);
          const wanted = { name: body.name, address: body.address, mac: canonicalMac(body.mac) };
          const row =
            (await reserveForInterface(tx, vpc, wanted)) ??
            (await insertPort(tx, vpc, { ...newReservation(vpc), ...wanted }));
          await sayAct(tx, caller, 'networking_create_reserved_ip', `vpc:${vpc.id}`, {
            name: body.name,
            address: row.address,
            mac: row.mac,
          });
          return { status: 201, body: reservedIpRecord(row) };
        }),
      account_id,
    );
    return answer.body;
  }

  /** Ends a reservation; an interface that has the address keeps it. @throws ApiError 404, also for a port that is something else */
  async delete(caller: KeyIdentity, vpcId: string, id: string): Promise<void> {
    const { account_id } = caller;
    const portId = pathId(id);
    await this.database.transaction(async (tx) => {
      const vpc = await this.vpcs.find(tx, account_id, vpcId, true);
      const [row] = await tx.query<{ name: string; address: string }>(
        `delete from port where id = $1::uuid and vpc_id = $2::uuid and kind = 'reserved_ip'
         returning name, host(address) as address`,
        [portId, vpc.id],
      );
      if (!row) throw notFound();
      await sayAct(tx, caller, 'networking_delete_reserved_ip', `vpc:${vpc.id}`, { ...row });
    }, account_id);
  }
}

const reservedIpRecord = ({ id, name, address, mac, created_at }: PortRow): V1ReservedIp => ({
  id,
  name: name ?? '',
  address,
  mac,
  created_at: created_at.toISOString(),
});
