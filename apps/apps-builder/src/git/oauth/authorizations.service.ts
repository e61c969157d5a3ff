import { randomUUID } from 'node:crypto';
import { Inject, Injectable } from '@nestjs/common';
import type { KeyIdentity, V1GitAuthorization, V1GitAuthorizationCreate } from '@nebo/contracts';
import {
  conflict,
  fieldError,
  type IdempotentRequest,
  idOrNull,
  notFound,
  once,
  type OnceAnswer,
  referenceNotFound,
  RUNTIME,
  type Runtime,
} from '@nebo/service-kit';
import { Settings } from '../../shared/settings.js';
import { Store } from '../../shared/prisma.js';
import { addressRefused, baseAddress } from '../base-address.js';
import { auditConnection } from '../connection-store.js';
import { findConnection } from '../connections.rows.js';
import type { GitHost } from '../git-host.js';
import { GitHosts } from '../git-hosts.js';
import {
  authorizationRecord,
  type AuthorizationRow,
  findAuthorization,
  verifierContext,
} from './authorizations.rows.js';
import { type OAuthApp, OAuthApps } from './oauth-apps.js';
import { callbackPath } from './renewal.js';
import { challengeOf, newSecret, stateText } from './state.js';

/** Where an authorization begins, and how it went. What comes back from the host is `callback.service.ts`. */
@Injectable()
export class AuthorizationsService {
  constructor(
    private readonly store: Store,
    private readonly hosts: GitHosts,
    private readonly apps: OAuthApps,
    private readonly settings: Settings,
    @Inject(RUNTIME) private readonly runtime: Runtime,
  ) {}

  /**
   * Makes the address at which a person lets this installation act for them.
   * @throws ApiError 404 for a connection that is not there, 409 `oauth_not_configured`, 422
   */
  async create(
    caller: KeyIdentity,
    body: V1GitAuthorizationCreate,
    idem: IdempotentRequest | null,
  ): Promise<OnceAnswer<V1GitAuthorization>> {
    const host = this.hosts.find(body.provider)!;
    const base = body.base_url == null ? null : baseAddress(body.base_url);
    const addresses = host.addresses(base);
    if (addresses === null) throw addressRefused(host, base);
    const app = this.appOf(host, base);
    if (body.installation === true && (!host.installations || app.installed === null))
      throw conflict(
        'oauth_not_configured',
        `this installation has no app of ${host.provider} that is installed in accounts`,
      );
    return this.store.as(caller.account_id, ({ sql }) =>
      once(sql, idem, async () => {
        if (body.connection_id != null) {
          const known = await findConnection(sql, body.connection_id);
          if (known === null) throw referenceNotFound('connection_id');
          if (known.provider !== host.provider || known.base_url !== (base ?? ''))
            throw fieldError(
              'connection_id',
              `is a connection to ${known.provider} ${known.base_url}`.trimEnd(),
            );
        }
        const id = randomUUID();
        const { account_id, key_id } = caller;
        const state = newSecret();
        const verifier = newSecret().secret;
        await sql.query(
          `insert into git_authorization (id, account_id, key_id, provider, base_url, name, is_installation,
             wanted_connection_id, state_hash, verifier_sealed)
           values ($1::uuid, $2::uuid, $3, $4, $5, $6, $7::boolean, $8::uuid, decode($9, 'base64'), decode($10, 'base64'))`,
          [
            id,
            account_id,
            key_id,
            host.provider,
            base ?? '',
            body.name ?? null,
            body.installation === true,
            body.connection_id == null ? null : idOrNull(body.connection_id),
            state.hash.toString('base64'),
            this.runtime.masterKey.seal(verifier, verifierContext({ account_id, id })).toString('base64'),
          ],
        );
        const row = (await findAuthorization(sql, id))!;
        await auditConnection(sql, caller, 'git_create_authorization', { id }, { provider: host.provider });
        const url = this.address(
          host,
          addresses.web,
          app,
          row,
          stateText({ id, secret: state.secret }),
          verifier,
        );
        return { status: 201, body: authorizationRecord(row, url) };
      }),
    );
  }

  /** @throws ApiError 404 */
  async get(caller: KeyIdentity, id: string): Promise<V1GitAuthorization> {
    const known = idOrNull(id);
    const row =
      known === null
        ? null
        : await this.store.as(caller.account_id, ({ sql }) => findAuthorization(sql, known));
    if (row === null) throw notFound();
    return authorizationRecord(row, null);
  }

  private appOf({ provider, oauth }: GitHost, base: string | null): OAuthApp {
    if (oauth === null)
      throw fieldError('provider', `${provider} is connected by a token: POST /git/connections`);
    const app = this.apps.find(provider, base);
    if (app === null)
      throw conflict(
        'oauth_not_configured',
        `this installation has no OAuth app for ${base === null ? provider : `${provider} at ${base}`} (it has ${this.apps.names}): ` +
          'connect it by a token with POST /git/connections, or ask the operator for one',
      );
    return app;
  }

  private address(
    host: GitHost,
    web: string,
    app: OAuthApp,
    row: AuthorizationRow,
    state: string,
    verifier: string,
  ): string {
    const oauth = host.oauth!;
    if (row.is_installation) {
      const path = host.installations!.installPath(app.installed!.slug, app.baseUrl !== null);
      return `${web}${path}?${new URLSearchParams({ state }).toString()}`;
    }
    const query = new URLSearchParams({
      response_type: 'code',
      client_id: app.clientId,
      redirect_uri: `${this.settings.publicUrl}${callbackPath}`,
      state,
      ...(oauth.scope === '' ? {} : { scope: oauth.scope }),
      ...(oauth.pkce ? { code_challenge: challengeOf(verifier), code_challenge_method: 'S256' } : {}),
    });
    return `${web}${oauth.authorizePath}?${query.toString()}`;
  }
}
