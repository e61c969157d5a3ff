import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

/** What git knows of a commit. */
export interface GitCommitFacts {
  sha: string;
  message: string;
  author: string;
  email: string;
  /** RFC 3339. */
  at: string;
  added: string[];
  removed: string[];
  modified: string[];
}

/** A webhook as somebody registered it. */
export interface RegisteredHook {
  id: string;
  url: string;
  secret: string;
  active: boolean;
}

/** A commit status as somebody set it. */
export interface SetStatus {
  sha: string;
  /** In the dialect's own word. */
  state: string;
  context: string;
  description: string;
  url: string;
}

/** A repository of the host, with what hangs on it. */
export class HostedRepository {
  readonly hooks: RegisteredHook[] = [];
  readonly statuses: SetStatus[] = [];

  constructor(
    readonly id: number,
    readonly full_name: string,
    readonly isPrivate: boolean,
    /** Bare repository. */
    readonly dir: string,
    /** Where `commit` of the host works. */
    readonly work: string,
  ) {}

  /** All branches and tags with their hashes. */
  async refs(): Promise<Map<string, string>> {
    const out = await git(this.dir, ['for-each-ref', '--format=%(refname) %(objectname)']);
    return new Map(
      out
        .split('\n')
        .filter(Boolean)
        .map((line) => line.split(' ') as [string, string]),
    );
  }

  /** The hash that a name stands for, or null. */
  async resolve(name: string): Promise<string | null> {
    const out = await git(this.dir, ['rev-parse', '--verify', '--quiet', `${name}^{commit}`]).catch(() => '');
    return out.trim() || null;
  }

  /** Facts of a commit; null for an unknown one. */
  async commit(name: string): Promise<GitCommitFacts | null> {
    const sha = await this.resolve(name);
    if (sha === null) return null;
    const format = '--format=%an%x00%ae%x00%aI%x00%B';
    const [author, email, at, ...message] = (await git(this.dir, ['show', '--no-patch', format, sha])).split(
      '\0',
    );
    const changes = (
      await git(this.dir, ['diff-tree', '--root', '--no-commit-id', '--name-status', '-r', '-z', sha])
    ).split('\0');
    const of = (letter: string) =>
      changes.flatMap((entry, index) => (index % 2 === 0 && entry === letter ? [changes[index + 1]!] : []));
    return {
      sha,
      author: author!,
      email: email!,
      at: at!,
      message: message.join('\0').replace(/\n+$/, '\n'),
      added: of('A'),
      removed: of('D'),
      modified: of('M'),
    };
  }

  /** Commits that a push brought, oldest first. */
  async between(before: string, after: string): Promise<GitCommitFacts[]> {
    const range = /^0+$/.test(before) ? [after, '--max-count=1'] : [`${before}..${after}`];
    const out = await git(this.dir, ['rev-list', '--reverse', ...range, '--']);
    const found = await Promise.all(
      out
        .split('\n')
        .filter(Boolean)
        .map((sha) => this.commit(sha)),
    );
    return found.filter((commit) => commit !== null);
  }

  /** Whether a push threw commits away. */
  async isForced(before: string, after: string): Promise<boolean> {
    if (/^0+$/.test(before) || /^0+$/.test(after)) return false;
    return git(this.dir, ['merge-base', '--is-ancestor', before, after]).then(
      () => false,
      () => true,
    );
  }
}

/** Folder of bare repositories that `git http-backend` serves. */
export class Repositories {
  private readonly known = new Map<string, HostedRepository>();

  private constructor(readonly root: string) {}

  static async make(): Promise<Repositories> {
    return new Repositories(await mkdtemp(join(tmpdir(), 'nebo-git-host-')));
  }

  list(): HostedRepository[] {
    return [...this.known.values()];
  }

  /** Names are compared without case, as all hosts do. */
  find(fullName: string): HostedRepository | undefined {
    return this.known.get(fullName.toLowerCase());
  }

  async create(fullName: string, isPrivate: boolean): Promise<HostedRepository> {
    const dir = join(this.root, 'bare', `${fullName}.git`);
    const work = join(this.root, 'work', fullName);
    await mkdir(dirname(dir), { recursive: true });
    await mkdir(work, { recursive: true });
    await git(this.root, ['init', '-q', '--bare', '--initial-branch=main', dir]);
    await git(dir, ['config', 'http.receivepack', 'true']);
    await git(work, ['init', '-q', '--initial-branch=main', '.']);
    const repository = new HostedRepository(this.known.size + 1, fullName, isPrivate, dir, work);
    this.known.set(fullName.toLowerCase(), repository);
    return repository;
  }

  /** Writes files (null removes one) and commits them in the work folder of a repository. @returns the hash */
  async commit(
    { work }: HostedRepository,
    files: Record<string, string | null>,
    message: string,
    links: Record<string, string> = {},
  ): Promise<string> {
    for (const [path, text] of Object.entries(files)) {
      if (text === null) await rm(join(work, path), { force: true });
      else {
        await mkdir(dirname(join(work, path)), { recursive: true });
        await writeFile(join(work, path), text);
      }
    }
    await git(work, ['add', '--all']);
    for (const [path, sha] of Object.entries(links)) {
      await mkdir(join(work, path), { recursive: true });
      await git(work, ['update-index', '--add', '--cacheinfo', `160000,${sha},${path}`]);
    }
    await git(work, ['commit', '-q', '--allow-empty', '-m', message]);
    return (await git(work, ['rev-parse', 'HEAD'])).trim();
  }

  remove(): Promise<void> {
    return rm(this.root, { recursive: true, force: true, maxRetries: 3 });
  }
}

/** Environment in which nothing of this machine's git settings counts. */
export const gitEnv = {
  PATH: process.env['PATH'] ?? '/usr/bin:/bin',
  HOME: '/nonexistent',
  LC_ALL: 'C',
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_TERMINAL_PROMPT: '0',
  GIT_AUTHOR_NAME: 'Ann Author',
  GIT_AUTHOR_EMAIL: 'ann@example.org',
  GIT_COMMITTER_NAME: 'Ann Author',
  GIT_COMMITTER_EMAIL: 'ann@example.org',
} as const;

/** Runs git in a folder. @returns stdout @throws Error with what git said */
export function git(cwd: string, args: readonly string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    execFile(
      'git',
      args as string[],
      { cwd, env: gitEnv, maxBuffer: 64 * 1024 * 1024 },
      (error, stdout, stderr) => {
        if (error) reject(new Error(`git ${args.join(' ')}: ${stderr || error.message}`, { cause: error }));
        else resolve(stdout);
      },
    );
  });
}
