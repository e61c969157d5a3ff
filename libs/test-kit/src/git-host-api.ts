import type { GitDialect } from './git-host-payloads.js';
import type { GitCommitFacts, HostedRepository, RegisteredHook, Repositories } from './git-repositories.js';

/** Where the API of each kind begins, as its self-hosted form has it. */
export const apiPrefix: Readonly<Record<GitDialect, string>> = {
  github: '/api/v3',
  gitlab: '/api/v4',
  gitea: '/api/v1',
  gitverse: '/api',
  gitflic: '/rest-api',
};

export interface ApiAnswer {
  status: number;
  body?: unknown;
  headers?: Record<string, string>;
}

/** A request of the API, with what it is answered from. */
export interface ApiRequest {
  dialect: GitDialect;
  method: string;
  path: string;
  query: URLSearchParams;
  body: Record<string, unknown>;
  login: string;
  /** Whether the token is one of the host's. */
  known: boolean;
  /** Whether there was one at all. */
  hasToken: boolean;
  forbidden: ReadonlySet<'hooks' | 'statuses'>;
  repositories: Repositories;
  nextId(): string;
  webUrl: string;
}

const missing: ApiAnswer = { status: 404, body: { message: 'not found' } };
const denied: ApiAnswer = { status: 403, body: { message: 'the token lacks a scope' } };

/** Answers as the dialect's host does, as far as Nebo asks. */
export async function answerApi(request: ApiRequest): Promise<ApiAnswer> {
  const { dialect, path, known } = request;
  const prefix = apiPrefix[dialect];
  if (!path.startsWith(`${prefix}/`)) return missing;
  const rest = path.slice(prefix.length);
  // A token that is none is not the same as no token, which reads what is public.
  if (!known && (request.method !== 'GET' || request.hasToken))
    return { status: 401, body: { message: 'unauthorized' } };
  if (dialect === 'gitlab') return gitlab(request, rest);
  if (dialect === 'gitflic') return gitflic(request, rest);
  return family(request, rest);
}

/** Without a token a private repository is not there. */
function visible(request: ApiRequest, fullName: string): HostedRepository | undefined {
  const found = request.repositories.find(fullName);
  return found && (request.known || !found.isPrivate) ? found : undefined;
}

function page<T>(request: ApiRequest, list: readonly T[], size: string, first = 1): T[] {
  const per = Number(request.query.get(size) ?? 30);
  const at = Number(request.query.get('page') ?? first) - first;
  return list.slice(at * per, at * per + per);
}

const familyRepository = (repository: HostedRepository) => ({
  id: repository.id,
  full_name: repository.full_name,
  private: repository.isPrivate,
  default_branch: 'main',
});

const nested = (commit: GitCommitFacts) => ({
  sha: commit.sha,
  commit: { message: commit.message, author: { name: commit.author, email: commit.email } },
});

const flat = (commit: GitCommitFacts) => ({
  id: commit.sha,
  message: commit.message,
  author: { name: commit.author, email: commit.email },
});

async function family(request: ApiRequest, path: string): Promise<ApiAnswer> {
  const { dialect, known, login, repositories } = request;
  if (path === '/user') return known ? { status: 200, body: { id: 1, login } } : { status: 401, body: {} };
  if (path === '/user/repos') {
    if (!known) return { status: 401, body: {} };
    const list = repositories.list();
    const size = dialect === 'gitea' ? 'limit' : 'per_page';
    const headers: Record<string, string> =
      dialect === 'github' ? {} : { 'x-total-count': String(list.length) };
    return { status: 200, headers, body: page(request, list, size).map(familyRepository) };
  }
  if (path === '/installation/repositories') {
    const list = repositories.list();
    const shown = page(request, list, 'per_page').map(familyRepository);
    return { status: 200, body: { total_count: list.length, repositories: shown } };
  }
  const match = /^\/repos\/([^/]+\/[^/]+)(?:\/(.*))?$/.exec(path);
  const repository = match && visible(request, decodeURIComponent(match[1]!));
  if (!repository) return missing;
  const tail = match[2] ?? '';
  if (tail === '') return { status: 200, body: familyRepository(repository) };
  if (tail.startsWith('branches/')) {
    const commit = await repository.commit(`refs/heads/${decodeURIComponent(tail.slice(9))}`);
    if (commit === null) return missing;
    return { status: 200, body: { commit: dialect === 'gitea' ? flat(commit) : nested(commit) } };
  }
  const commits = dialect === 'gitea' ? 'git/commits/' : 'commits/';
  if (tail.startsWith(commits)) {
    const commit = await repository.commit(tail.slice(commits.length));
    return commit === null ? missing : { status: 200, body: nested(commit) };
  }
  if (tail.startsWith('statuses/')) {
    const { state, context, description, target_url } = request.body;
    return setStatus(request, repository, tail.slice(9), { state, context, description, url: target_url });
  }
  const hooks = /^hooks(?:\/(\d+))?$/.exec(tail);
  if (!hooks) return missing;
  const config = (request.body['config'] ?? {}) as { url?: string; secret?: string };
  const shown = (hook: RegisteredHook) => ({
    id: Number(hook.id),
    active: hook.active,
    events: ['push'],
    config: { url: hook.url, content_type: 'json' },
  });
  return hooksOf(request, repository, hooks[1] ?? null, config, shown, (list) => list);
}

async function gitlab(request: ApiRequest, path: string): Promise<ApiAnswer> {
  const { known, login, repositories } = request;
  if (path === '/user')
    return known ? { status: 200, body: { id: 1, username: login } } : { status: 401, body: {} };
  const shown = (repository: HostedRepository) => ({
    id: repository.id,
    path_with_namespace: repository.full_name,
    default_branch: 'main',
    visibility: repository.isPrivate ? 'private' : 'public',
  });
  if (path === '/projects') {
    const list = repositories.list();
    return {
      status: 200,
      headers: { 'x-total': String(list.length) },
      body: page(request, list, 'per_page').map(shown),
    };
  }
  const match = /^\/projects\/([^/]+)(?:\/(.*))?$/.exec(path);
  const repository = match && visible(request, decodeURIComponent(match[1]!));
  if (!repository) return missing;
  const tail = match[2] ?? '';
  if (tail === '') return { status: 200, body: shown(repository) };
  const record = (commit: GitCommitFacts) => ({
    id: commit.sha,
    message: commit.message,
    author_name: commit.author,
  });
  const at = /^repository\/(branches|commits)\/([^/]+)$/.exec(tail);
  if (at) {
    const name = decodeURIComponent(at[2]!);
    const commit = await repository.commit(at[1] === 'branches' ? `refs/heads/${name}` : name);
    if (commit === null) return missing;
    return { status: 200, body: at[1] === 'branches' ? { name, commit: record(commit) } : record(commit) };
  }
  if (tail.startsWith('statuses/')) {
    const { state, name, description, target_url } = request.body;
    return setStatus(request, repository, tail.slice(9), {
      state,
      context: name,
      description,
      url: target_url,
    });
  }
  const hooks = /^hooks(?:\/(\d+))?$/.exec(tail);
  if (!hooks) return missing;
  const config = request.body as { url?: string; token?: string };
  return hooksOf(
    request,
    repository,
    hooks[1] ?? null,
    { url: config.url, secret: config.token },
    (hook) => ({ id: Number(hook.id), url: hook.url, push_events: true }),
    (list) => list,
  );
}

async function gitflic(request: ApiRequest, path: string): Promise<ApiAnswer> {
  const { known, login, repositories } = request;
  if (!known) return { status: 401, body: {} };
  if (path === '/user/me') return { status: 200, body: { id: 'u1', username: login } };
  const shown = (repository: HostedRepository) => {
    const [owner, alias] = repository.full_name.split('/');
    return {
      id: `p${repository.id}`,
      alias,
      owner: { alias: owner, type: 'USER' },
      defaultBranch: 'main',
      private: repository.isPrivate,
    };
  };
  const paged = (name: string, list: readonly unknown[], whole: readonly unknown[]) => ({
    status: 200,
    body: { _embedded: { [name]: list }, page: { totalElements: whole.length, totalPages: 1, number: 0 } },
  });
  if (path === '/project/my') {
    const list = repositories.list();
    return paged('projectList', page(request, list, 'size', 0).map(shown), list);
  }
  const match = /^\/project\/([^/]+\/[^/]+)(?:\/(.*))?$/.exec(path);
  const repository = match && repositories.find(decodeURIComponent(match[1]!));
  if (!repository) return missing;
  const tail = match[2] ?? '';
  if (tail === '') return { status: 200, body: shown(repository) };
  const record = (commit: GitCommitFacts) => ({
    hash: commit.sha,
    message: commit.message,
    authorIdent: { name: commit.author, emailAddress: commit.email },
  });
  if (tail === 'branch') {
    const branches = [...(await repository.refs()).keys()].filter((ref) => ref.startsWith('refs/heads/'));
    const list = await Promise.all(
      branches.map(async (ref) => ({
        name: ref.slice(11),
        fullName: ref,
        lastCommit: record((await repository.commit(ref))!),
      })),
    );
    return paged('branchList', list, list);
  }
  if (tail.startsWith('commit/')) {
    const commit = await repository.commit(tail.slice(7));
    return commit === null ? missing : { status: 200, body: record(commit) };
  }
  const hooks = /^setting\/webhook(?:\/(\d+))?$/.exec(tail);
  if (!hooks) return missing;
  return hooksOf(
    request,
    repository,
    hooks[1] ?? null,
    request.body as { url?: string; secret?: string },
    (hook) => ({ id: hook.id, url: hook.url, secret: '***' }),
    (list) => ({ _embedded: { webhookList: list } }),
  );
}

function setStatus(
  { method, forbidden }: ApiRequest,
  repository: HostedRepository,
  sha: string,
  given: Record<'state' | 'context' | 'description' | 'url', unknown>,
): ApiAnswer {
  if (forbidden.has('statuses')) return denied;
  if (method !== 'POST') return { status: 405 };
  repository.statuses.push({
    sha,
    state: String(given.state),
    context: String(given.context),
    description: String(given.description),
    url: String(given.url),
  });
  return { status: 201, body: {} };
}

function hooksOf(
  { method, forbidden, nextId }: ApiRequest,
  repository: HostedRepository,
  id: string | null,
  given: { url?: string | undefined; secret?: string | undefined },
  shown: (hook: RegisteredHook) => object,
  list: (hooks: object[]) => object,
): ApiAnswer {
  if (forbidden.has('hooks')) return denied;
  if (id === null && method === 'GET') return { status: 200, body: list(repository.hooks.map(shown)) };
  if (id === null) {
    const hook = { id: nextId(), url: given.url ?? '', secret: given.secret ?? '', active: true };
    repository.hooks.push(hook);
    return { status: 201, body: shown(hook) };
  }
  const index = repository.hooks.findIndex((hook) => hook.id === id);
  if (index < 0) return missing;
  if (method === 'DELETE') {
    repository.hooks.splice(index, 1);
    return { status: 204 };
  }
  const hook = repository.hooks[index]!;
  if (given.url !== undefined) hook.url = given.url;
  if (given.secret !== undefined) hook.secret = given.secret;
  return { status: 200, body: shown(hook) };
}
