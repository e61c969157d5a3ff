import { randomUUID } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import {
  decide,
  type KeyIdentity,
  type PortFloatingIpRequest,
  type PortInfo,
  type V1FloatingIP,
  type V1FloatingIPAttach,
} from '@nebo/contracts';
import { Database, type Sql } from '@nebo/persistence';
import {
  badRequest,
  conflict,
  forbidden,
  type IdempotentRequest,
  once,
  referenceNotFound,
} from '@nebo/service-kit';
import { sayAct } from '../events.js';
import { portColumns, portInfo, type PortRow } from '../ports/port.rows.js';
import { Regions } from '../shared/regions.js';
import { AddressMoney } from './address-money.js';
import {
  bindFloatingIp,
  findFloatingIp,
  floatingIpRecord,
  holdFloatingIp,
  holdVpc,
  insertFloatingIp,
  lockFloatingIp,
  unbindFloatingIp,
  vmOf,
} from './floating-ip.rows.js';
import { refuseOfGateway } from './floating-ips.service.js';
import { AddressPool } from './pool.js';

/** Addresses on interfaces: what their owners want. What becomes of it is the lifecycle's. */
@Injectable()
export class AttachmentsService {
  constructor(
    private readonly database: Database,
    private readonly regions: Regions,
    private readonly money: AddressMoney,
    private readonly pool: AddressPool,
  ) {}

  /**
   * Attaches an available address to an interface; the region makes it so.
   * @throws ApiError 404 for the address and, naming the field, the interface, 403 `vm:read`, 400
   * `floating_ip_region_mismatch`, 409 `floating_ip_not_available`, `interface_has_floating_ip`
   */
  async attach(
    caller: KeyIdentity,
    id: string,
    body: V1FloatingIPAttach,
    idem: IdempotentRequest | null,
  ): Promise<V1FloatingIP> {
    const { account_id } = caller;
    const answer = await this.database.transaction(
      (tx) =>
        once(tx, idem, async () => {
          await holdFloatingIp(tx, id);
          const before = await findFloatingIp(tx, account_id, id);
          const port = await this.interfaceOf(tx, account_id, body.vm_interface_id, 'vm_interface_id');
          const vm = vmOf(port.owner);
          if (!decide(caller, 'vm:read', { kind: 'vm', id: vm ?? '', project_id: port.project_id }))
            throw forbidden('vm:read');
          if (port.region_id !== before.region_id)
            throw badRequest(
              'floating_ip_region_mismatch',
              'vm_interface_id: the interface lies in another region than the address',
            );
          const row = await lockFloatingIp(tx, account_id, id);
          if (row.status !== 'available')
            throw conflict(
              'floating_ip_not_available',
              `the address is ${row.status}; only an available one can be attached`,
            );
          await this.lockInterface(tx, port, 'vm_interface_id');
          await bindFloatingIp(tx, row.id, port, false);
          await sayAct(tx, caller, 'networking_attach_floating_ip', `floating_ip:${row.id}`, {
            address: row.address,
            vm_interface_id: port.id,
          });
          return { status: 200, body: floatingIpRecord(await findFloatingIp(tx, account_id, row.id)) };
        }),
      account_id,
    );
    return answer.body;
  }

  /**
   * Takes an address off its interface; it stays its owner's, also when it came with the machine. One that is attached to
   * nothing is answered as it is, so that a repeat is no error.
   * @throws ApiError 404, 409 `held_by_nat_gateway`
   */
  async detach(caller: KeyIdentity, id: string, idem: IdempotentRequest | null): Promise<V1FloatingIP> {
    const { account_id } = caller;
    const answer = await this.database.transaction(
      (tx) =>
        once(tx, idem, async () => {
          const row = await lockFloatingIp(tx, account_id, id);
          await refuseOfGateway(tx, row);
          if (row.port_id !== null) {
            await unbindFloatingIp(tx, row);
            await sayAct(tx, caller, 'networking_detach_floating_ip', `floating_ip:${row.id}`, {
              address: row.address,
              vm_interface_id: row.port_id,
            });
          }
          return { status: 200, body: floatingIpRecord(await findFloatingIp(tx, account_id, row.id)) };
        }),
      account_id,
    );
    return answer.body;
  }

  /**
   * Orders an address for a claimed port and attaches it.
   * @param by name of the service that asks
   * @throws ApiError see `PortFloatingIpRequest`
   */
  order(request: PortFloatingIpRequest, by: string): Promise<PortInfo> {
    const { operation_id: id, account_id, port_id, project_id } = request;
    return this.database.transaction(async (tx) => {
      await holdFloatingIp(tx, id);
      const port = await this.orderable(tx, request);
      if (port.floating_ip?.id === id) return portInfo(port);
      if (port.floating_ip !== null) throw interfaceTaken();
      const region = await this.regions.choose(port.region_id, 'port_id');
      await this.money.withMonth(account_id, async (money) => {
        await this.lockInterface(tx, port, 'port_id');
        const address = await this.pool.take(tx, region, id);
        const made = { id, account_id, region_id: region.id, address, name: null, money };
        await insertFloatingIp(tx, { ...made, span_id: randomUUID() });
        await tx.query('update port set project_id = coalesce(project_id, $2::uuid) where id = $1::uuid', [
          port_id,
          project_id,
        ]);
        await bindFloatingIp(tx, id, port, true);
        const actor = { account_id, actor: `service:${by}` };
        const details = { address, vm_interface_id: port_id };
        await sayAct(tx, actor, 'networking_create_floating_ip', `floating_ip:${id}`, details);
      });
      return portInfo(await this.interfaceOf(tx, account_id, port_id, 'port_id'));
    }, account_id);
  }

  /** The port of an order, unless it or the order's address was given back. */
  private async orderable(
    tx: Sql,
    { operation_id, account_id, port_id }: PortFloatingIpRequest,
  ): Promise<PortRow> {
    const over = await tx.query('select 1 as over from released_port where id = any($1::uuid[])', [
      [operation_id, port_id],
    ]);
    if (over.length > 0)
      throw conflict('already_released', 'the port or its address was given back; a new one needs a new id');
    const used = await tx.query<{ port_id: string | null }>(
      'select port_id from floating_ip where id = $1::uuid and account_id = $2::uuid',
      [operation_id, account_id],
    );
    // Ordered, and by now its owner has taken it off or given it up.
    if (used.some((row) => row.port_id !== port_id))
      throw conflict('already_released', 'the address was ordered, and taken off its interface');
    return this.interfaceOf(tx, account_id, port_id, 'port_id');
  }

  /** @throws ApiError 404 naming the field for what is no machine's interface of the account */
  private async interfaceOf(tx: Sql, account: string, id: string, field: string): Promise<PortRow> {
    const [port] = await tx.query<PortRow>(
      `select ${portColumns} from port p join vpc v on v.id = p.vpc_id
       where p.id = $1::uuid and p.account_id = $2::uuid and p.kind = 'vm_interface'`,
      [id.toLowerCase(), account],
    );
    if (!port) throw referenceNotFound(field);
    return port;
  }

  /**
   * Locks an interface's VPC, under which nothing else comes to it or takes it away.
   * @throws ApiError 404 naming the field when the interface is gone by now, 409 when it has an address
   */
  private async lockInterface(tx: Sql, port: PortRow, field: string): Promise<void> {
    await holdVpc(tx, port.vpc_id);
    const [now] = await tx.query<{ taken: boolean }>(
      `select exists (select 1 from floating_ip f where f.port_id = p.id) as taken from port p where p.id = $1::uuid`,
      [port.id],
    );
    if (!now) throw referenceNotFound(field);
    if (now.taken) throw interfaceTaken();
  }
}

const interfaceTaken = () =>
  conflict('interface_has_floating_ip', 'the interface has a floating IP already; detach that first');
