import { createWriteStream } from 'node:fs';
import { chown, mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { archiveLimitsFromEnv, packFolder } from '@nebo/archive';
import { type BlobRef, type EnvEntry, type GitSource } from '@nebo/contracts';
import { type GitCall, parseAllowList, prepareGit, SafeNetFailed, SafeNetRefused } from '@nebo/safe-net';
import { type BuildSandbox } from '../drivers/sandbox.js';
import { moduleReason, moduleUrl, readModules, type Submodule } from './git-modules.js';
import { BuildFailure, SourceTree } from './tree.js';

/** All git commands of a fetch together, milliseconds. */
const longestMs = 5 * 60_000;
/** How far back a branch is fetched from hosts that do not give single commits. */
const branchDepth = 200;
/** Submodules of a build at most, and how deep they may lie in each other. */
const mostModules = 50;
const deepestModules = 4;
/** Files that a warning names. */
const namedFiles = 10;
/** Characters of git's own words that are kept for the reason. */
const keptOutput = 8_000;

/** A repository of which something lies in the tree. */
interface Repository {
  url: string;
  commit: string;
  /** Where its history is, and where its files are; from the sandbox's tree on. */
  gitDir: string;
  folder: string;
}

/** Where a commit is fetched, and what for. */
export interface FetchParts {
  sandbox: BuildSandbox;
  signal: AbortSignal;
  /** The archive of the source is written here. */
  file: string;
  say(line: string): void;
}

/**
 * Fetches one commit inside the sandbox of its build, as the build's user and through its way out, and packs it: equal
 * commits give equal bytes. Nothing of the repository's own history or settings is in them.
 * @returns the archive in `file`
 * @throws BuildFailure with a sentence for the user, ArchiveRefused for a source above the limits
 */
export async function fetchCommit(git: GitSource, parts: FetchParts): Promise<BlobRef> {
  const { sandbox, file, say } = parts;
  say(`${git.clone_url} at ${git.commit.slice(0, 12)}${git.branch === null ? '' : ` of ${git.branch}`}`);
  await mkdir(sandbox.tree, { mode: 0o755 });
  const { owner } = sandbox;
  if (owner) await chown(sandbox.tree, owner.uid, owner.gid);
  await new Fetch(git, parts).run();
  const repo = join(sandbox.tree, 'repo');
  await rm(join(repo, '.git'), { recursive: true, force: true });
  const packed = await packFolder(repo, { ignoreRules: 'none', limits: archiveLimitsFromEnv() });
  for (const { path, why } of packed.manifest.warnings.slice(0, 20))
    say(`warning: ${path} is left out, ${why}`);
  await pipeline(packed.stream, createWriteStream(file, { mode: 0o600 }), { signal: parts.signal });
  // What is built is the archive, as it will be by a rebuild.
  await rm(sandbox.tree, { recursive: true, force: true });
  return packed.digest;
}

class Fetch {
  private readonly deadline = AbortSignal.timeout(longestMs);
  private modules = 0;

  constructor(
    private readonly git: GitSource,
    private readonly parts: FetchParts,
  ) {}

  async run(): Promise<void> {
    const { git } = this;
    const call = await this.prepare({ commit: git.commit });
    const init = ['-c', 'init.defaultBranch=main', 'init', '-q', '--template=', 'repo'];
    await this.must(call, init);
    const fetched = await this.command(call, call.args);
    if (fetched.code !== 0) {
      if (git.branch === null || !isSingleCommitRefusal(fetched.output)) throw this.failure(fetched.output);
      const branch = await this.prepare({ ref: `refs/heads/${git.branch}`, depth: branchDepth });
      await this.must(branch, branch.args);
    }
    const checkout = ['-c', 'core.hooksPath=/dev/null', '-c', 'core.protectHFS=true'];
    checkout.push('-c', 'core.protectNTFS=true', '-c', 'advice.detachedHead=false');
    await this.must(call, [...checkout, '-C', 'repo', 'checkout', '-q', '-f', '--detach', git.commit]);
    await this.warnOfPointers(call);
    const top = { url: git.clone_url, commit: git.commit, gitDir: 'repo/.git', folder: 'repo' };
    await this.takeModules(top, call, 1);
  }

  /** Files that Git LFS keeps elsewhere: what is in the repository are three lines that name them. */
  private async warnOfPointers(call: GitCall): Promise<void> {
    const text = 'version https://git-lfs.github.com/spec/v1';
    const { output } = await this.command(call, [
      '-C',
      'repo',
      'grep',
      '-l',
      '-z',
      '-a',
      '-F',
      '-e',
      text,
      '--',
      ':(attr:filter=lfs)',
    ]);
    const files = output.split('\0').filter((name) => name !== '' && !name.includes('\n'));
    if (files.length === 0) return;
    const more = files.length > namedFiles ? ` and ${files.length - namedFiles} more` : '';
    this.parts.say(
      `warning: Git LFS files are not fetched, the build gets their pointers: ${files.slice(0, namedFiles).join(', ')}${more}`,
    );
  }

  /** Fetches the submodules of a repository, and theirs. One that cannot be had is left out with a line that says why. */
  private async takeModules(parent: Repository, call: GitCall, depth: number): Promise<void> {
    const tree = new SourceTree(this.parts.sandbox.tree);
    const text = await tree.read(`${parent.folder}/.gitmodules`, 256 * 1024);
    if (text === null) return;
    for (const module of readModules(text)) {
      const listed = await this.command(call, [
        `--git-dir=${parent.gitDir}`,
        'ls-tree',
        '-z',
        parent.commit,
        '--',
        module.path,
      ]);
      const commit = /^160000 commit ([0-9a-f]{40}|[0-9a-f]{64})\t/.exec(listed.output)?.[1];
      // A line that was left behind: the commit has no such submodule.
      if (commit === undefined) continue;
      const why = await this.takeModule(parent, module, commit, depth);
      if (why === null) continue;
      const from = `${parent.folder}/${module.path}`.slice('repo/'.length);
      this.parts.say(`warning: the submodule ${from} is left out, ${why}`);
    }
  }

  /** @returns why it could not be had, null when it is there */
  private async takeModule(
    parent: Repository,
    module: Submodule,
    commit: string,
    depth: number,
  ): Promise<string | null> {
    if (depth > deepestModules) return `submodules lie at most ${deepestModules} deep`;
    if ((this.modules += 1) > mostModules) return `a build has at most ${mostModules} submodules`;
    const found = moduleUrl(parent.url, module.url);
    if ('why' in found) return found.why;
    const { url } = found;
    const gitDir = `modules/${this.modules}`;
    const folder = `${parent.folder}/${module.path}`;
    this.parts.say(`submodule ${folder.slice('repo/'.length)}: ${url} at ${commit.slice(0, 12)}`);
    let call: GitCall;
    try {
      call = await this.prepare({ commit }, url, gitDir);
      await this.must(call, ['init', '-q', '--bare', '--template=', gitDir]);
      let fetched = await this.command(call, call.args);
      if (fetched.code !== 0 && isSingleCommitRefusal(fetched.output)) {
        const head = await this.prepare({ ref: 'HEAD', depth: branchDepth }, url, gitDir);
        fetched = await this.command(head, head.args);
      }
      if (fetched.code !== 0) return moduleReason(fetched.output);
      const safe = [
        '-c',
        'core.hooksPath=/dev/null',
        '-c',
        'core.protectHFS=true',
        '-c',
        'core.protectNTFS=true',
      ];
      const place = [`--git-dir=${gitDir}`, `--work-tree=${folder}`];
      const taken = await this.command(call, [...safe, ...place, 'checkout', '-q', '-f', '--detach', commit]);
      if (taken.code !== 0) return moduleReason(taken.output);
    } catch (error) {
      // The whole fetch ran out of its time or room; an address that is not allowed is this submodule's matter.
      if (!(error instanceof BuildFailure) || this.deadline.aborted || !(error.cause instanceof Error))
        throw error;
      return error.cause.message;
    }
    await this.takeModules({ url, commit, gitDir, folder }, call, depth + 1);
    return null;
  }

  private async prepare(
    what: { commit: string } | { ref: string; depth: number },
    url = this.git.clone_url,
    directory = 'repo',
  ): Promise<GitCall> {
    const proxy = this.parts.sandbox.env.find(({ name }) => name === 'http_proxy')?.value;
    try {
      return await prepareGit(url, {
        ...what,
        command: 'fetch',
        directory,
        allow: parseAllowList(process.env['NEBO_SAFE_NET_ALLOW']),
        signal: AbortSignal.any([this.parts.signal, this.deadline]),
        ...(proxy === undefined ? {} : { proxy }),
      });
    } catch (error) {
      if (error instanceof SafeNetRefused || error instanceof SafeNetFailed)
        throw new BuildFailure(`The repository cannot be fetched: ${error.message}.`, { cause: error });
      throw error;
    }
  }

  /** @throws BuildFailure when git fails */
  private async must(call: GitCall, args: readonly string[]): Promise<void> {
    const { code, output } = await this.command(call, args);
    if (code !== 0) throw this.failure(output);
  }

  private async command(
    call: GitCall,
    args: readonly string[],
  ): Promise<{ code: number | null; output: string }> {
    const { sandbox, signal } = this.parts;
    let output = '';
    const child = await sandbox.run({
      // A sandbox takes a line for its shell: each word is quoted, none can be more than a word.
      command: ['git', '-c', 'gc.auto=0', '-c', 'maintenance.auto=false', ...args].map(quoted).join(' '),
      cwd: '.',
      env: [...Object.entries(call.env).map(([name, value]) => plain(name, value)), ...this.credential(call)],
      onOutput: (chunk) => (output = (output + chunk.toString('utf8')).slice(-keptOutput)),
    });
    const over = AbortSignal.any([signal, this.deadline]);
    const stop = () => void child.stop(0);
    over.addEventListener('abort', stop, { once: true });
    if (over.aborted) stop();
    try {
      const { code, limit } = await child.exited;
      signal.throwIfAborted();
      if (this.deadline.aborted)
        throw new BuildFailure(`Fetching the repository took longer than ${longestMs / 60_000} minutes.`);
      if (limit) throw new BuildFailure(`Fetching the repository was ended because it ${limit}.`);
      return { code, output };
    } finally {
      over.removeEventListener('abort', stop);
    }
  }

  /** As configuration by environment: neither address nor arguments hold it, and no other host gets it, nor a submodule there. */
  private credential({ url }: GitCall): EnvEntry[] {
    const { username, password, clone_url } = this.git;
    if (password === null || new URL(url).origin !== new URL(clone_url).origin) return [];
    const basic = Buffer.from(`${username ?? 'git'}:${password}`).toString('base64');
    return [
      plain('GIT_CONFIG_COUNT', '1'),
      plain('GIT_CONFIG_KEY_0', `http.${new URL(url).origin}/.extraHeader`),
      { name: 'GIT_CONFIG_VALUE_0', value: `Authorization: Basic ${basic}`, secret: true },
    ];
  }

  private failure(output: string): BuildFailure {
    const lines = output.split(/[\r\n]+/).filter((line) => line.trim() !== '');
    for (const line of lines.slice(-5)) this.parts.say(line);
    return new BuildFailure(reasonOf(output, this.git));
  }
}

const plain = (name: string, value: string): EnvEntry => ({ name, value, secret: false });

const quoted = (word: string): string => `'${word.replaceAll("'", `'\\''`)}'`;

const isSingleCommitRefusal = (output: string): boolean =>
  /not our ref|unadvertised object|couldn't find remote ref|no such remote ref/i.test(output);

/** What git says when there is no way to the host, or the proxy has refused it. */
const isUnreached =
  /from proxy|proxy connect|connect tunnel|could not resolve (host|proxy)|failed to connect|connection (timed out|refused|reset)/i;

/** What git's words mean to the owner of the app. */
function reasonOf(output: string, { commit, clone_url, username }: GitSource): string {
  if (isUnreached.test(output)) return `The git host of ${clone_url} could not be reached.`;
  if (/authentication failed|could not read (username|password)|error: 40[13]/i.test(output))
    return username === null
      ? 'The repository is not public: connect its git host by POST /git/connections.'
      : 'The git host does not take the token any more: reconnect it, by POST /git/connections with a new token or by POST /git/authorizations.';
  if (/git: (command )?not found/i.test(output))
    return 'This region has no git; its operator has to install it.';
  if (/repository .*not found|error: 404/i.test(output))
    return `The repository ${clone_url} is not there any more.`;
  if (isSingleCommitRefusal(output) || /reference is not a tree|unable to read tree/i.test(output))
    return `The commit ${commit.slice(0, 12)} is not in the repository any more.`;
  return 'git could not fetch the commit; its last words stand above.';
}
