import { randomUUID } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import { decide, gitProviders, type KeyIdentity, type V1AppCreate } from '@nebo/contracts';
import { start, wake } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';
import { conflict, fieldError, forbidden, referenceNotFound } from '@nebo/service-kit';
import { findConnection } from '../git/connections.rows.js';
import type { GitCommit } from '../git/git-host.js';
import { GitReach, type Reached } from '../git/git-reach.js';
import { isCommit } from '../git/push-payload.js';
import { Store } from '../shared/prisma.js';

/** The columns of an app that say where its code comes from. */
export interface GitApp {
  id: string;
  account_id: string;
  git_provider: string;
  git_connection_id: string | null;
  repo_full_name: string;
  branch: string;
}

/** A commit that a build is made of. */
export interface CommitSource {
  commit: GitCommit;
  branch: string | null;
  clone_url: string;
  clone_username: string | null;
  connection_id: string | null;
}

/** `owner/name`, with groups between them where the host has such; nothing that could lead elsewhere in a path. */
const repoName = /^[\p{L}\p{N}_.-]+(\/[\p{L}\p{N}_.-]+)+$/u;

/** Where the code of git apps comes from: who may use which repository, and what stands at the head of a branch. */
@Injectable()
export class SourcesService {
  constructor(
    private readonly store: Store,
    private readonly reach: GitReach,
  ) {}

  /**
   * Checks what a new app says of its repository: that the connection is the caller's, that it reaches the repository, and
   * that the branch is there. Without a repository there is nothing to check; such an app cannot be built.
   * @returns what the app's row gets
   * @throws ApiError 404 for a connection that is not there, 403 for one that the key may not use, 422 for what the host
   *   does not have, 409 `git_reconnect`, 503 when the host is away
   */
  async admit(
    caller: KeyIdentity,
    body: V1AppCreate,
  ): Promise<{ git_provider: string; git_connection_id: string | null }> {
    const named = body.git_connection_id ?? body.github_installation_id ?? body.gitlab_connection_id ?? null;
    const plain = { git_provider: body.git_provider, git_connection_id: null };
    if (body.source_type !== 'git') return plain;
    const connection = named === null ? null : await this.connectionOf(caller, body, named);
    if (body.repo_full_name === '') {
      if (connection !== null) throw fieldError('repo_full_name', 'is needed with a connection');
      return plain;
    }
    if (!isRepoName(body.repo_full_name)) throw fieldError('repo_full_name', 'must look like owner/name');
    const app = {
      account_id: caller.account_id,
      git_provider: connection?.provider ?? body.git_provider,
      git_connection_id: connection?.id ?? null,
    };
    const reached = await this.reach.ofApp(app);
    if (reached === null)
      throw fieldError('git_connection_id', `${app.git_provider} is self-hosted: a connection is needed`);
    await this.look(reached, { ...app, repo_full_name: body.repo_full_name, branch: body.branch });
    return { git_provider: app.git_provider, git_connection_id: app.git_connection_id };
  }

  /**
   * What a deploy is made of: the head of the app's branch, or the commit that was asked for.
   * @throws ApiError 409 `no_source` and `git_reconnect`, 422 for what the host does not have, 503 when it is away
   */
  async resolve(app: GitApp, sha: string | null): Promise<CommitSource> {
    if (app.repo_full_name === '') throw conflict('no_source', 'this app has no repository to build from');
    const reached = await this.reach.ofApp(app);
    if (reached === null)
      throw conflict('git_reconnect', 'the connection of this app is gone: make the app again with another');
    if (sha === null) return this.sourceOf(app, reached, await this.look(reached, app), app.branch);
    if (!isCommit(sha)) throw fieldError('commit_sha', 'must be the full hash of a commit');
    const commit = await this.reach.ask(
      reached.connection,
      () => reached.host.commit(reached.api, app.repo_full_name, sha),
      () => fieldError('commit_sha', 'the repository has no such commit'),
    );
    return this.sourceOf(app, reached, commit, null);
  }

  /** The same for a push, whose failures are the lifecycle's. @throws GitHostError */
  async head(app: GitApp, reached: Reached): Promise<CommitSource> {
    const { host, api, connection } = reached;
    const commit = await this.reach.watch(connection, () => host.head(api, app.repo_full_name, app.branch));
    return this.sourceOf(app, reached, commit, app.branch);
  }

  /**
   * Ties a new app to its repository, in the transaction that makes it: pushes will be heard.
   * @throws ApiError 404 when the connection was deleted meanwhile
   */
  async attach(sql: Sql, app: GitApp & { auto_deploy: boolean }): Promise<void> {
    if (app.git_connection_id === null || app.repo_full_name === '') return;
    const held = await sql.query(
      'select 1 as held from git_connection where id = $1::uuid and deleted_at is null for share',
      [app.git_connection_id],
    );
    if (held.length === 0) throw referenceNotFound('git_connection_id');
    if (!app.auto_deploy) return;
    const [hook] = await sql.query<{ id: string }>(
      `insert into git_hook (id, account_id, connection_id, repo_full_name, repo_key)
       values ($1::uuid, $2::uuid, $3::uuid, $4, lower($4))
       on conflict (connection_id, repo_key) do update set repo_full_name = excluded.repo_full_name returning id`,
      [randomUUID(), app.account_id, app.git_connection_id, app.repo_full_name],
    );
    if (!(await wake(sql, 'git_hook', hook!.id))) await start(sql, 'git_hook', hook!.id, 'ensuring');
  }

  /** Takes back what an earlier try had against the repository; a webhook that could not be made has its own sentence. */
  async works(sql: Sql, appId: string): Promise<void> {
    await sql.query(
      `update app set source_error = null
       where id = $1::uuid and source_error is not null and source_error not like 'pushes are not heard:%'`,
      [appId],
    );
  }

  /** Lets go of the repository of an app that is deleted; the last one takes the webhook with it. */
  async detach(sql: Sql, app: GitApp): Promise<void> {
    if (app.git_connection_id === null) return;
    const hooks = await sql.query<{ id: string }>(
      'select id from git_hook where connection_id = $1::uuid and repo_key = lower($2)',
      [app.git_connection_id, app.repo_full_name],
    );
    for (const { id } of hooks) await wake(sql, 'git_hook', id);
  }

  private async connectionOf(caller: KeyIdentity, body: V1AppCreate, named: string) {
    const field =
      body.git_connection_id != null
        ? 'git_connection_id'
        : body.github_installation_id != null
          ? 'github_installation_id'
          : 'gitlab_connection_id';
    const row = await this.store.as(caller.account_id, ({ sql }) => findConnection(sql, named));
    if (row === null) throw referenceNotFound(field);
    // A connection opens all repositories of its token: a key for one project alone must not reach them through an app.
    const account = { kind: 'account', id: caller.account_id, project_id: null };
    if (!decide(caller, 'app:read', account)) throw forbidden('app:read');
    if (row.provider !== body.git_provider && body.git_provider !== gitProviders[0])
      throw fieldError('git_provider', `the connection is one to ${row.provider}`);
    return row;
  }

  /** The head of a branch, with a sentence for what is missing: the repository or the branch. */
  private look(reached: Reached, app: { repo_full_name: string; branch: string }): Promise<GitCommit> {
    const { host, api, connection } = reached;
    return this.reach.ask(
      connection,
      async () => {
        await host.check(api, app.repo_full_name);
        return this.reach.ask(
          connection,
          () => host.head(api, app.repo_full_name, app.branch),
          () => fieldError('branch', `the repository has no branch "${app.branch}"`),
        );
      },
      () =>
        fieldError(
          'repo_full_name',
          connection === null
            ? 'there is no such public repository; connect the git host for a private one'
            : `the connection reaches no repository "${app.repo_full_name}"`,
        ),
    );
  }

  private sourceOf(app: GitApp, reached: Reached, commit: GitCommit, branch: string | null): CommitSource {
    const { host, addresses, connection } = reached;
    const { url, username } = host.clone(addresses, app.repo_full_name, connection?.login ?? null);
    return {
      commit,
      branch,
      clone_url: url,
      clone_username: username,
      connection_id: connection?.id ?? null,
    };
  }
}

/** Whether a text can be the full name of a repository: no segment leads upwards in a path. */
const isRepoName = (name: string): boolean =>
  repoName.test(name) && !name.split('/').some((part) => /^\.+$/.test(part) || part.endsWith('.git'));
