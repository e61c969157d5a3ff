import type { DeliveryContent, GitHost, GitRepository } from '../../git-host.js';
import { commitOf, hookIdOf, hookTo, loginOf, removed, repoPath } from '../../github-family.js';
import { at, idAt, listAt, numberAt, textAt } from '../../json.js';
import { changedFiles, cut, isCommit, refOf } from '../../push-payload.js';
import { headerOf, sameSecret, standardSignatureHolds } from '../../signatures.js';

const hosted = { web: 'https://gitlab.com', api: 'https://gitlab.com/api/v4' };

/** GitLab names a project by its path as one segment. */
const project = (repo: string) => `/projects/${encodeURIComponent(repo)}`;

const states = { pending: 'pending', success: 'success', failure: 'failed' } as const;

function repositoryOf(record: unknown): GitRepository | null {
  const id = idAt(record, 'id');
  const full_name = textAt(record, 'path_with_namespace');
  if (id === null || full_name === null) return null;
  // The short record of a list does not always say who may see it; what is not said to be public is private.
  const visibility = textAt(record, 'visibility');
  const default_branch = textAt(record, 'default_branch');
  return { id, full_name, default_branch, private: visibility !== 'public' };
}

const commitAt = (body: unknown) =>
  commitOf(textAt(body, 'id'), textAt(body, 'message'), textAt(body, 'author_name'));

function readEvent(body: unknown): DeliveryContent {
  const kind = textAt(body, 'object_kind') ?? textAt(body, 'event_name') ?? 'unknown';
  const repo_full_name = textAt(body, 'project', 'path_with_namespace');
  if (kind !== 'push' && kind !== 'tag_push')
    return { kind: 'other', event: kind.slice(0, 100), repo_full_name };
  if (repo_full_name === null) throw new Error('a push without a project');
  const { branch, tag } = refOf(textAt(body, 'ref'));
  const after = textAt(body, 'after');
  const deleted = after === null || /^0+$/.test(after);
  const sha = textAt(body, 'checkout_sha') ?? after;
  const commits = listAt(body, 'commits');
  const head = commits.find((commit) => textAt(commit, 'id') === sha);
  return {
    kind: 'push',
    repo_full_name,
    branch: cut(branch, 'ref'),
    tag: cut(tag, 'ref'),
    deleted,
    commit: !deleted && isCommit(sha) ? sha : null,
    message: cut(textAt(head, 'message'), 'message'),
    author: cut(textAt(head, 'author', 'name'), 'author'),
    files:
      branch === null || deleted ? null : changedFiles(body, commits, numberAt(body, 'total_commits_count')),
  };
}

/** GitLab, hosted or by its address. */
export const gitlab: GitHost = {
  provider: 'gitlab',
  pageSize: 100,
  oauth: { authorizePath: '/oauth/authorize', tokenPath: '/oauth/token', scope: 'api', pkce: true },
  installations: null,
  tellsMessages: true,
  signatureHeaders: ['x-gitlab-token', 'webhook-signature'],
  addresses: (base) => (base === null ? hosted : { web: base, api: `${base}/api/v4` }),
  headers: (token): Record<string, string> => (token === null ? {} : { authorization: `Bearer ${token}` }),
  account: (api) => loginOf(api, '/user', 'username'),
  async repositories(api, page) {
    const { body, headers } = await api.get(
      `/projects?membership=true&order_by=id&sort=asc&per_page=100&page=${page}`,
    );
    const total = headers['x-total'];
    return {
      repositories: listAt(body)
        .map(repositoryOf)
        .filter((one) => one !== null),
      total: typeof total === 'string' && /^\d{1,9}$/.test(total) ? Number(total) : null,
    };
  },
  async head(api, repo, branch) {
    const { body } = await api.get(`${project(repo)}/repository/branches/${encodeURIComponent(branch)}`);
    return commitAt(at(body, 'commit'));
  },
  async commit(api, repo, sha) {
    return commitAt((await api.get(`${project(repo)}/repository/commits/${encodeURIComponent(sha)}`)).body);
  },
  async check(api, repo) {
    await api.get(project(repo));
  },
  async ensureHook(api, repo, { url, secret }) {
    const path = `${project(repo)}/hooks`;
    const wanted = {
      url,
      token: secret,
      push_events: true,
      tag_push_events: false,
      enable_ssl_verification: true,
    };
    const known = hookTo(listAt((await api.get(`${path}?per_page=100`)).body), url);
    if (known === null) return hookIdOf((await api.send('POST', path, wanted)).body);
    await api.send('PUT', `${path}/${known}`, wanted);
    return known;
  },
  removeHook: (api, repo, id) =>
    removed(api.send('DELETE', `${project(repo)}/hooks/${encodeURIComponent(id)}`)),
  async setStatus(api, repo, sha, { state, context, description, url }) {
    const body = {
      state: states[state],
      name: context,
      description: description.slice(0, 140),
      target_url: url,
    };
    await api.send('POST', `${project(repo)}/statuses/${sha}`, body);
  },
  clone: ({ web }, repo, login) => ({
    url: `${web}/${repoPath(repo)}.git`,
    username: login === null ? null : 'oauth2',
  }),
  // The token is ours, sent back as it is; newer versions sign instead. A token that is there must be the right one.
  verify(headers, body, secret, now = Date.now()) {
    if (headers['x-gitlab-token'] !== undefined) {
      const given = headerOf(headers, 'x-gitlab-token');
      return given !== null && sameSecret(given, secret);
    }
    return standardSignatureHolds(headers, body, secret, now);
  },
  deliveryId: (headers) =>
    headerOf(headers, 'idempotency-key') ??
    headerOf(headers, 'webhook-id') ??
    headerOf(headers, 'x-gitlab-event-uuid'),
  read: (_headers, body) => readEvent(body),
};
