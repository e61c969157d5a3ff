import { Inject, Injectable } from '@nestjs/common';
import { createSafeClient, parseAllowList, type SafeClient } from '@nebo/safe-net';
import { RUNTIME, type Runtime } from '@nebo/service-kit';
import { GitApi } from './git-api.js';
import type { GitHost } from './git-host.js';
import { gitea } from './hosts/gitea/gitea.js';
import { gitflic } from './hosts/gitflic/gitflic.js';
import { github } from './hosts/github/github.js';
import { gitlab } from './hosts/gitlab/gitlab.js';
import { gitverse } from './hosts/gitverse/gitverse.js';

/** Every kind of git host: a line and its folder. */
export const gitHosts: readonly GitHost[] = [github, gitlab, gitea, gitverse, gitflic];

/** Gives git hosts their way out: public addresses, and what the operator allows. */
@Injectable()
export class GitHosts {
  private readonly client: SafeClient;

  constructor(@Inject(RUNTIME) { config }: Runtime) {
    this.client = createSafeClient({
      allow: parseAllowList(config.optional('NEBO_SAFE_NET_ALLOW')),
      httpsOnly: true,
      userAgent: 'nebo',
    });
  }

  find(provider: string): GitHost | null {
    return gitHosts.find((host) => host.provider === provider) ?? null;
  }

  /** @param token null: what everybody may see */
  api(host: GitHost, address: string, token: string | null): GitApi {
    return new GitApi(this.client, address, host.headers(token));
  }
}
