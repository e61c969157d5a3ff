import { Inject, Injectable } from '@nestjs/common';
import { AllowList, createSafeClient, parseAllowList, type SafeClient } from '@nebo/safe-net';
import { RUNTIME, type Runtime } from '@nebo/service-kit';
import { GitApi, type TokenSource } from './git-api.js';
import type { GitHost } from './git-host.js';
import { gitHosts } from './host-list.js';
import { type OAuthApp, OAuthApps } from './oauth/oauth-apps.js';

/** Gives git hosts their way out: public addresses, and what the operator allows by a list or by an OAuth app there. */
@Injectable()
export class GitHosts {
  readonly client: SafeClient;

  constructor(@Inject(RUNTIME) { config }: Runtime, apps: OAuthApps) {
    const listed = parseAllowList(config.optional('NEBO_SAFE_NET_ALLOW'));
    this.client = createSafeClient({
      allow: new AllowList([...listed, ...apps.all.flatMap(addressOf)]),
      httpsOnly: true,
      userAgent: 'nebo',
    });
  }

  find(provider: string): GitHost | null {
    return gitHosts.find((host) => host.provider === provider) ?? null;
  }

  /** @param token null: what everybody may see */
  api(host: GitHost, address: string, token: string | TokenSource | null): GitApi {
    return new GitApi(this.client, address, (text) => host.headers(text), token);
  }
}

function addressOf({ baseUrl }: OAuthApp): [host: string, port: number][] {
  if (baseUrl === null) return [];
  const { hostname, port, protocol } = new URL(baseUrl);
  const bare = hostname.startsWith('[') ? hostname.slice(1, -1) : hostname;
  return [[bare, port === '' ? (protocol === 'https:' ? 443 : 80) : Number(port)]];
}
