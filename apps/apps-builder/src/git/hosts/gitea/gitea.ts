import type { GitHost } from '../../git-host.js';
import {
  branchPath,
  commitOf,
  familyStatus,
  hookIdOf,
  hookTo,
  loginOf,
  removed,
  repoPath,
  repositoriesOf,
} from '../../github-family.js';
import { listAt, textAt } from '../../json.js';
import { readFamily } from '../../push-payload.js';
import { headerOf, hexSignatureHolds } from '../../signatures.js';

/** Gitea and Forgejo: always self-hosted, so a connection names the address. */
export const gitea: GitHost = {
  provider: 'gitea',
  pageSize: 50,
  oauth: {
    authorizePath: '/login/oauth/authorize',
    tokenPath: '/login/oauth/access_token',
    scope: 'read:user write:repository',
    pkce: true,
  },
  installations: null,
  tellsMessages: true,
  signatureHeaders: ['x-gitea-signature'],
  addresses: (base) => (base === null ? null : { web: base, api: `${base}/api/v1` }),
  headers: (token): Record<string, string> => (token === null ? {} : { authorization: `token ${token}` }),
  account: (api) => loginOf(api, '/user', 'login'),
  async repositories(api, page) {
    const { body, headers } = await api.get(`/user/repos?limit=50&page=${page}`);
    return repositoriesOf(body, headers['x-total-count']);
  },
  async head(api, repo, branch) {
    const { body } = await api.get(`/repos/${repoPath(repo)}/branches/${branchPath(branch)}`);
    return commitOf(
      textAt(body, 'commit', 'id'),
      textAt(body, 'commit', 'message'),
      textAt(body, 'commit', 'author', 'name'),
    );
  },
  async commit(api, repo, sha) {
    const { body } = await api.get(`/repos/${repoPath(repo)}/git/commits/${encodeURIComponent(sha)}`);
    return commitOf(
      textAt(body, 'sha'),
      textAt(body, 'commit', 'message'),
      textAt(body, 'commit', 'author', 'name'),
    );
  },
  async check(api, repo) {
    await api.get(`/repos/${repoPath(repo)}`);
  },
  async ensureHook(api, repo, { url, secret }) {
    const path = `/repos/${repoPath(repo)}/hooks`;
    const wanted = { active: true, events: ['push'], config: { url, secret, content_type: 'json' } };
    const known = hookTo(listAt((await api.get(`${path}?limit=50`)).body), url);
    if (known === null) return hookIdOf((await api.send('POST', path, { type: 'gitea', ...wanted })).body);
    await api.send('PATCH', `${path}/${known}`, wanted);
    return known;
  },
  removeHook: (api, repo, id) =>
    removed(api.send('DELETE', `/repos/${repoPath(repo)}/hooks/${encodeURIComponent(id)}`)),
  async setStatus(api, repo, sha, status) {
    await api.send('POST', `/repos/${repoPath(repo)}/statuses/${sha}`, familyStatus(status));
  },
  clone: ({ web }, repo, login) => ({ url: `${web}/${repoPath(repo)}.git`, username: login }),
  // Without a secret the host sends the header with nothing in it.
  verify: (headers, body, secret) =>
    hexSignatureHolds(headerOf(headers, 'x-gitea-signature'), '', body, secret),
  deliveryId: (headers) => headerOf(headers, 'x-gitea-delivery'),
  read: (headers, body) => readFamily(headerOf(headers, 'x-gitea-event'), body),
};
