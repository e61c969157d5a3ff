import type { DeliveryContent, Push } from './git-host.js';
import { at, listAt, numberAt, storable, textAt } from './json.js';

/** A hash of a commit: SHA-1 or SHA-256. */
export const isCommit = (text: string | null): text is string =>
  text !== null && /^([0-9a-f]{40}|[0-9a-f]{64})$/.test(text);

const isZero = (hash: string | null) => hash !== null && /^0+$/.test(hash);

/** Longest texts that are kept of what strangers wrote. */
const longest = { ref: 255, message: 2_000, author: 200 } as const;

/** Cuts a text to what is kept of it. */
export const cut = (text: string | null, kind: keyof typeof longest): string | null =>
  text === null ? null : storable(text.slice(0, longest[kind]));

/** `refs/heads/main` and `refs/tags/v1` taken apart. */
export function refOf(ref: string | null): Pick<Push, 'branch' | 'tag'> {
  if (ref?.startsWith('refs/heads/')) return { branch: ref.slice(11), tag: null };
  if (ref?.startsWith('refs/tags/')) return { branch: null, tag: ref.slice(10) };
  throw new Error('a push without a branch or tag');
}

/**
 * Paths that a push changed, or null when it cannot be told: the host cut the list, the branch is new, or its head was
 * moved by force, so that commits are gone of which nothing is said.
 */
export function changedFiles(
  body: unknown,
  commits: readonly unknown[],
  total: number | null,
): string[] | null {
  const before = textAt(body, 'before');
  if (before === null || isZero(before) || at(body, 'forced') === true || at(body, 'created') === true)
    return null;
  if (commits.length === 0 || (total !== null && total !== commits.length)) return null;
  const files = new Set<string>();
  for (const commit of commits) {
    const lists = ['added', 'removed', 'modified'].map((name) => at(commit, name));
    if (!lists.every((list) => Array.isArray(list))) return null;
    for (const path of lists.flat()) if (typeof path === 'string') files.add(path);
  }
  // A merge may list nothing although it brings something.
  return files.size === 0 ? null : [...files];
}

/** Reads the push of the GitHub family: GitHub itself, Gitea, GitVerse. */
export function readPush(body: unknown, options: { total: number | null }): Push {
  const { branch, tag } = refOf(textAt(body, 'ref'));
  const after = textAt(body, 'after');
  const repo = textAt(body, 'repository', 'full_name');
  if (repo === null) throw new Error('a push without a repository');
  const deleted = isZero(after) || at(body, 'deleted') === true;
  const head = at(body, 'head_commit');
  const commits = listAt(body, 'commits');
  return {
    kind: 'push',
    repo_full_name: repo,
    branch: cut(branch, 'ref'),
    tag: cut(tag, 'ref'),
    deleted,
    commit: !deleted && isCommit(after) ? after : null,
    message: cut(textAt(head, 'message'), 'message'),
    author: cut(textAt(head, 'author', 'name'), 'author'),
    files: branch === null || deleted ? null : changedFiles(body, commits, options.total),
  };
}

/** What a delivery of the GitHub family says, by its event header. */
export function readFamily(event: string | null, body: unknown): DeliveryContent {
  if (event === 'push') return readPush(body, { total: numberAt(body, 'total_commits') });
  const repo_full_name = textAt(body, 'repository', 'full_name');
  if (event === 'ping') return { kind: 'ping', repo_full_name };
  return { kind: 'other', event: (event ?? 'unknown').slice(0, 100), repo_full_name };
}
