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

const hosted = { web: 'https://github.com', api: 'https://api.github.com' };

/** GitHub, and GitHub Enterprise by its address. */
export const github: GitHost = {
  provider: 'github',
  pageSize: 100,
  signatureHeaders: ['x-hub-signature-256'],
  addresses: (base) => (base === null ? hosted : { web: base, api: `${base}/api/v3` }),
  headers: (token) => ({
    accept: 'application/vnd.github+json',
    'x-github-api-version': '2022-11-28',
    ...(token === null ? {} : { authorization: `Bearer ${token}` }),
  }),
  account: (api) => loginOf(api, '/user', 'login'),
  async repositories(api, page) {
    const { body } = await api.get(`/user/repos?per_page=100&sort=full_name&page=${page}`);
    return repositoriesOf(body, undefined);
  },
  async head(api, repo, branch) {
    const { body } = await api.get(`/repos/${repoPath(repo)}/branches/${branchPath(branch)}`);
    return commitOf(
      textAt(body, 'commit', 'sha'),
      textAt(body, 'commit', 'commit', 'message'),
      textAt(body, 'commit', 'commit', 'author', 'name'),
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
    const config = { url, secret, content_type: 'json', insecure_ssl: '0' };
    const wanted = { active: true, events: ['push'], config };
    const known = hookTo(listAt((await api.get(`${path}?per_page=100`)).body), url);
    if (known === null) return hookIdOf((await api.send('POST', path, { name: 'web', ...wanted })).body);
    await api.send('PATCH', `${path}/${known}`, wanted);
    return known;
  },
  removeHook: (api, repo, id) =>
    removed(api.send('DELETE', `/repos/${repoPath(repo)}/hooks/${encodeURIComponent(id)}`)),
  async setStatus(api, repo, sha, status) {
    await api.send('POST', `/repos/${repoPath(repo)}/statuses/${sha}`, familyStatus(status));
  },
  clone: ({ web }, repo, login) => ({
    url: `${web}/${repoPath(repo)}.git`,
    username: login === null ? null : 'x-access-token',
  }),
  verify: (headers, body, secret) =>
    hexSignatureHolds(headerOf(headers, 'x-hub-signature-256'), 'sha256=', body, secret),
  deliveryId: (headers) => headerOf(headers, 'x-github-delivery'),
  read: (headers, body) => readFamily(headerOf(headers, 'x-github-event'), body),
};
