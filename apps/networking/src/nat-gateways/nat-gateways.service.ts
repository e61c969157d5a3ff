import { randomUUID } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import { decide, type KeyIdentity, type V1NatGateway, type V1NatGatewayEnable } from '@nebo/contracts';
import { start, wake } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import {
  ApiError,
  badRequest,
  conflict,
  forbidden,
  type IdempotentRequest,
  notFound,
  once,
  referenceNotFound,
} from '@nebo/service-kit';
import { type Actor, sayAct } from '../events.js';
import { AddressMoney, type MonthHeld } from '../floating-ips/address-money.js';
import {
  endSpan,
  findFloatingIp,
  type FloatingIpRow,
  holdFloatingIp,
  insertFloatingIp,
} from '../floating-ips/floating-ip.rows.js';
import { AddressPool } from '../floating-ips/pool.js';
import { insertPort } from '../ports/port.rows.js';
import { Regions } from '../shared/regions.js';
import type { VpcRow } from '../vpcs/vpc.mapper.js';
import { nextGeneration } from '../vpcs/vpc.rows.js';
import { VpcsService } from '../vpcs/vpcs.service.js';

/** NAT gateways: what owners want of them. What becomes of it is the lifecycle's. */
@Injectable()
export class NatGatewaysService {
  constructor(
    private readonly database: Database,
    private readonly vpcs: VpcsService,
    private readonly regions: Regions,
    private readonly money: AddressMoney,
    private readonly pool: AddressPool,
  ) {}

  /**
   * Lets a VPC out through an address that its owner brings, or one that is ordered. From now on the address is the gateway's:
   * it is released with it.
   * @throws ApiError 404 for the VPC and, naming the field, the address, 403 `floating_ip:read`, `floating_ip:write`, 400
   * `floating_ip_region_mismatch`, 409 `nat_gateway_exists`, `vpc_not_active`, `floating_ip_not_available`, `subnet_full`, 402,
   * 503 `billing_unavailable` and `no_capacity`
   */
  async enable(
    caller: KeyIdentity,
    vpcId: string,
    body: V1NatGatewayEnable,
    idem: IdempotentRequest | null,
  ): Promise<V1NatGateway> {
    const { account_id } = caller;
    const fipId = body.fip_id?.toLowerCase() ?? null;
    const answer = await this.database.transaction(
      (tx) =>
        once(tx, idem, async () => {
          const before = await this.vpcs.find(tx, account_id, vpcId);
          if (fipId === null) mayOrder(caller);
          else {
            await holdFloatingIp(tx, fipId);
            mayUse(caller, await this.brought(tx, account_id, fipId), before);
          }
          await this.refuse(tx, before);
          // Nothing is locked while billing is asked; what that may have missed is looked at again under the lock.
          const make = async (money: MonthHeld | null) => {
            const vpc = await this.vpcs.find(tx, account_id, vpcId, true);
            await this.refuse(tx, vpc);
            const fip = money ? await this.order(tx, vpc, money) : await this.bring(tx, vpc, fipId!);
            return { status: 201, body: await this.write(tx, caller, vpc, fip, money !== null) };
          };
          return fipId === null ? this.money.withMonth(account_id, make) : make(null);
        }),
      account_id,
    );
    return answer.body;
  }

  /**
   * Takes the way out away: the charge of its address ends now, gateway and address are gone once the region has confirmed it.
   * A repeat is answered as the first.
   * @throws ApiError 404 for the VPC, and for one without a gateway
   */
  async disable(by: KeyIdentity | Actor, vpcId: string): Promise<V1NatGateway> {
    const { account_id } = by;
    return this.database.transaction(async (tx) => {
      const vpc = await this.vpcs.find(tx, account_id, vpcId, true);
      const [gateway] = await tx.query<{ id: string; fip_id: string; address: string; enabled: boolean }>(
        `select id, fip_id, host(address) as address, enabled from nat_gateway where vpc_id = $1::uuid for update`,
        [vpc.id],
      );
      if (!gateway) throw notFound();
      if (gateway.enabled) {
        const { id, fip_id, address } = gateway;
        const generation = await nextGeneration(tx, vpc.id);
        await tx.query(
          `update nat_gateway set enabled = false, status = 'detaching', last_error = null, wanted_generation = $2::int
           where id = $1::uuid`,
          [id, generation],
        );
        await tx.query("update floating_ip set status = 'detaching', last_error = null where id = $1::uuid", [
          fip_id,
        ]);
        await endSpan(tx, fip_id);
        await wake(tx, 'nat_gateway', id);
        await sayAct(tx, by, 'networking_disable_nat_gateway', `vpc:${vpc.id}`, { address, fip_id });
      }
      return this.read(tx, account_id, vpc.id);
    }, account_id);
  }

  /** @throws ApiError 409 while a gateway is there, also one on its way out, and for a VPC that is not active */
  private async refuse(tx: Sql, vpc: VpcRow): Promise<void> {
    const exists = await tx.query('select 1 as there from nat_gateway where vpc_id = $1::uuid', [vpc.id]);
    if (exists.length > 0)
      throw conflict('nat_gateway_exists', 'the VPC has a NAT gateway; disable it and wait until it is gone');
    if (vpc.status !== 'active')
      throw conflict('vpc_not_active', `the VPC is ${vpc.status}; a gateway needs an active one`);
  }

  /** The address that a body names. @throws ApiError 404 naming the field */
  private brought(tx: Sql, account: string, id: string): Promise<FloatingIpRow> {
    return findFloatingIp(tx, account, id).catch((error: unknown) => {
      throw error instanceof ApiError && error.status === 404 ? referenceNotFound('fip_id') : error;
    });
  }

  private async bring(tx: Sql, vpc: VpcRow, id: string): Promise<{ id: string; address: string }> {
    await tx.query('select 1 as held from floating_ip where id = $1::uuid for update', [id]);
    const row = await this.brought(tx, vpc.account_id, id);
    if (row.status !== 'available')
      throw conflict(
        'floating_ip_not_available',
        `the address is ${row.status}; only an available one can be used`,
      );
    return row;
  }

  private async order(tx: Sql, vpc: VpcRow, money: MonthHeld): Promise<{ id: string; address: string }> {
    const { account_id, region_id } = vpc;
    const id = randomUUID();
    const address = await this.pool.take(tx, await this.regions.choose(region_id, 'vpc_id'), id);
    const made = { id, account_id, region_id, address, name: null, money };
    await insertFloatingIp(tx, { ...made, span_id: randomUUID() });
    return { id, address };
  }

  private async write(
    tx: Sql,
    caller: KeyIdentity,
    vpc: VpcRow,
    fip: { id: string; address: string },
    ordered: boolean,
  ): Promise<V1NatGateway> {
    const { account_id } = vpc;
    const id = randomUUID();
    const owner = `nat_gateway:${id}`;
    const port = { account_id, kind: 'nat_gateway' as const, owner, name: null, address: null, mac: null };
    await insertPort(tx, vpc, { id, ...port, request: '{}' });
    const generation = await nextGeneration(tx, vpc.id);
    await tx.query(
      `update floating_ip set target_kind = 'vpc_nat', vpc_id = $2::uuid, wanted_generation = $3::int, auto_release = true,
         status = 'attaching', last_error = null where id = $1::uuid`,
      [fip.id, vpc.id, generation],
    );
    await tx.query(
      `insert into nat_gateway (id, account_id, vpc_id, fip_id, address, wanted_generation)
       values ($1::uuid, $2::uuid, $3::uuid, $4::uuid, $5::inet, $6::int)`,
      [id, account_id, vpc.id, fip.id, fip.address, generation],
    );
    await start(tx, 'nat_gateway', id, 'attaching');
    const details = { address: fip.address, fip_id: fip.id, ordered };
    await sayAct(tx, caller, 'networking_enable_nat_gateway', `vpc:${vpc.id}`, details);
    return this.read(tx, account_id, vpc.id);
  }

  private async read(tx: Sql, account: string, vpcId: string): Promise<V1NatGateway> {
    const { nat_gateway: gateway } = await this.vpcs.find(tx, account, vpcId);
    if (!gateway) throw notFound();
    return gateway;
  }
}

/** An order of an address asks for the right to order one anywhere. @throws ApiError 403 */
function mayOrder(caller: KeyIdentity): void {
  const account = { kind: 'account', id: caller.account_id, project_id: null };
  if (!decide(caller, 'floating_ip:write', account)) throw forbidden('floating_ip:write');
}

/** @throws ApiError 403, 400 `floating_ip_region_mismatch` */
function mayUse(caller: KeyIdentity, { id, region_id }: FloatingIpRow, vpc: VpcRow): void {
  for (const action of ['floating_ip:read', 'floating_ip:write'])
    if (!decide(caller, action, { kind: 'floating_ip', id, project_id: null })) throw forbidden(action);
  if (region_id !== vpc.region_id)
    throw badRequest(
      'floating_ip_region_mismatch',
      'fip_id: the address lies in another region than the VPC',
    );
}
