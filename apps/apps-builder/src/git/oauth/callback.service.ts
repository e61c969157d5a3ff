import { Inject, Injectable } from '@nestjs/common';
import { Database } from '@nebo/persistence';
import { RUNTIME, type Runtime } from '@nebo/service-kit';
import { Settings } from '../../shared/settings.js';
import { auditConnection, ConnectionStore, type Opening } from '../connection-store.js';
import { type ConnectionRow, findConnection } from '../connections.rows.js';
import { type GitFailure, GitHostError } from '../git-host.js';
import { GitHosts } from '../git-hosts.js';
import { type AuthorizationRow, findAuthorization, verifierContext } from './authorizations.rows.js';
import { OAuthApps } from './oauth-apps.js';
import type { Page } from './page.js';
import { callbackPath } from './renewal.js';
import { isSecretOf, readState } from './state.js';
import { appToken, type Grant, plainWord, TokenEndpoint } from './token-endpoint.js';

/** What a git host sends a person back with. */
export type CallbackQuery = Readonly<Record<string, unknown>>;

/** Why nothing came of it; the message is what the person and the authorization are told. */
class Refusal extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

const statuses: Readonly<Record<GitFailure, number>> = {
  unauthorized: 403,
  forbidden: 403,
  not_found: 403,
  refused: 403,
  away: 502,
  unexpected: 502,
};

/**
 * Takes people who come back from a git host. Their state is believed when it is one that was given out, once, within its
 * ten minutes; only then anything is asked of the host. The code is given for a grant and the grant tried before a
 * connection is made of it, in one transaction: whatever dies in between leaves nothing half made.
 */
@Injectable()
export class CallbackService {
  constructor(
    private readonly database: Database,
    private readonly hosts: GitHosts,
    private readonly apps: OAuthApps,
    private readonly connections: ConnectionStore,
    private readonly settings: Settings,
    @Inject(RUNTIME) private readonly runtime: Runtime,
  ) {}

  /** @returns the page for the person, whatever happened */
  async take(query: CallbackQuery): Promise<Page> {
    let row: AuthorizationRow | null = null;
    try {
      row = await this.claim(query);
      const opening = await this.open(row, query);
      const { login, provider, account_id } = await this.keep(row, opening);
      return {
        status: 200,
        title: `${provider} is connected`,
        text:
          `The Nebo account ${account_id} may now build from the repositories of ${login}. You can close this page. ` +
          `If you did not ask for this, take the access back in the settings of ${provider}.`,
      };
    } catch (error) {
      const refusal = asRefusal(error);
      if (row !== null) await this.settle(row, refusal.message);
      return { status: refusal.status, title: 'Nothing was connected', text: `${upper(refusal.message)}.` };
    }
  }

  /** Uses the state up. @throws Refusal */
  private async claim(query: CallbackQuery): Promise<AuthorizationRow> {
    const state = readState(query['state']);
    const unknown = new Refusal(400, 'this address was not made here: begin again from Nebo');
    if (state === null) throw unknown;
    return this.database.transaction(async (tx) => {
      await tx.query('select 1 as held from git_authorization where id = $1::uuid for update', [state.id]);
      const row = await findAuthorization(tx, state.id);
      if (row === null || !isSecretOf(state.secret, row.state_hash)) throw unknown;
      if (row.status === 'failed' && row.used_at === null)
        throw new Refusal(403, row.status_reason ?? 'called off');
      if (row.status !== 'pending')
        throw new Refusal(410, 'this address has been used: begin again from Nebo');
      if (row.is_over) throw new Refusal(410, 'this address was good for ten minutes: begin again from Nebo');
      await tx.query("update git_authorization set status = 'trading', used_at = now() where id = $1::uuid", [
        state.id,
      ]);
      return row;
    });
  }

  /** Gives the code for a grant and tries it. @throws Refusal, GitHostError */
  private async open(row: AuthorizationRow, query: CallbackQuery): Promise<Opening> {
    const { provider, account_id, name } = row;
    const base = row.base_url === '' ? null : row.base_url;
    const host = this.hosts.find(provider);
    const addresses = host?.addresses(base) ?? null;
    const app = this.apps.find(provider, base);
    if (!host?.oauth || addresses === null || app === null)
      throw new Refusal(403, `this installation has no OAuth app for ${provider} any more`);
    const said = query['error'];
    if (typeof said === 'string' && said !== '') throw new Refusal(403, refusedBy(provider, said));
    const code = query['code'];
    if (typeof code !== 'string' || code === '' || code.length > 2_000) {
      if (query['setup_action'] === 'request')
        throw new Refusal(
          403,
          `an owner of the account at ${provider} has to allow the app first: begin again then`,
        );
      throw new Refusal(400, `${provider} sent no code: begin again from Nebo`);
    }
    const verifier = this.runtime.masterKey.open(row.verifier_sealed, verifierContext(row));
    const redirectUri = `${this.settings.publicUrl}${callbackPath}`;
    const endpoint = new TokenEndpoint(this.hosts.client, host.oauth, addresses, app, redirectUri);
    const grant = await endpoint.trade(code, row.is_installation ? null : verifier);
    const api = this.hosts.api(host, addresses.api, grant.token);
    const opening = { account_id, provider, base, name };
    if (!row.is_installation) {
      const { login } = await host.account(api);
      return { ...opening, login, auth: 'oauth', grant, installationId: null };
    }
    const installationId = query['installation_id'];
    if (
      typeof installationId !== 'string' ||
      !/^\d{1,20}$/.test(installationId) ||
      !host.installations ||
      !app.installed
    )
      throw new Refusal(400, `${provider} named no installation of the app: begin again from Nebo`);
    const { login } = await host.installations.account(api, installationId);
    const appApi = this.hosts.api(host, addresses.api, appToken(app.installed));
    const { token, expiresInS } = await host.installations.token(appApi, installationId);
    const installed: Grant = { token, refreshToken: null, expiresInS };
    return { ...opening, login, auth: 'installation', grant: installed, installationId };
  }

  /** @throws Refusal when the authorization was called off meanwhile, or it is another account of the host's */
  private async keep(row: AuthorizationRow, opening: Opening): Promise<ConnectionRow> {
    return this.database.transaction(async (tx) => {
      const held = await tx.query(
        "select 1 as held from git_authorization where id = $1::uuid and status = 'trading' for update",
        [row.id],
      );
      if (held.length === 0) throw new Refusal(403, 'the key that asked for this was changed meanwhile');
      if (row.wanted_connection_id !== null) {
        const wanted = await findConnection(tx, row.wanted_connection_id);
        if (wanted === null)
          throw new Refusal(410, 'the connection that was to be renewed is not there any more');
        if (wanted.login !== opening.login)
          throw new Refusal(
            403,
            `you are ${opening.login} at ${row.provider}, the connection is that of ${wanted.login}: sign in there as ${wanted.login} and begin again`,
          );
      }
      const connection = await this.connections.write(tx, opening);
      await tx.query(
        "update git_authorization set status = 'connected', connection_id = $2::uuid where id = $1::uuid",
        [row.id, connection.id],
      );
      const { provider, login, auth } = connection;
      await auditConnection(tx, row, 'git_create_connection', connection, { provider, login, auth });
      return connection;
    });
  }

  private async settle(row: AuthorizationRow, reason: string): Promise<void> {
    await this.database.transaction((tx) =>
      tx.query(
        "update git_authorization set status = 'failed', status_reason = $2 where id = $1::uuid and status = 'trading'",
        [row.id, reason.slice(0, 1_000)],
      ),
    );
  }
}

/** @throws what is neither: it is a fault of ours */
function asRefusal(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  if (error instanceof GitHostError) return new Refusal(statuses[error.failure], error.message);
  throw error;
}

const upper = (text: string): string => `${text.slice(0, 1).toUpperCase()}${text.slice(1)}`;

function refusedBy(provider: string, said: string): string {
  return said === 'access_denied'
    ? `you did not allow it at ${provider}`
    : `${provider} refused it (${plainWord(said)})`;
}
