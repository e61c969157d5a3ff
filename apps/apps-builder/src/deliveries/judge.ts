import type { Push } from '../git/git-host.js';

/** What an app says about pushes that it wants. */
export interface WantsPushes {
  branch: string;
  auto_deploy: boolean;
  root_directory: string | null;
}

/** What becomes of a push for one app, with the reason as a sentence. */
export interface Verdict {
  outcome: 'accepted' | 'ignored';
  reason: string;
}

const skipWords = /\[(skip ci|ci skip|skip cd|cd skip|no ci)\]/i;

const ignored = (reason: string): Verdict => ({ outcome: 'ignored', reason });

/** Why the message of a push's last commit says that nothing is to be built; null: it does not. */
export function skipReason(message: string | null): string | null {
  const skip = skipWords.exec(message ?? '');
  return skip === null ? null : `the message of the last commit says ${skip[0].toLowerCase()}`;
}

/** Whether a push has to lead to a build of an app. */
export function judge(push: Push, app: WantsPushes): Verdict {
  if (push.tag !== null) return ignored(`tag ${push.tag}: only branches are built`);
  if (push.branch !== app.branch)
    return ignored(`branch ${push.branch}: this app is built from ${app.branch}`);
  if (push.deleted) return ignored(`branch ${push.branch} was deleted`);
  if (!app.auto_deploy) return ignored('automatic deploys are off for this app');
  const skip = skipReason(push.message);
  if (skip !== null) return ignored(skip);
  const root = cleanRoot(app.root_directory);
  if (root !== '' && push.files !== null && !push.files.some((path) => concerns(path, root)))
    return ignored(`nothing of ${root} was changed`);
  return { outcome: 'accepted', reason: `push to ${push.branch}` };
}

/** A root directory as paths of git begin with it: without dots and slashes around. */
function cleanRoot(root: string | null): string {
  const parts = (root ?? '').split(/[\\/]+/).filter((part) => part !== '' && part !== '.');
  return parts.join('/');
}

/**
 * Whether a changed file may change what is built of a root directory: it lies in it, or right in a folder above it, where
 * lock files and settings of a workspace are.
 */
function concerns(path: string, root: string): boolean {
  if (path === root || path.startsWith(`${root}/`)) return true;
  const folder = path.includes('/') ? path.slice(0, path.lastIndexOf('/')) : '';
  return folder === '' || root.startsWith(`${folder}/`);
}
