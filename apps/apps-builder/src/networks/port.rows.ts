import { randomUUID } from 'node:crypto';
import type { PortSpec } from '@nebo/contracts';
import { start } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';

/** What sits on a port. */
export type Sitter = { replica_id: string; run_id?: never } | { run_id: string; replica_id?: never };

/**
 * Picks a port's id and begins its life, in the transaction that makes what sits on it: from here on it is known, whatever
 * dies before networking has answered.
 * @param vpcId of the app as this transaction sees it; null: it is in none, nothing is made
 * @returns the port's id, for what sits on it; null without a VPC
 */
export async function orderPort(
  tx: Sql,
  appId: string,
  vpcId: string | null,
  sitter: Sitter,
): Promise<string | null> {
  if (vpcId === null) return null;
  const id = randomUUID();
  await tx.query(
    `insert into app_port (id, account_id, app_id, project_id, region_id, vpc_id, replica_id, run_id)
     select $1::uuid, account_id, id, project_id, region_id, $3::uuid, $4::uuid, $5::uuid from app where id = $2::uuid`,
    [id, appId, vpcId, sitter.replica_id ?? null, sitter.run_id ?? null],
  );
  await start(tx, 'app_port', id, 'claiming');
  return id;
}

/** Columns of `PortSpec`, of `app_port t`. */
export interface PortColumns {
  port_id: string | null;
  port_vpc_id: string | null;
  port_mac: string | null;
  port_address: string | null;
  port_prefix: number | null;
  port_gateway: string | null;
}

export const portColumns = `t.id as port_id, t.vpc_id as port_vpc_id, t.mac as port_mac, t.address as port_address,
  t.prefix as port_prefix, t.gateway as port_gateway`;

/** A claimed port as the region needs it; null: none. */
export const portSpec = (row: PortColumns): PortSpec | null =>
  row.port_address === null
    ? null
    : {
        vpc_id: row.port_vpc_id!,
        port_id: row.port_id!,
        mac: row.port_mac!,
        address: row.port_address,
        prefix: row.port_prefix!,
        gateway: row.port_gateway!,
      };
