import type { GitApi } from '../../git-api.js';
import { type DeliveryContent, type GitHost, GitHostError, type GitRepository } from '../../git-host.js';
import { branchPath, commitOf, hookIdOf, hookTo, loginOf, removed, repoPath } from '../../github-family.js';
import { at, idAt, listAt, numberAt, textAt } from '../../json.js';
import { cut, isCommit, refOf } from '../../push-payload.js';
import { headerOf, sameSecret } from '../../signatures.js';

const hosted = { web: 'https://gitflic.ru', api: 'https://api.gitflic.ru' };

const project = (repo: string) => `/project/${repoPath(repo)}`;

/** Lists come inside `_embedded` under a name of their own. */
const embedded = (body: unknown) =>
  Object.values((at(body, '_embedded') ?? {}) as Record<string, unknown>).flatMap((list) => listAt(list));

function repositoryOf(record: unknown): GitRepository | null {
  const id = idAt(record, 'id');
  const owner = textAt(record, 'owner', 'alias') ?? textAt(record, 'ownerAlias');
  const alias = textAt(record, 'alias');
  if (id === null || owner === null || alias === null) return null;
  return {
    id,
    full_name: `${owner}/${alias}`,
    default_branch: textAt(record, 'defaultBranch'),
    private: at(record, 'private') !== false,
  };
}

const commitAt = (body: unknown) =>
  commitOf(textAt(body, 'hash'), textAt(body, 'message'), textAt(body, 'authorIdent', 'name'));

/** Pages of a list that are read for one entry at most. */
const mostPages = 20;

async function findBranch(api: GitApi, repo: string, branch: string): Promise<unknown> {
  for (let page = 0; page < mostPages; page += 1) {
    const { body } = await api.get(`${project(repo)}/branch?page=${page}&size=100`);
    const found = embedded(body).find((one) => textAt(one, 'name') === branch);
    if (found !== undefined) return found;
    if (page + 1 >= (numberAt(body, 'page', 'totalPages') ?? 1)) break;
  }
  throw new GitHostError('not_found', `the repository has no branch ${branch}`);
}

/** Its payloads say which branch changed, not always to what: the head is asked for when the build begins. */
function readEvent(body: unknown): DeliveryContent {
  const action = textAt(body, 'action');
  const owner = textAt(body, 'project', 'owner_alias') ?? textAt(body, 'project', 'ownerAlias');
  const alias = textAt(body, 'project', 'alias');
  const repo_full_name = owner === null || alias === null ? null : `${owner}/${alias}`;
  if (action === 'TEST_WEBHOOK') return { kind: 'ping', repo_full_name };
  const match = /^(BRANCH|TAG)_(CREATE|UPDATE|DELETE)$/.exec(action ?? '');
  if (match === null) return { kind: 'other', event: (action ?? 'unknown').slice(0, 100), repo_full_name };
  if (repo_full_name === null) throw new Error('a push without a project');
  const name = textAt(body, 'push', 'ref') ?? textAt(body, 'ref') ?? textAt(body, 'branch', 'name') ?? '';
  const full = name.startsWith('refs/') ? name : `refs/${match[1] === 'TAG' ? 'tags' : 'heads'}/${name}`;
  const { branch, tag } = refOf(full);
  if ((branch ?? tag) === '') throw new Error('a push without a branch or tag');
  const after = textAt(body, 'push', 'after');
  const deleted = match[2] === 'DELETE' || (after !== null && /^0+$/.test(after));
  return {
    kind: 'push',
    repo_full_name,
    branch: cut(branch, 'ref'),
    tag: cut(tag, 'ref'),
    deleted,
    commit: !deleted && isCommit(after) ? after : null,
    message: null,
    author: null,
    files: null,
  };
}

/** GitFlic, hosted or by its address. */
export const gitflic: GitHost = {
  provider: 'gitflic',
  pageSize: 50,
  // What is published of its OAuth names no secret of the app and no way to renew a grant: a token is safer.
  oauth: null,
  installations: null,
  tellsMessages: false,
  signatureHeaders: ['gitflic-webhook-secret'],
  addresses: (base) => (base === null ? hosted : { web: base, api: `${base}/rest-api` }),
  headers: (token): Record<string, string> => (token === null ? {} : { authorization: `token ${token}` }),
  account: (api) => loginOf(api, '/user/me', 'username'),
  async repositories(api, page) {
    const { body } = await api.get(`/project/my?size=50&page=${page - 1}`);
    return {
      repositories: embedded(body)
        .map(repositoryOf)
        .filter((one) => one !== null),
      total: numberAt(body, 'page', 'totalElements'),
    };
  },
  head: async (api, repo, branch) => commitAt(at(await findBranch(api, repo, branch), 'lastCommit')),
  async commit(api, repo, sha) {
    return commitAt((await api.get(`${project(repo)}/commit/${encodeURIComponent(sha)}`)).body);
  },
  async check(api, repo) {
    await api.get(project(repo));
  },
  async ensureHook(api, repo, { url, secret }) {
    const path = `${project(repo)}/setting/webhook`;
    const wanted = { url, secret, events: { BRANCH_CREATE: true, BRANCH_UPDATE: true, BRANCH_DELETE: true } };
    const known = hookTo(embedded((await api.get(`${path}?size=100`)).body), url);
    if (known === null) return hookIdOf((await api.send('POST', path, wanted)).body);
    await api.send('PUT', `${path}/${known}`, wanted);
    return known;
  },
  removeHook: (api, repo, id) =>
    removed(api.send('DELETE', `${project(repo)}/setting/webhook/${encodeURIComponent(id)}`)),
  // Its API documents no commit statuses: the state is seen at Nebo only.
  setStatus: () => Promise.resolve(),
  clone: ({ web }, repo, login) => ({
    url: `${web}/project/${branchPath(repo)}.git`,
    username: login,
  }),
  verify(headers, _body, secret) {
    const given = headerOf(headers, 'gitflic-webhook-secret');
    return given !== null && sameSecret(given, secret);
  },
  // It sends no ids: two equal bodies are the same delivery.
  deliveryId: () => null,
  read: (_headers, body) => readEvent(body),
};
