import { randomUUID } from 'node:crypto';
import type { Sql } from '@nebo/persistence';
import { conflict } from '@nebo/service-kit';
import { checked, type NewPort, portColumns, type PortRow } from '../ports/port.rows.js';
import { subnetOf } from '../vpcs/subnet.js';
import type { VpcRow } from '../vpcs/vpc.mapper.js';

/** How long a guest may go on with an address that its interface no longer has: the length of a lease in a region. */
const leaseTime = '1 hour';

/** What an account reserves. */
export interface Reservation {
  name: string;
  address: string;
  /** Canonical. */
  mac: string;
}

/** What each reserved IP is as a port. */
export function newReservation({ account_id }: VpcRow): Omit<NewPort, keyof Reservation> {
  const id = randomUUID();
  return { id, account_id, kind: 'reserved_ip', owner: `reserved_ip:${id}`, request: '{}' };
}

/**
 * Reserves an address for the MAC of a machine's interface: the interface's port has it from now on, and the reservation
 * counts by itself again when that port is given back. The address that it had rests until no guest can have it by lease. The
 * VPC's row is locked.
 * @returns null when no interface has the MAC
 * @throws ApiError 400 `address_outside_subnet`, 409 `address_in_use`, `mac_in_use`
 */
export async function reserveForInterface(
  tx: Sql,
  vpc: VpcRow,
  wanted: Reservation,
): Promise<PortRow | null> {
  const [port] = await tx.query<{ id: string; address: string }>(
    `select id, host(address) as address from port
     where vpc_id = $1::uuid and mac = $2::macaddr and kind = 'vm_interface'`,
    [vpc.id, wanted.mac],
  );
  if (!port) return null;
  const address = checked(wanted.address, subnetOf(vpc.subnet)!);
  const [used] = await tx.query<{ mac: boolean; address: boolean }>(
    `select coalesce(bool_or(mac = $2::macaddr), false) as mac, coalesce(bool_or(address = $3::inet), false) as address
     from port where vpc_id = $1::uuid and id <> $4::uuid and (mac = $2::macaddr or address = $3::inet)`,
    [vpc.id, wanted.mac, address, port.id],
  );
  if (used?.mac) throw conflict('mac_in_use', `${wanted.mac} has a reserved address in this VPC already`);
  if (used?.address) throw conflict('address_in_use', `${address} is in use in this VPC`);
  if (port.address !== address) {
    await tx.query('update port set address = $2::inet where id = $1::uuid', [port.id, address]);
    await tx.query(
      `insert into resting_address (vpc_id, address, until) values ($1::uuid, $2::inet, now() + $3::interval)
       on conflict (vpc_id, address) do update set until = excluded.until`,
      [vpc.id, port.address, leaseTime],
    );
  }
  const made = newReservation(vpc);
  const [row] = await tx.query<PortRow>(
    `with made as (
       insert into port (id, account_id, vpc_id, kind, owner, name, address, mac, request, bound_to)
       values ($1::uuid, $2::uuid, $3::uuid, 'reserved_ip', $4, $5, $6::inet, $7::macaddr, '{}', $8::uuid) returning *)
     select ${portColumns} from made p join vpc v on v.id = p.vpc_id`,
    [made.id, vpc.account_id, vpc.id, made.owner, wanted.name, address, wanted.mac, port.id],
  );
  return row!;
}
