import { Injectable } from '@nestjs/common';
import { Lifecycle, minutes, type Outcome, seconds, State } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import { beginBuild, callOffQueued } from '../builds/build.rows.js';
import { skipReason } from '../deliveries/judge.js';
import { GitHostError } from '../git/git-host.js';
import { GitReach, type Reached, sentenceOf } from '../git/git-reach.js';
import { lockApp } from '../rollouts/rollout.rows.js';
import { type CommitSource, type GitApp, SourcesService } from './sources.service.js';

/** When the next build of pushes may begin; milliseconds. */
export const pushTimes = {
  /** A burst is over when so long nothing came. */
  quietMs: 2_000,
  /** From the beginning of one build to the next, while pushes keep coming. */
  gapMs: 10_000,
  /** So long a push waits at most for the end of its burst. */
  longestMs: 30_000,
} as const;

interface PushedApp extends GitApp {
  region_id: string;
  deleted: boolean;
  /** As PostgreSQL writes it: a Date would lose microseconds. Null: nothing is waiting. */
  push_at: string | null;
  /** Milliseconds until a build may begin. */
  due_in: number;
}

/**
 * Life of the pushes of one app, from the first to the quiet after the last: due → end. The first push builds at once, those
 * that follow share builds: what is built is always the head of the branch, so the last commit wins (interfaces.md, 10).
 */
@Injectable()
export class PushLifecycle extends Lifecycle<PushedApp> {
  override readonly kind = 'push';

  constructor(
    private readonly database: Database,
    private readonly reach: GitReach,
    private readonly sources: SourcesService,
  ) {
    super();
  }

  override async load(tx: Sql, id: string): Promise<PushedApp | null> {
    const [app] = await tx.query<PushedApp>(
      `select id, account_id, region_id, git_provider, git_connection_id, repo_full_name, branch,
         deleted_at is not null as deleted, push_at::text as push_at,
         case when push_built_at is null or push_since - push_built_at > $3::int * interval '1 millisecond' then 0
         else (extract(epoch from least(
           greatest(push_at + $2::int * interval '1 millisecond', push_built_at + $3::int * interval '1 millisecond'),
           push_since + $4::int * interval '1 millisecond') - clock_timestamp()) * 1000)::float8 end as due_in
       from app where id = $1::uuid`,
      [id, pushTimes.quietMs, pushTimes.gapMs, pushTimes.longestMs],
    );
    return app ?? null;
  }

  @State()
  async due(app: PushedApp): Promise<Outcome> {
    if (app.deleted || app.push_at === null) return this.end((tx) => this.leave(tx, app));
    if (app.due_in > 0) return this.wait(app.due_in, 'more pushes may follow');
    const reached = await this.reach.ofApp(app);
    if (reached === null) return this.giveUp(app, 'the connection of this app is gone');
    let source: CommitSource;
    try {
      source = await this.sources.head(app, reached);
    } catch (error) {
      if (!(error instanceof GitHostError)) throw error;
      return this.notYet(app, reached, error);
    }
    const skip = reached.host.tellsMessages ? null : skipReason(source.commit.message);
    if (skip !== null) return this.giveUp(app, skip, null);
    return this.go('due', (tx) => this.begin(tx, app, source));
  }

  private async notYet(app: PushedApp, { connection }: Reached, error: GitHostError): Promise<Outcome> {
    if (error.failure === 'not_found')
      return this.giveUp(app, `the repository or its branch "${app.branch}" is not there any more`);
    const reason = sentenceOf(error, connection);
    await this.database.transaction((tx) => this.note(tx, app, reason));
    return this.wait(error.failure === 'away' ? seconds(10) : minutes(15), reason);
  }

  /** The push leads to nothing; deliveries say why, and the app as well if it is in trouble. */
  private giveUp(app: PushedApp, reason: string, trouble: string | null = reason): Outcome {
    return this.go('due', async (tx) => {
      await this.note(tx, app, trouble);
      await tx.query(
        `update delivery set outcome = 'ignored', reason = $2
         where app_id = $1::uuid and outcome = 'accepted' and build_id is null and received_at <= $3::timestamptz`,
        [app.id, reason, app.push_at],
      );
      await this.done(tx, app, false);
    });
  }

  private async begin(tx: Sql, app: PushedApp, source: CommitSource): Promise<void> {
    if ((await lockApp(tx, app.id)) === null) return;
    const [known] = await tx.query<{ id: string; commit_sha: string | null; usable: boolean }>(
      `select id, commit_sha, status in ('queued', 'building', 'success') as usable
       from build where app_id = $1::uuid order by seq desc limit 1`,
      [app.id],
    );
    // The same push again, or one that a deploy by hand has just built.
    const isBuilt = known !== undefined && known.usable && known.commit_sha === source.commit.sha;
    if (!isBuilt) await callOffQueued(tx, app, 'overtaken by a newer push');
    const buildId = isBuilt ? known.id : (await beginBuild(tx, app, 'push', { commit: source })).id;
    // An older push that was told again leads here too: the log says that nothing new came of it.
    await tx.query(
      `update delivery set build_id = $2::uuid, outcome = case when $4::boolean then 'ignored' else outcome end,
         reason = case when $4::boolean then $5 else reason end
       where app_id = $1::uuid and outcome = 'accepted' and build_id is null and received_at <= $3::timestamptz`,
      [
        app.id,
        buildId,
        app.push_at,
        isBuilt,
        `${source.commit.sha.slice(0, 12)} is the head of ${app.branch}, and is built already`,
      ],
    );
    await this.note(tx, app, null);
    await this.done(tx, app, !isBuilt);
  }

  /** A push that has come since this step looked found a life that it could wake: then it must not end. */
  private async leave(tx: Sql, app: PushedApp): Promise<void> {
    const [row] = await tx.query<{ waits: boolean }>(
      'select push_at is not null as waits from app where id = $1::uuid and deleted_at is null for update',
      [app.id],
    );
    if (row?.waits) throw new Error('another push has come in between');
  }

  /** Takes back what was waiting, except for what came while the host was asked. */
  private async done(tx: Sql, app: PushedApp, built: boolean): Promise<void> {
    await tx.query(
      `update app set push_built_at = case when $3::boolean then now() else push_built_at end,
         push_since = case when push_at > $2::timestamptz then push_at end,
         push_at = case when push_at > $2::timestamptz then push_at end
       where id = $1::uuid`,
      [app.id, app.push_at, built],
    );
  }

  private async note(tx: Sql, app: PushedApp, error: string | null): Promise<void> {
    await tx.query(
      'update app set source_error = $2 where id = $1::uuid and source_error is distinct from $2',
      [app.id, error],
    );
  }
}
