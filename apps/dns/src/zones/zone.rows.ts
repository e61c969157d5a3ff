import type { V1Zone, ZoneStatus } from '@nebo/contracts';
import type { Sql, SqlValue } from '@nebo/persistence';
import { notFound, pathId } from '@nebo/service-kit';

/** A row of `zone`. */
export interface ZoneRow {
  id: string;
  account_id: string;
  name: string;
  default_ttl: number | null;
  status: ZoneStatus;
  status_reason: string | null;
  serial: bigint;
  record_count: number;
  created_at: Date;
  updated_at: Date;
}

export const zoneColumns =
  'id, account_id, name, default_ttl, status, status_reason, serial, record_count, created_at, updated_at';

/** A row as the contract's record. */
export function zoneRecord(row: ZoneRow, nameservers: readonly string[]): V1Zone {
  return {
    id: row.id,
    name: row.name,
    status: row.status,
    status_reason: row.status_reason,
    created_at: row.created_at.toISOString(),
    updated_at: row.updated_at.toISOString(),
    default_ttl: row.default_ttl,
    dnssec_enabled: false,
    nameservers: [...nameservers],
  };
}

/**
 * The zone of a path.
 * @param lock hold its row: all who change the zone's data wait in line, so its serial has no holes and checks stay true
 * @throws ApiError 404 when it is absent or another account's
 */
export async function findZone(tx: Sql, account: string, id: string, lock = false): Promise<ZoneRow> {
  const [row] = await tx.query<ZoneRow>(
    `select ${zoneColumns} from zone where id = $1::uuid and account_id = $2::uuid ${lock ? 'for update' : ''}`,
    [pathId(id), account],
  );
  if (!row) throw notFound();
  return row;
}

/**
 * Counts a change of a zone's data: the next serial, and which names it touched. The caller holds the row.
 * @param names canonical; null for what concerns every name
 * @param records by how many records there are more, or less
 */
export async function countChange(
  tx: Sql,
  zone: ZoneRow,
  names: readonly string[] | null,
  records = 0,
): Promise<void> {
  const values: SqlValue[] = [zone.id, records, names === null ? null : [...new Set(names)]];
  await tx.query(
    `with counted as (
       update zone set serial = serial + 1, record_count = record_count + $2::int, updated_at = now()
       where id = $1::uuid returning account_id, id, serial)
     insert into zone_change (account_id, zone_id, serial, name)
     select account_id, id, serial, unnest(coalesce($3::text[], array[null])) from counted`,
    values,
  );
}
