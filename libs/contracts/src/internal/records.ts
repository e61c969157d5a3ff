/**
 * Records that the platform keeps in zones of its accounts: addresses of custom domains, challenges of certificates.
 * `POST /internal/v1/records/<name>` at dns. Each carries the mark of its owner; users see them as `managed` and cannot
 * change them, and no operation here ever touches a record without the owner's mark.
 */
import type { RecordType, ZoneStatus } from '../records/dns.js';

/**
 * `put-managed`: the owner's values of a name and type become exactly these. Safe to repeat. 404 `no_zone` when no zone of
 * the account holds the name; 409 `dns_record_conflict` when somebody else's records stand there, which the message names:
 * values of TXT may stand beside others', those of other types may not; 409 `already_released` after `delete-managed` of
 * the whole owner, so that a late repeat revives nothing.
 */
export interface ManagedPutRequest {
  account_id: string;
  /** `kind:id` of what the records are for. */
  owner: string;
  /** Absolute; the trailing dot may be missing. The zone is the account's longest one that holds it. */
  name: string;
  type: RecordType;
  /** Values in the form of `V1DNSRecord.content`. */
  contents: string[];
  /** Seconds; null: the zone's default. Taken only when the set has no other values. */
  ttl: number | null;
  /**
   * For A, AAAA and CNAME: records of these types that the account itself has made at the name are taken away, because it
   * asked for that. Those of other owners still are a conflict.
   */
  override?: boolean;
}

/** Answer of `put-managed`. */
export interface ManagedPut {
  zone_id: string;
  zone_name: string;
  /** Records of a pending zone are answered by our name servers, which nobody may be asking yet. */
  zone_status: ZoneStatus;
  record_ids: string[];
  /** False: all of it stood there already. */
  changed: boolean;
}

/** `delete-managed`: takes the owner's records away, all of them or those of a name (and type). Safe to repeat. */
export interface ManagedDeleteRequest {
  account_id: string;
  owner: string;
  /** Absent: all records of the owner, for good. */
  name?: string | null;
  type?: RecordType | null;
}

/** Answer of `delete-managed`. */
export interface ManagedDeleted {
  /** How many records there were. */
  deleted: number;
}
