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
import { at, listAt, textAt } from '../../json.js';
import { readFamily } from '../../push-payload.js';
import { headerOf, hexSignatureHolds } from '../../signatures.js';

const hosted = { web: 'https://gitverse.ru', api: 'https://api.gitverse.ru' };

/** GitVerse: an API after GitHub's, webhooks after Gitea's. Hosted only. */
export const gitverse: GitHost = {
  provider: 'gitverse',
  pageSize: 50,
  oauth: {
    // The family's paths; which scopes its apps have is set where the app is registered.
    authorizePath: '/login/oauth/authorize',
    tokenPath: '/login/oauth/access_token',
    scope: '',
    pkce: true,
  },
  installations: null,
  tellsMessages: true,
  signatureHeaders: ['x-gitverse-signature', 'x-hub-signature-256'],
  addresses: (base) => (base === null ? hosted : null),
  headers: (token) => ({
    accept: 'application/vnd.gitverse.object+json;version=1',
    ...(token === null ? {} : { authorization: `Bearer ${token}` }),
  }),
  account: (api) => loginOf(api, '/user', 'login'),
  async repositories(api, page) {
    const { body, headers } = await api.get(`/user/repos?per_page=50&page=${page}`);
    return repositoriesOf(body, headers['x-total-count']);
  },
  async head(api, repo, branch) {
    const { body } = await api.get(`/repos/${repoPath(repo)}/branches/${branchPath(branch)}`);
    const commit = at(body, 'commit');
    return commitOf(
      textAt(commit, 'sha') ?? textAt(commit, 'id'),
      textAt(commit, 'commit', 'message') ?? textAt(commit, 'message'),
      textAt(commit, 'commit', 'author', 'name') ?? textAt(commit, 'author', 'name'),
    );
  },
  async commit(api, repo, sha) {
    const { body } = await api.get(`/repos/${repoPath(repo)}/commits/${encodeURIComponent(sha)}`);
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
    const known = hookTo(listAt((await api.get(path)).body), url);
    if (known === null) return hookIdOf((await api.send('POST', path, { type: 'gitverse', ...wanted })).body);
    await api.send('PATCH', `${path}/${known}`, wanted);
    return known;
  },
  removeHook: (api, repo, id) =>
    removed(api.send('DELETE', `/repos/${repoPath(repo)}/hooks/${encodeURIComponent(id)}`)),
  async setStatus(api, repo, sha, status) {
    await api.send('POST', `/repos/${repoPath(repo)}/statuses/${sha}`, familyStatus(status));
  },
  clone: ({ web }, repo, login) => ({ url: `${web}/${repoPath(repo)}.git`, username: login }),
  // Both headers are signed with the same secret; without one both are there and empty.
  verify: (headers, body, secret) =>
    hexSignatureHolds(headerOf(headers, 'x-gitverse-signature'), '', body, secret) ||
    hexSignatureHolds(headerOf(headers, 'x-hub-signature-256'), 'sha256=', body, secret),
  deliveryId: (headers) => headerOf(headers, 'x-gitverse-delivery'),
  read: (headers, body) => readFamily(headerOf(headers, 'x-gitverse-event'), body),
};
