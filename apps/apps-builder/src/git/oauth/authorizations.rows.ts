import type { V1GitAuthorization } from '@nebo/contracts';
import type { Sql } from '@nebo/persistence';

/** A person's way through a git host as its table has it. */
export interface AuthorizationRow {
  id: string;
  account_id: string;
  key_id: string;
  provider: string;
  base_url: string;
  name: string | null;
  is_installation: boolean;
  wanted_connection_id: string | null;
  state_hash: Uint8Array;
  verifier_sealed: Uint8Array;
  status: string;
  status_reason: string | null;
  connection_id: string | null;
  created_at: Date;
  expires_at: Date;
  used_at: Date | null;
  /** By the database's clock. */
  is_over: boolean;
}

/** What a sealed verifier is bound to. */
export const verifierContext = ({ account_id, id }: Pick<AuthorizationRow, 'account_id' | 'id'>): string =>
  `${account_id}|git_authorization:${id}|verifier`;

/** A code that was not given for a token by then never will be: the process that did it is gone. */
const tradeLimit = `interval '1 minute'`;

/** @returns null when there is none, or it is another account's under row-level security */
export async function findAuthorization(sql: Sql, id: string): Promise<AuthorizationRow | null> {
  const [row] = await sql.query<AuthorizationRow>(
    `select *, case status when 'pending' then expires_at <= now() when 'trading' then used_at < now() - ${tradeLimit}
       else false end as is_over
     from git_authorization where id = $1::uuid`,
    [id],
  );
  return row ?? null;
}

/** A row as the contract's record; the address is known to who asked for it only. */
export function authorizationRecord(row: AuthorizationRow, authorizeUrl: string | null): V1GitAuthorization {
  return {
    id: row.id,
    provider: row.provider,
    base_url: row.base_url === '' ? null : row.base_url,
    ...statusOf(row),
    authorize_url: authorizeUrl,
    connection_id: row.connection_id,
    created_at: new Date(row.created_at).toISOString(),
    expires_at: new Date(row.expires_at).toISOString(),
  };
}

function statusOf({ status, status_reason, is_over }: AuthorizationRow): {
  status: string;
  status_reason: string | null;
} {
  if (status === 'pending' && is_over)
    return { status: 'expired', status_reason: 'nobody came back from the git host in time; begin again' };
  if (status === 'trading')
    return is_over
      ? { status: 'failed', status_reason: 'this installation was interrupted; begin again' }
      : { status: 'pending', status_reason: null };
  return { status, status_reason };
}
