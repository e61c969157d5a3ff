import { generateKeyPairSync } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { V1GitAuthorization, V1GitConnection } from '@nebo/contracts';
import type { TestAnswer } from '@nebo/service-kit/testing';
import type { GitDialect, GitHostPart } from '@nebo/test-kit';
import { stringify } from 'yaml';
import { GitBench } from './git-bench.js';

/** apps-builder with an OAuth app at the git host beside it. */
export class OAuthBench {
  private constructor(
    readonly git: GitBench,
    private readonly folder: string,
  ) {}

  static async start(dialect: GitDialect = 'gitea', env: Record<string, string> = {}): Promise<OAuthBench> {
    const folder = mkdtempSync(join(tmpdir(), 'nebo-oauth-'));
    const keys = generateKeyPairSync('rsa', {
      modulusLength: 2048,
      publicKeyEncoding: { type: 'spki', format: 'pem' },
      privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
    });
    writeFileSync(join(folder, 'app.pem'), keys.privateKey, { mode: 0o600 });
    const installation = { app_id: '7', slug: 'nebo', private_key_file: join(folder, 'app.pem') };
    const settings = (host: GitHostPart) => {
      host.oauth.installed =
        dialect === 'github'
          ? { appId: '7', slug: 'nebo', publicKey: keys.publicKey, installationId: '42' }
          : null;
      const app = {
        provider: dialect,
        base_url: host.url,
        client_id: host.oauth.clientId,
        client_secret_env: 'GIT_SECRET',
        ...(dialect === 'github' ? { installation } : {}),
      };
      writeFileSync(join(folder, 'git.yaml'), stringify({ oauth_apps: [app] }));
      return { NEBO_GIT_CONFIG: join(folder, 'git.yaml'), GIT_SECRET: host.oauth.clientSecret };
    };
    return new OAuthBench(await GitBench.start({ dialect }, env, settings), folder);
  }

  get host(): GitHostPart {
    return this.git.host;
  }

  begin(more: Record<string, unknown> = {}): Promise<TestAnswer> {
    const { dialect, url } = this.host;
    return this.git.bench.api('POST', 'git/authorizations', { provider: dialect, base_url: url, ...more });
  }

  async look(id: string): Promise<V1GitAuthorization> {
    return (await this.git.bench.api('GET', `git/authorizations/${id}`)).body as V1GitAuthorization;
  }

  /** Opens an address as a browser does up to where the host sends it. @returns the address of the callback */
  async agree(authorizeUrl: string): Promise<string> {
    const answer = await fetch(authorizeUrl, { redirect: 'manual' });
    const location = answer.headers.get('location');
    if (location === null) throw new Error(`the host did not send anybody back: ${answer.status}`);
    return location;
  }

  /** The whole way. */
  async connect(more: Record<string, unknown> = {}): Promise<V1GitConnection> {
    const { body } = await this.begin(more);
    const page = await this.git.back(await this.agree(body.authorize_url));
    if (page.status !== 200) throw new Error(page.text);
    const { connection_id } = await this.look(body.id);
    return (await this.git.bench.api('GET', `git/connections/${connection_id}`)).body as V1GitConnection;
  }

  /** A token that is about to run out is one that was got long ago. */
  async age(connectionId: string): Promise<void> {
    await this.git.bench.sql(
      `update git_connection set token_renew_at = now() - interval '1 second', token_expires_at = now() + interval '1 minute'
       where id = $1`,
      [connectionId],
    );
  }

  async close(): Promise<void> {
    await this.git.close();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
