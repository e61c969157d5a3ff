import type { V1NatGateway, V1Vpc } from '@nebo/contracts';

/** A row of `vpc`, as far as records and ports need it. */
export interface VpcRow {
  id: string;
  account_id: string;
  region_id: string;
  name: string;
  subnet: string;
  is_default: boolean;
  status: string;
  status_reason: string | null;
  deleted_at: Date | null;
  nat_gateway: V1NatGateway | null;
}

export const vpcColumns = `id, account_id, region_id, name, subnet::text as subnet, is_default, status, status_reason, deleted_at,
  (select json_build_object('enabled', g.enabled, 'fip_id', g.fip_id, 'address', host(g.address), 'status', g.status,
     'last_error', g.last_error) from nat_gateway g where g.vpc_id = vpc.id) as nat_gateway`;

/** A row as the contract's record. */
export function vpcRecord(row: VpcRow): V1Vpc {
  return {
    id: row.id,
    name: row.name,
    subnet: row.subnet,
    cluster_id: row.region_id,
    is_default: row.is_default,
    nat_gateway: row.nat_gateway,
    ovn_name: null,
    status: row.status,
    status_reason: row.status_reason,
  };
}
