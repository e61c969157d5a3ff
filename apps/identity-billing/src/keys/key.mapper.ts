import {
  formatRubles,
  type InferenceIdentity,
  type KeyIdentity,
  type PolicyStatement,
  type Role,
} from '@nebo/contracts';
import { type ApiKey } from '../generated/prisma/client.js';

/** What `key_resolve` answers. */
export interface ResolvedRow {
  id: string;
  account_id: string;
  kind: 'control' | 'inference';
  policy: PolicyStatement[] | null;
  project_ids: string[] | null;
  models: string[] | null;
  monthly_limit: bigint | null;
  version: number;
  role: Role;
}

/** The identity that a live key acts as. */
export function identityOf(row: ResolvedRow): KeyIdentity | InferenceIdentity {
  if (row.kind === 'inference') {
    return {
      kind: 'inference',
      account_id: row.account_id,
      key_id: row.id,
      models: row.models,
      monthly_limit: row.monthly_limit === null ? null : row.monthly_limit.toString(),
    };
  }
  return {
    kind: 'key',
    account_id: row.account_id,
    key_id: row.id,
    policy: row.policy ?? [],
    project_ids: row.project_ids,
    role: row.role,
  };
}

/** A key as people see it: never the key itself. */
export interface KeyRecord {
  id: string;
  account_id: string;
  kind: string;
  name: string;
  prefix: string;
  last_four: string;
  state: string;
  policy: PolicyStatement[] | null;
  project_ids: string[] | null;
  models: string[] | null;
  /** Rubles, decimal. */
  monthly_limit: string | null;
  version: number;
  created_at: string;
}

/** A row as record. */
export function keyRecord(row: ApiKey): KeyRecord {
  return {
    id: row.id,
    account_id: row.account_id,
    kind: row.kind,
    name: row.name,
    prefix: row.prefix,
    last_four: row.last_four,
    state: row.state,
    policy: row.policy as unknown as PolicyStatement[] | null,
    project_ids: row.project_ids as string[] | null,
    models: row.models as string[] | null,
    monthly_limit: row.monthly_limit === null ? null : formatRubles(row.monthly_limit),
    version: row.version,
    created_at: row.created_at.toISOString(),
  };
}
