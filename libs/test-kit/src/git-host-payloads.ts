import { createHmac, randomUUID } from 'node:crypto';
import type { GitCommitFacts, HostedRepository } from './git-repositories.js';

/** Whose API and webhooks a git host speaks. */
export type GitDialect = 'github' | 'gitlab' | 'gitea' | 'gitverse' | 'gitflic';
export const gitDialects: readonly GitDialect[] = ['github', 'gitlab', 'gitea', 'gitverse', 'gitflic'];

/** A delivery before it is sent. */
export interface SentPayload {
  headers: Record<string, string>;
  body: string;
}

/** A branch or tag that a push moved. */
export interface RefChange {
  ref: string;
  before: string;
  after: string;
}

const isZero = (hash: string) => /^0+$/.test(hash);
const hmac = (secret: string, body: string, algorithm = 'sha256') =>
  secret === '' ? '' : createHmac(algorithm, secret).update(body).digest('hex');

/** Headers of each host for an event (facts of their webhooks); without a secret some are there and empty. */
function headersOf(dialect: GitDialect, event: string, secret: string, body: string): Record<string, string> {
  const id = randomUUID();
  const json = { 'content-type': 'application/json' };
  const family = {
    'x-gogs-event': event,
    'x-github-event': event,
    'x-github-delivery': id,
    'x-hub-signature': `sha1=${hmac(secret, body, 'sha1')}`,
    'x-hub-signature-256': `sha256=${hmac(secret, body)}`,
  };
  switch (dialect) {
    case 'github':
      return {
        ...json,
        'x-github-event': event,
        'x-github-delivery': id,
        'user-agent': 'GitHub-Hookshot/1',
        ...(secret === '' ? {} : { 'x-hub-signature-256': `sha256=${hmac(secret, body)}` }),
      };
    case 'gitea':
      return {
        ...json,
        ...family,
        'x-gitea-event': event,
        'x-gitea-delivery': id,
        'x-gitea-signature': hmac(secret, body),
      };
    case 'gitverse':
      return {
        ...json,
        ...family,
        'x-gitverse-event': event,
        'x-gitverse-delivery': id,
        'x-gitverse-signature': hmac(secret, body),
      };
    case 'gitlab':
      return {
        ...json,
        'x-gitlab-event': event === 'tag_push' ? 'Tag Push Hook' : 'Push Hook',
        'x-gitlab-event-uuid': id,
        'idempotency-key': id,
        ...(secret === '' ? {} : { 'x-gitlab-token': secret }),
      };
    case 'gitflic':
      return { ...json, ...(secret === '' ? {} : { 'gitflic-webhook-secret': secret }) };
  }
}

const familyCommit = (commit: GitCommitFacts, url: string) => ({
  id: commit.sha,
  message: commit.message,
  timestamp: commit.at,
  url: `${url}/commit/${commit.sha}`,
  author: { name: commit.author, email: commit.email, username: 'ann' },
  committer: { name: commit.author, email: commit.email, username: 'ann' },
  added: commit.added,
  removed: commit.removed,
  modified: commit.modified,
});

interface PushFacts {
  change: RefChange;
  repository: HostedRepository;
  commits: GitCommitFacts[];
  head: GitCommitFacts | null;
  forced: boolean;
  webUrl: string;
}

function familyPush(dialect: GitDialect, facts: PushFacts): object {
  const { change, repository, commits, head, forced, webUrl } = facts;
  const url = `${webUrl}/${repository.full_name}`;
  const isTag = change.ref.startsWith('refs/tags/');
  const own =
    dialect === 'github'
      ? {
          created: isZero(change.before),
          deleted: isZero(change.after),
          forced,
          compare: `${url}/compare`,
          base_ref: null,
        }
      : { compare_url: `${url}/compare`, total_commits: isTag ? 0 : commits.length };
  return {
    ref: change.ref,
    before: change.before,
    after: change.after,
    ...own,
    commits: isTag ? [] : commits.map((commit) => familyCommit(commit, url)),
    head_commit: head === null ? null : familyCommit(head, url),
    repository: {
      id: repository.id,
      full_name: repository.full_name,
      private: repository.isPrivate,
      clone_url: `${url}.git`,
      default_branch: 'main',
    },
    pusher: { login: 'ann', name: 'ann', email: 'ann@example.org' },
    sender: { login: 'ann' },
  };
}

function gitlabPush({ change, repository, commits, webUrl }: PushFacts): object {
  const kind = change.ref.startsWith('refs/tags/') ? 'tag_push' : 'push';
  const url = `${webUrl}/${repository.full_name}`;
  return {
    object_kind: kind,
    event_name: kind,
    ref: change.ref,
    before: change.before,
    after: change.after,
    checkout_sha: isZero(change.after) ? null : change.after,
    user_name: 'Ann Author',
    user_username: 'ann',
    project_id: repository.id,
    project: {
      id: repository.id,
      path_with_namespace: repository.full_name,
      git_http_url: `${url}.git`,
      default_branch: 'main',
    },
    commits: commits.slice(-20).map((commit) => ({
      id: commit.sha,
      message: commit.message,
      timestamp: commit.at,
      author: { name: commit.author, email: commit.email },
      added: commit.added,
      removed: commit.removed,
      modified: commit.modified,
    })),
    total_commits_count: commits.length,
  };
}

const gitflicProject = (repository: HostedRepository) => {
  const [owner, alias] = repository.full_name.split('/');
  return {
    project_id: String(repository.id),
    project: {
      alias,
      owner_alias: owner,
      private: repository.isPrivate,
      title: alias,
    },
  };
};

function gitflicPush({ change, repository }: PushFacts): object {
  const kind = change.ref.startsWith('refs/tags/') ? 'TAG' : 'BRANCH';
  const verb = isZero(change.before) ? 'CREATE' : isZero(change.after) ? 'DELETE' : 'UPDATE';
  return { action: `${kind}_${verb}`, ...gitflicProject(repository), push: { ref: change.ref } };
}

/** What a host sends for a changed ref. */
export async function pushesOf(
  dialect: GitDialect,
  repository: HostedRepository,
  change: RefChange,
  secret: string,
  webUrl: string,
): Promise<SentPayload[]> {
  const gone = isZero(change.after);
  const isTag = change.ref.startsWith('refs/tags/');
  // The Gitea family tells a deletion and a tag by events of their own; a tag comes as a push too.
  if (gone && (dialect === 'gitea' || dialect === 'gitverse')) return [];
  const facts: PushFacts = {
    change,
    repository,
    webUrl,
    commits: gone || isTag ? [] : await repository.between(change.before, change.after),
    head: gone ? null : await repository.commit(change.after),
    forced: await repository.isForced(change.before, change.after),
  };
  const content =
    dialect === 'gitlab'
      ? gitlabPush(facts)
      : dialect === 'gitflic'
        ? gitflicPush(facts)
        : familyPush(dialect, facts);
  const body = JSON.stringify(content);
  const event = dialect === 'gitlab' && isTag ? 'tag_push' : 'push';
  return [{ headers: headersOf(dialect, event, secret, body), body }];
}

/** What a host sends to try a webhook. The Gitea family and GitLab send a made-up push instead. */
export function pingOf(
  dialect: GitDialect,
  repository: HostedRepository,
  secret: string,
  webUrl: string,
): SentPayload {
  const content =
    dialect === 'gitflic'
      ? { action: 'TEST_WEBHOOK', ...gitflicProject(repository) }
      : {
          zen: 'Keep it small.',
          hook_id: 1,
          repository: { id: repository.id, full_name: repository.full_name, html_url: webUrl },
        };
  const body = JSON.stringify(content);
  return { headers: headersOf(dialect, 'ping', secret, body), body };
}
