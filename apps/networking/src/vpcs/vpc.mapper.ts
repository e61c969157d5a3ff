import type { V1Vpc } from '@nebo/contracts';

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
}

export const vpcColumns =
  'id, account_id, region_id, name, subnet::text as subnet, is_default, status, status_reason, deleted_at';

/** A row as the contract's record. */
export function vpcRecord(row: VpcRow): V1Vpc {
  return {
    id: row.id,
    name: row.name,
    subnet: row.subnet,
    cluster_id: row.region_id,
    is_default: row.is_default,
    // None can be enabled yet.
    nat_gateway: null,
    ovn_name: null,
    status: row.status,
    status_reason: row.status_reason,
  };
}
