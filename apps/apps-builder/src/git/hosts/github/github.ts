import { type GitHost, GitHostError, type InstallationDialect } from '../../git-host.js';
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
import { idAt, listAt, numberAt, textAt } from '../../json.js';
import { readFamily } from '../../push-payload.js';
import { headerOf, hexSignatureHolds } from '../../signatures.js';

const hosted = { web: 'https://github.com', api: 'https://api.github.com' };

/** A person has few of them, but a page holds no more. */
const mostInstallationPages = 10;

/** GitHub Apps: installed in an account, they open its repositories by tokens of an hour. */
const installations: InstallationDialect = {
  installPath: (slug, selfHosted) =>
    `${selfHosted ? '/github-apps' : '/apps'}/${encodeURIComponent(slug)}/installations/new`,
  async account(personApi, installationId) {
    for (let page = 1; page <= mostInstallationPages; page += 1) {
      const { body } = await personApi.get(`/user/installations?per_page=100&page=${page}`);
      const list = listAt(body, 'installations');
      const found = list.find((one) => idAt(one, 'id') === installationId);
      const login = textAt(found, 'account', 'login');
      if (login !== null) return { login: login.slice(0, 255) };
      if (list.length < 100) break;
    }
    throw new GitHostError('not_found', 'the person who came back has no such installation');
  },
  async token(appApi, installationId) {
    const path = `/app/installations/${encodeURIComponent(installationId)}/access_tokens`;
    const { body } = await appApi.send('POST', path, {});
    const token = textAt(body, 'token');
    if (token === null)
      throw new GitHostError('unexpected', 'the git host gave no token of the installation');
    const end = Date.parse(textAt(body, 'expires_at') ?? '');
    return {
      token,
      expiresInS: Number.isNaN(end) ? 3_600 : Math.max(60, Math.floor((end - Date.now()) / 1_000)),
    };
  },
  async repositories(api, page) {
    const { body } = await api.get(`/installation/repositories?per_page=100&page=${page}`);
    const total = numberAt(body, 'total_count');
    return repositoriesOf(body, total === null ? undefined : String(total), listAt(body, 'repositories'));
  },
};

/** GitHub, and GitHub Enterprise by its address. */
export const github: GitHost = {
  provider: 'github',
  pageSize: 100,
  oauth: {
    authorizePath: '/login/oauth/authorize',
    tokenPath: '/login/oauth/access_token',
    scope: 'repo',
    pkce: true,
  },
  installations,
  tellsMessages: true,
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
