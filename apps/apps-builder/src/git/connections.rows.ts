import type { V1GitConnection } from '@nebo/contracts';
import type { Sql } from '@nebo/persistence';
import { idOrNull, type MasterKey } from '@nebo/service-kit';

/** A connection as its table has it. */
export interface ConnectionRow {
  id: string;
  account_id: string;
  provider: string;
  base_url: string;
  login: string;
  name: string;
  /** token, oauth or installation: what opens it. */
  auth: string;
  token_sealed: Uint8Array;
  refresh_sealed: Uint8Array | null;
  /** Null: it does not run out by itself. */
  token_expires_at: Date | null;
  token_renew_at: Date | null;
  installation_id: string | null;
  hook_secret_sealed: Uint8Array;
  status: string;
  status_reason: string | null;
  created_at: Date;
  checked_at: Date | null;
}

/** What a sealed value of a connection is bound to. */
export const sealContext = (account: string, id: string, what: 'token' | 'refresh' | 'hook') =>
  `${account}|git_connection:${id}|${what}`;

/**
 * @param deleted also one that is deleted: its webhooks are still to be taken away
 * @returns null when there is none, or it is another account's under row-level security
 */
export async function findConnection(
  sql: Sql,
  id: string | null,
  { deleted = false } = {},
): Promise<ConnectionRow | null> {
  const known = id === null ? null : idOrNull(id);
  if (known === null) return null;
  const [row] = await sql.query<ConnectionRow>(
    `select id, account_id, provider, base_url, login, name, auth, token_sealed, refresh_sealed, token_expires_at,
       token_renew_at, installation_id, hook_secret_sealed, status, status_reason, created_at, checked_at
     from git_connection where id = $1::uuid and ($2::boolean or deleted_at is null)`,
    [known, deleted],
  );
  return row ?? null;
}

/** The token of a connection. */
export const tokenOf = (key: MasterKey, { account_id, id, token_sealed }: ConnectionRow): string =>
  key.open(token_sealed, sealContext(account_id, id, 'token'));

/** What its grant is renewed by; null: nothing. */
export const refreshTokenOf = (
  key: MasterKey,
  { account_id, id, refresh_sealed }: ConnectionRow,
): string | null =>
  refresh_sealed === null ? null : key.open(refresh_sealed, sealContext(account_id, id, 'refresh'));

/** The sentence that leads out of a token or grant that has gone bad. */
export const reconnect = ({
  provider,
  login,
  auth,
}: Pick<ConnectionRow, 'provider' | 'login' | 'auth'>): string =>
  auth === 'token'
    ? `${provider} does not take the token of ${login} any more: reconnect it by POST /git/connections with a new token`
    : `${provider} does not let this installation act for ${login} any more: reconnect it by POST /git/authorizations`;

/** What the connection's webhooks are signed with. */
export const hookSecretOf = (key: MasterKey, { account_id, id, hook_secret_sealed }: ConnectionRow): string =>
  key.open(hook_secret_sealed, sealContext(account_id, id, 'hook'));

/**
 * Writes down that the host does not take the token any more. A token that was renewed since the row was read is another
 * one, of which this says nothing.
 */
export async function markRefused(sql: Sql, row: ConnectionRow, reason: string): Promise<void> {
  await sql.query(
    `update git_connection set status = 'error', status_reason = $2
     where id = $1::uuid and token_sealed = decode($3, 'base64') and (status, status_reason) is distinct from ('error', $2)`,
    [row.id, reason, Buffer.from(row.token_sealed).toString('base64')],
  );
}

/** Writes down that the token works, at most once a minute. */
export async function markWorking(sql: Sql, row: ConnectionRow): Promise<void> {
  await sql.query(
    `update git_connection set status = 'active', status_reason = null, checked_at = now()
     where id = $1::uuid and token_sealed = decode($2, 'base64')
       and (status <> 'active' or checked_at is null or checked_at < now() - interval '1 minute')`,
    [row.id, Buffer.from(row.token_sealed).toString('base64')],
  );
}

/** A row as the contract's record: without what is sealed. */
export function connectionRecord(row: ConnectionRow): V1GitConnection {
  return {
    id: row.id,
    provider: row.provider,
    base_url: row.base_url === '' ? null : row.base_url,
    login: row.login,
    name: row.name,
    auth: row.auth,
    status: row.status,
    status_reason: row.status_reason,
    created_at: new Date(row.created_at).toISOString(),
    checked_at: row.checked_at === null ? null : new Date(row.checked_at).toISOString(),
  };
}
