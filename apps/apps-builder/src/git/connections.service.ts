import { Injectable } from '@nestjs/common';
import {
  type KeyIdentity,
  type PageOf,
  pageOf,
  type PageQuery,
  type V1GitConnection,
  type V1GitConnectionCreate,
  type V1GitRepository,
} from '@nebo/contracts';
import { wake } from '@nebo/lifecycle';
import { Database } from '@nebo/persistence';
import {
  conflict,
  fieldError,
  type IdempotentRequest,
  notFound,
  once,
  type OnceAnswer,
  repeatOf,
  unavailable,
} from '@nebo/service-kit';
import { Store } from '../shared/prisma.js';
import { addressRefused, baseAddress } from './base-address.js';
import { auditConnection, ConnectionStore } from './connection-store.js';
import { connectionRecord, type ConnectionRow, findConnection } from './connections.rows.js';
import { GitHostError, type GitHost } from './git-host.js';
import { GitHosts } from './git-hosts.js';
import { GitReach } from './git-reach.js';

/** Connections to git hosts: whose token reaches which repositories. Tokens are sealed and never shown. */
@Injectable()
export class ConnectionsService {
  constructor(
    private readonly store: Store,
    private readonly database: Database,
    private readonly hosts: GitHosts,
    private readonly reach: GitReach,
    private readonly connections: ConnectionStore,
  ) {}

  /** A page of the account's connections, oldest first. */
  async list(caller: KeyIdentity, page: PageQuery): Promise<PageOf<V1GitConnection>> {
    return this.store.as(caller.account_id, async ({ sql }) => {
      const [count] = await sql.query<{ total: number }>(
        'select count(*)::int as total from git_connection where deleted_at is null',
      );
      const rows = await sql.query<ConnectionRow>(
        `select * from git_connection where deleted_at is null order by created_at, id
         limit $1::int offset $2::int`,
        [page.limit, page.offset],
      );
      return pageOf(rows.map(connectionRecord), count!.total, page);
    });
  }

  /** @throws ApiError 404 */
  async get(caller: KeyIdentity, id: string): Promise<V1GitConnection> {
    return connectionRecord(await this.find(caller, id));
  }

  /**
   * Connects an account at a git host by its token, which is tried first. The same account again renews the token: that is
   * how one reconnects.
   * @throws ApiError 422 for a token that the host does not take or an address that is none, 503 when the host is away
   */
  async create(
    caller: KeyIdentity,
    body: V1GitConnectionCreate,
    idem: IdempotentRequest | null,
  ): Promise<OnceAnswer<V1GitConnection>> {
    const host = this.hosts.find(body.provider)!;
    const base = body.base_url == null ? null : baseAddress(body.base_url);
    const addresses = host.addresses(base);
    if (addresses === null) throw addressRefused(host, base);
    const repeat = await repeatOf<V1GitConnection>(this.database, caller.account_id, idem);
    if (repeat) return repeat;
    // What a header cannot hold is no token; nothing of it is sent anywhere.
    if (!/^[\x21-\x7e]+$/.test(body.token))
      throw fieldError('token', 'must be printable, without white space');
    const { login } = await host
      .account(this.hosts.api(host, addresses.api, body.token))
      .catch((error: unknown) => {
        throw refusedToken(error, host);
      });
    return this.store.as(caller.account_id, ({ sql }) =>
      once(sql, idem, async () => {
        const row = await this.connections.write(sql, {
          account_id: caller.account_id,
          provider: host.provider,
          base,
          login,
          name: body.name ?? null,
          auth: 'token',
          grant: { token: body.token, refreshToken: null, expiresInS: null },
          installationId: null,
        });
        await auditConnection(sql, caller, 'git_create_connection', row, { provider: row.provider, login });
        return { status: 201, body: connectionRecord(row) };
      }),
    );
  }

  /**
   * Forgets a connection and its token.
   * @throws ApiError 404, 409 `connection_in_use` while apps are built through it
   */
  async delete(caller: KeyIdentity, id: string): Promise<void> {
    const { id: known } = await this.find(caller, id);
    await this.store.as(caller.account_id, async ({ sql }) => {
      // The lock keeps an app from being made through it meanwhile.
      const [row] = await sql.query<ConnectionRow>(
        'select * from git_connection where id = $1::uuid and deleted_at is null for update',
        [known],
      );
      if (!row) throw notFound();
      const apps = await sql.query<{ name: string }>(
        'select name from app where git_connection_id = $1 and deleted_at is null order by created_at limit 3',
        [known],
      );
      if (apps.length > 0) {
        const names = apps.map(({ name }) => `"${name}"`).join(', ');
        throw conflict('connection_in_use', `apps are built through this connection: ${names}`);
      }
      await sql.query('update git_connection set deleted_at = now() where id = $1::uuid', [known]);
      const hooks = await sql.query<{ id: string }>(
        'select id from git_hook where connection_id = $1::uuid',
        [known],
      );
      for (const hook of hooks) await wake(sql, 'git_hook', hook.id);
      await auditConnection(sql, caller, 'git_delete_connection', row, {
        provider: row.provider,
        login: row.login,
      });
    });
  }

  /**
   * Repositories that the connection's token reaches, in the host's order. Where a host does not say how many there are,
   * `total` counts what is known, and one more while there is more.
   * @throws ApiError 404, 409 `git_reconnect`, 503 when the host is away
   */
  async repositories(caller: KeyIdentity, id: string, page: PageQuery): Promise<PageOf<V1GitRepository>> {
    const connection = await this.find(caller, id);
    const { host, api } = this.reach.connected(connection);
    const { pageSize } = host;
    // An installation has no list of a person's repositories.
    const list =
      connection.auth === 'installation' && host.installations !== null
        ? host.installations.repositories
        : host.repositories;
    const data: V1GitRepository[] = [];
    const end = page.offset + page.limit;
    for (let at = Math.floor(page.offset / pageSize); ; at += 1) {
      const { repositories, total } = await this.reach.ask(
        connection,
        () => list(api, at + 1),
        () => unavailable('the git host has no list of repositories where it is expected'),
      );
      const begin = at * pageSize;
      data.push(...repositories.slice(Math.max(0, page.offset - begin), Math.max(0, end - begin)));
      const seen = begin + repositories.length;
      const more = repositories.length === pageSize;
      if (!more || seen >= end) return pageOf(data, total ?? seen + (more ? 1 : 0), page);
    }
  }

  private async find(caller: KeyIdentity, id: string): Promise<ConnectionRow> {
    const row = await this.store.as(caller.account_id, ({ sql }) => findConnection(sql, id));
    if (row === null) throw notFound();
    return row;
  }
}

/** Why a token was not taken, as the answer of a create. */
function refusedToken(error: unknown, { provider }: GitHost): unknown {
  if (!(error instanceof GitHostError)) return error;
  switch (error.failure) {
    case 'unauthorized':
    case 'forbidden':
      return fieldError('token', `${provider} does not take this token`);
    case 'refused':
      return fieldError('base_url', error.message);
    case 'away':
      return unavailable(error.message, error);
    default:
      return fieldError('base_url', `no ${provider} answers there: ${error.message}`);
  }
}
