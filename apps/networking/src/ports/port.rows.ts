import { randomBytes } from 'node:crypto';
import type { PortInfo, PortKind } from '@nebo/contracts';
import type { Sql } from '@nebo/persistence';
import { badRequest, conflict } from '@nebo/service-kit';
import { addressNumber, addressText, type Subnet, subnetOf } from '../vpcs/subnet.js';
import type { VpcRow } from '../vpcs/vpc.mapper.js';

/** A row of `port`, joined with its VPC. */
export interface PortRow {
  id: string;
  kind: PortKind;
  owner: string;
  name: string | null;
  vpc_id: string;
  region_id: string;
  subnet: string;
  address: string;
  mac: string;
  created_at: Date;
  project_id: string | null;
  floating_ip: PortInfo['floating_ip'];
}

export const portColumns = `p.id, p.kind, p.owner, p.name, p.vpc_id, v.region_id, v.subnet::text as subnet,
  host(p.address) as address, p.mac::text as mac, p.created_at, p.project_id,
  (select json_build_object('id', f.id, 'address', host(f.address), 'status', f.status)
   from floating_ip f where f.port_id = p.id) as floating_ip`;

/** A row as other services see it. */
export function portInfo(row: PortRow): PortInfo {
  const subnet = subnetOf(row.subnet)!;
  return {
    id: row.id,
    kind: row.kind,
    owner: row.owner,
    vpc_id: row.vpc_id,
    region_id: row.region_id,
    address: row.address,
    prefix: subnet.prefix,
    gateway: addressText(subnet.gateway),
    mac: row.mac,
    floating_ip: row.floating_ip,
  };
}

/** What a new port is made of. */
export interface NewPort {
  id: string;
  account_id: string;
  kind: PortKind;
  owner: string;
  name: string | null;
  /** Null: the lowest free address. */
  address: string | null;
  /** Null: one of ours. */
  mac: string | null;
  /** Of what sits on it. */
  project_id?: string | null;
  /** Kept, to tell a repeat from another request under the same id. */
  request: string;
}

/** One interface's MAC in the form that is stored: lower case, colons. */
export const canonicalMac = (mac: string): string => mac.toLowerCase().replaceAll('-', ':');

/** A MAC that is locally administered and names one interface. */
const freshMac = (): string => ['02', ...(randomBytes(5).toString('hex').match(/../g) as string[])].join(':');

/**
 * Writes a port into a VPC whose row this transaction holds.
 * @throws ApiError 400 `address_outside_subnet`, 409 `address_in_use`, `mac_in_use`, `subnet_full`
 */
export async function insertPort(tx: Sql, vpc: VpcRow, port: NewPort): Promise<PortRow> {
  const subnet = subnetOf(vpc.subnet)!;
  const address =
    port.address === null ? await lowestFree(tx, vpc.id, subnet) : checked(port.address, subnet);
  if (port.mac !== null) {
    const used = await tx.query('select 1 as used from port where vpc_id = $1::uuid and mac = $2::macaddr', [
      vpc.id,
      port.mac,
    ]);
    if (used.length > 0) throw conflict('mac_in_use', `${port.mac} has an address in this VPC already`);
  }
  // Of 2^40 MACs two are the same by chance once in a long time; the constraint sees it.
  for (let attempt = 0; attempt < 5; attempt += 1) {
    const [row] = await tx.query<PortRow>(
      `with made as (
         insert into port (id, account_id, vpc_id, kind, owner, name, address, mac, request, project_id)
         values ($1::uuid, $2::uuid, $3::uuid, $4, $5, $6, $7::inet, $8::macaddr, $9::jsonb, $10::uuid)
         on conflict do nothing returning *)
       select ${portColumns} from made p join vpc v on v.id = p.vpc_id`,
      [
        port.id,
        port.account_id,
        vpc.id,
        port.kind,
        port.owner,
        port.name,
        address,
        port.mac ?? freshMac(),
        port.request,
        port.project_id ?? null,
      ],
    );
    if (row) return row;
    const taken = await tx.query(
      'select 1 as taken from port where vpc_id = $1::uuid and address = $2::inet',
      [vpc.id, address],
    );
    if (taken.length > 0) throw conflict('address_in_use', `${address} is in use in this VPC`);
    if (port.mac !== null) throw conflict('mac_in_use', `${port.mac} has an address in this VPC already`);
  }
  throw new Error(`no free MAC for port ${port.id}`);
}

/**
 * A host address of a subnet that somebody named.
 * @throws ApiError 400 `address_outside_subnet`, 409 `address_in_use` for the gateway's
 */
export function checked(text: string, subnet: Subnet): string {
  const address = addressNumber(text);
  if (address <= subnet.network || address >= subnet.broadcast)
    throw badRequest('address_outside_subnet', `${text} is not a host address of ${subnet.cidr}`);
  if (address === subnet.gateway) throw conflict('address_in_use', `${text} is the gateway of this VPC`);
  return addressText(address);
}

/**
 * Writes a port at the lowest free address of a VPC whose row this transaction holds, in one statement.
 * @returns null when nothing was written: no address is free, or its MAC was another one's by chance
 */
export async function insertAtLowest(tx: Sql, vpc: VpcRow, port: NewPort): Promise<PortRow | null> {
  const subnet = subnetOf(vpc.subnet)!;
  const [row] = await tx.query<PortRow>(
    `with ${lowest}, made as (
       insert into port (id, account_id, vpc_id, kind, owner, name, address, mac, request, project_id)
       select $3::uuid, $4::uuid, $1::uuid, $5, $6, $7, lowest.address, $8::macaddr, $9::jsonb, $10::uuid from lowest
       where lowest.address < $11::inet
       on conflict do nothing returning *)
     select ${portColumns} from made p join vpc v on v.id = p.vpc_id`,
    [
      vpc.id,
      addressText(subnet.gateway),
      port.id,
      port.account_id,
      port.kind,
      port.owner,
      port.name,
      freshMac(),
      port.request,
      port.project_id ?? null,
      addressText(subnet.broadcast),
    ],
  );
  return row ?? null;
}

/**
 * The lowest host address behind the gateway ($2) that no port of VPC $1 has and no guest may still have: the first gap after
 * one that is taken.
 */
const lowest = `resting as (select address from resting_address where vpc_id = $1::uuid and until > now()),
  lowest as (
    select min(t.address) + 1 as address
    from (select $2::inet as address union all select address from port where vpc_id = $1::uuid
      union all select address from resting) t
    where not exists (select 1 from port p where p.vpc_id = $1::uuid and p.address = t.address + 1)
      and not exists (select 1 from resting r where r.address = t.address + 1))`;

/** @throws ApiError 409 `subnet_full` */
async function lowestFree(tx: Sql, vpcId: string, subnet: Subnet): Promise<string> {
  const [row] = await tx.query<{ address: string }>(
    `with ${lowest} select host(address) as address from lowest`,
    [vpcId, addressText(subnet.gateway)],
  );
  const address = row!.address;
  if (addressNumber(address) >= subnet.broadcast)
    throw conflict('subnet_full', `${subnet.cidr} has no free address left`);
  return address;
}
