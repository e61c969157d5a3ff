import { randomUUID } from 'node:crypto';
import { start } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';
import { conflict } from '@nebo/service-kit';
import { type VpcRow, vpcColumns } from './vpc.mapper.js';
import { defaultSubnets, overlap, type Subnet, subnetOf } from './subnet.js';

/** Name of a VPC as it is compared: without case and Unicode form. */
export const nameKey = (name: string): string => name.normalize('NFKC').toLowerCase();

/**
 * Has creates of one account in one region follow each other, until the transaction ends: overlaps are looked for under it.
 */
async function holdRegion(tx: Sql, account: string, region: string): Promise<void> {
  await tx.query('select pg_advisory_xact_lock(hashtextextended($1, 0))::text as held', [
    `vpc|${account}|${region}`,
  ]);
}

async function subnetsIn(
  tx: Sql,
  account: string,
  region: string,
): Promise<{ name: string; subnet: Subnet }[]> {
  const rows = await tx.query<{ name: string; subnet: string }>(
    `select name, subnet::text as subnet from vpc
     where account_id = $1::uuid and region_id = $2::uuid and deleted_at is null`,
    [account, region],
  );
  return rows.map(({ name, subnet }) => ({ name, subnet: subnetOf(subnet)! }));
}

/** What a new VPC is made of. */
export interface NewVpc {
  account_id: string;
  region_id: string;
  name: string;
  subnet: Subnet;
}

/**
 * Writes a VPC and begins its life.
 * @throws ApiError 409 `subnet_overlaps`, `name_taken`
 */
export async function insertVpc(tx: Sql, vpc: NewVpc): Promise<VpcRow> {
  await holdRegion(tx, vpc.account_id, vpc.region_id);
  const other = (await subnetsIn(tx, vpc.account_id, vpc.region_id)).find(({ subnet }) =>
    overlap(subnet, vpc.subnet),
  );
  if (other)
    throw conflict(
      'subnet_overlaps',
      `${vpc.subnet.cidr} overlaps with VPC "${other.name}" (${other.subnet.cidr})`,
    );
  return insert(tx, vpc, false);
}

/**
 * The account's default VPC of a region, made on first use; of two that make it at once the second finds the first's.
 * @throws ApiError 409 `no_free_subnet` when the account's VPCs take all ranges that it could have
 */
export async function defaultVpc(tx: Sql, account: string, region: string): Promise<VpcRow> {
  await holdRegion(tx, account, region);
  const [known] = await tx.query<VpcRow>(
    `select ${vpcColumns} from vpc
     where account_id = $1::uuid and region_id = $2::uuid and is_default and deleted_at is null for update`,
    [account, region],
  );
  if (known) return known;
  const taken = await subnetsIn(tx, account, region);
  const names = new Set(taken.map(({ name }) => nameKey(name)));
  let name = 'default';
  for (let number = 2; names.has(name); number += 1) name = `default-${number}`;
  for (const subnet of defaultSubnets()) {
    if (taken.some((other) => overlap(other.subnet, subnet))) continue;
    return insert(tx, { account_id: account, region_id: region, name, subnet }, true);
  }
  throw conflict('no_free_subnet', 'the account’s VPCs leave no range for a default one; name a VPC');
}

async function insert(tx: Sql, vpc: NewVpc, isDefault: boolean): Promise<VpcRow> {
  const id = randomUUID();
  const [row] = await tx.query<VpcRow>(
    `insert into vpc (id, account_id, region_id, name, name_key, subnet, is_default)
     values ($1::uuid, $2::uuid, $3::uuid, $4, $5, $6::cidr, $7)
     on conflict (account_id, region_id, name_key) where deleted_at is null do nothing returning ${vpcColumns}`,
    [id, vpc.account_id, vpc.region_id, vpc.name, nameKey(vpc.name), vpc.subnet.cidr, isDefault],
  );
  if (!row) throw nameTaken(vpc.name);
  await start(tx, 'vpc', id, 'pending');
  return row;
}

/** Makes what is wanted of a VPC newer. @returns the generation that has the change */
export async function nextGeneration(tx: Sql, vpcId: string): Promise<number> {
  const [row] = await tx.query<{ generation: number }>(
    'update vpc set generation = generation + 1 where id = $1::uuid returning generation',
    [vpcId],
  );
  return row!.generation;
}

export const nameTaken = (name: string) =>
  conflict('name_taken', `a VPC named "${name}" exists in this region`);
