import { randomBytes, randomUUID } from 'node:crypto';
import { Inject, Injectable } from '@nestjs/common';
import { say } from '@nebo/bus';
import { wake } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';
import { RUNTIME, type Runtime } from '@nebo/service-kit';
import { says } from '../events.js';
import { type ConnectionRow, sealContext } from './connections.rows.js';
import type { Grant } from './oauth/token-endpoint.js';

/** What opens an account at a git host. */
export interface Opening {
  account_id: string;
  provider: string;
  /** Null: the hosted one. */
  base: string | null;
  login: string;
  /** Null: keeps its name, or gets the login. */
  name: string | null;
  auth: 'token' | 'oauth' | 'installation';
  grant: Grant;
  installationId: string | null;
}

/** The only place where a connection comes to be or gets another token from outside. */
@Injectable()
export class ConnectionStore {
  constructor(@Inject(RUNTIME) private readonly runtime: Runtime) {}

  /**
   * Keeps a token that was tried: the account at the host that is connected already gets it, and what stood still for the
   * old one goes on.
   */
  async write(sql: Sql, opening: Opening): Promise<ConnectionRow> {
    const { account_id, provider, login, grant } = opening;
    const base = opening.base ?? '';
    const { masterKey } = this.runtime;
    // Two at once: the second waits here and finds what the first made, so that a token is sealed for the row it lands in.
    await sql.query('select pg_advisory_xact_lock(hashtextextended($1, 0))::text as held', [
      `git_connection|${account_id}|${provider}|${base}|${login}`,
    ]);
    const [known] = await sql.query<{ id: string }>(
      `select id from git_connection
       where provider = $1 and base_url = $2 and login = $3 and account_id = $4::uuid and deleted_at is null`,
      [provider, base, login, account_id],
    );
    const id = known?.id ?? randomUUID();
    const seal = (text: string, what: 'token' | 'refresh' | 'hook') =>
      masterKey.seal(text, sealContext(account_id, id, what)).toString('base64');
    if (!known) {
      const secret = seal(randomBytes(32).toString('hex'), 'hook');
      await sql.query(
        `insert into git_connection (id, account_id, provider, base_url, login, name, token_sealed, hook_secret_sealed)
         values ($1::uuid, $2::uuid, $3, $4, $5, $5, ''::bytea, decode($6, 'base64'))`,
        [id, account_id, provider, base, login, secret],
      );
    }
    const [row] = await sql.query<ConnectionRow>(
      `update git_connection set token_sealed = decode($2, 'base64'), refresh_sealed = decode($3, 'base64'),
         token_expires_at = now() + $4::int * interval '1 second',
         token_renew_at = now() + greatest($4::int - 600, $4::int / 2) * interval '1 second',
         auth = $5, installation_id = $6, name = coalesce($7, name), renewing = null, renewing_since = null,
         status = 'active', status_reason = null, checked_at = now()
       where id = $1::uuid returning *`,
      [
        id,
        seal(grant.token, 'token'),
        grant.refreshToken === null ? null : seal(grant.refreshToken, 'refresh'),
        grant.expiresInS,
        opening.auth,
        opening.installationId,
        opening.name,
      ],
    );
    if (known) await this.tryAgain(sql, id);
    return row!;
  }

  /** What stood still for the old token goes on with the new one. */
  private async tryAgain(sql: Sql, id: string): Promise<void> {
    const hooks = await sql.query<{ id: string }>('select id from git_hook where connection_id = $1::uuid', [
      id,
    ]);
    for (const hook of hooks) await wake(sql, 'git_hook', hook.id);
    const apps = await sql.query<{ id: string }>(
      `update app set source_error = null where git_connection_id = $1 and deleted_at is null returning id`,
      [id],
    );
    for (const app of apps) await wake(sql, 'push', app.id);
  }
}

/** A line of the account's audit log about a connection. */
export async function auditConnection(
  sql: Sql,
  by: { account_id: string; key_id: string },
  action: string,
  row: { id: string },
  details: Record<string, unknown>,
): Promise<void> {
  const event = {
    actor: `key:${by.key_id}`,
    action,
    resource: `git_connection:${row.id}`,
    project_id: null,
    details,
  };
  await say(sql, says.auditWritten(event, { account: by.account_id }));
}
