import type { GitApi } from './git-api.js';
import {
  type CommitStatus,
  type GitCommit,
  GitHostError,
  type GitRepositories,
  type GitRepository,
} from './git-host.js';
import { at, idAt, listAt, textAt } from './json.js';
import { cut, isCommit } from './push-payload.js';

/** Paths of a REST API that follows GitHub's: GitHub, Gitea, GitVerse. */

/** `owner/name` as path segments. */
export const repoPath = (repo: string): string => repo.split('/').map(encodeURIComponent).join('/');

/** A branch as path segments: its slashes stay. */
export const branchPath = repoPath;

/** A repository record; null for what is none. */
export function repositoryOf(record: unknown): GitRepository | null {
  const id = idAt(record, 'id');
  const full_name = textAt(record, 'full_name');
  if (id === null || full_name === null) return null;
  return {
    id,
    full_name,
    default_branch: textAt(record, 'default_branch'),
    private: at(record, 'private') === true,
  };
}

/** A page of repositories, with the total from a header where the host sends it. */
export function repositoriesOf(
  body: unknown,
  total: string | string[] | undefined,
  list: readonly unknown[] = listAt(body),
): GitRepositories {
  const repositories = list.map(repositoryOf).filter((one) => one !== null);
  return { repositories, total: typeof total === 'string' && /^\d{1,9}$/.test(total) ? Number(total) : null };
}

/**
 * A commit, checked.
 * @throws GitHostError when the host says none
 */
export function commitOf(sha: string | null, message: string | null, author: string | null): GitCommit {
  if (!isCommit(sha)) throw new GitHostError('unexpected', 'the git host named no commit');
  return { sha, message: cut(message?.trimEnd() ?? null, 'message'), author: cut(author, 'author') };
}

/** Name of the account behind the token. @throws GitHostError */
export async function loginOf(api: GitApi, path: string, field: string): Promise<{ login: string }> {
  const login = textAt((await api.get(path)).body, field);
  if (login === null) throw new GitHostError('unexpected', 'the git host named no account of the token');
  return { login: login.slice(0, 255) };
}

/** The id of the webhook that leads to an address, among those of a list. */
export function hookTo(hooks: readonly unknown[], url: string): string | null {
  const found = hooks.find((hook) => (textAt(hook, 'config', 'url') ?? textAt(hook, 'url')) === url);
  return found === undefined ? null : idAt(found, 'id');
}

/** A hook's id in an answer. @throws GitHostError */
export function hookIdOf(body: unknown): string {
  const id = idAt(body, 'id');
  if (id === null) throw new GitHostError('unexpected', 'the git host named no id of the webhook');
  return id;
}

/** Gone already is fine. */
export async function removed(work: Promise<unknown>): Promise<void> {
  try {
    await work;
  } catch (error) {
    if (!(error instanceof GitHostError) || error.failure !== 'not_found') throw error;
  }
}

/** A status in the family's words. */
export const familyStatus = ({ state, context, description, url }: CommitStatus) => ({
  state,
  context,
  description: description.slice(0, 140),
  target_url: url,
});
