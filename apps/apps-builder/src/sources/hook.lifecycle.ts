import { Inject, Injectable } from '@nestjs/common';
import { hours, Lifecycle, minutes, type Outcome, seconds, State } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import { RUNTIME, type Runtime } from '@nebo/service-kit';
import { type ConnectionRow, hookSecretOf } from '../git/connections.rows.js';
import { GitHostError } from '../git/git-host.js';
import { GitReach, sentenceOf } from '../git/git-reach.js';
import { Settings } from '../shared/settings.js';

interface Hook {
  id: string;
  connection_id: string;
  repo_full_name: string;
  repo_key: string;
  external_id: string | null;
  /** Null: deleted long ago. */
  connection: ConnectionRow;
  connection_deleted: boolean;
  /** Apps that want to hear of pushes. */
  apps: number;
}

/**
 * Life of a repository's webhook: ensuring → removing. While an app is built from the repository it is looked after: made,
 * made again when somebody removed it, set to the present address. The last app takes it away.
 */
@Injectable()
export class HookLifecycle extends Lifecycle<Hook> {
  override readonly kind = 'git_hook';

  constructor(
    private readonly database: Database,
    private readonly reach: GitReach,
    private readonly settings: Settings,
    @Inject(RUNTIME) private readonly runtime: Runtime,
  ) {
    super();
  }

  override async load(tx: Sql, id: string): Promise<Hook | null> {
    const [hook] = await tx.query<Omit<Hook, 'connection' | 'connection_deleted'>>(
      `select h.id, h.connection_id, h.repo_full_name, h.repo_key, h.external_id,
         (select count(*)::int from app a where a.git_connection_id = h.connection_id::text and a.repo_key = h.repo_key
           and a.auto_deploy and a.deleted_at is null) as apps
       from git_hook h where h.id = $1::uuid`,
      [id],
    );
    if (!hook) return null;
    const [connection] = await tx.query<ConnectionRow & { deleted_at: Date | null }>(
      'select * from git_connection where id = $1::uuid',
      [hook.connection_id],
    );
    return { ...hook, connection: connection!, connection_deleted: connection!.deleted_at !== null };
  }

  @State()
  async ensuring(hook: Hook): Promise<Outcome> {
    if (hook.apps === 0 || hook.connection_deleted) return this.go('removing');
    const { host, api } = this.reach.connected(hook.connection);
    const secret = hookSecretOf(this.runtime.masterKey, hook.connection);
    const url = `${this.settings.publicUrl}/hooks/git/${hook.connection_id}`;
    try {
      const id = await this.reach.watch(hook.connection, () =>
        host.ensureHook(api, hook.repo_full_name, { url, secret }),
      );
      await this.note(hook, id, null);
      return this.wait(hours(6), 'looked after');
    } catch (error) {
      if (!(error instanceof GitHostError)) throw error;
      const reason = `pushes are not heard: ${sentenceOf(error, hook.connection)}`;
      await this.note(hook, null, reason);
      // A reconnect wakes it; what the host has against it may also have been mended there.
      return this.wait(error.failure === 'away' ? seconds(30) : minutes(10), reason);
    }
  }

  @State({ deadline: hours(24), onMissed: 'forgotten' })
  async removing(hook: Hook): Promise<Outcome> {
    if (hook.apps > 0 && !hook.connection_deleted) return this.go('ensuring');
    if (hook.external_id !== null) {
      const { host, api } = this.reach.connected(hook.connection);
      try {
        await host.removeHook(api, hook.repo_full_name, hook.external_id);
      } catch (error) {
        if (!(error instanceof GitHostError)) throw error;
        if (error.failure === 'away') return this.wait(minutes(1), error.message);
        // Without a right nothing can be done from here; what it sends finds no app.
      }
    }
    return this.go('forgotten');
  }

  @State()
  forgotten(hook: Hook): Outcome {
    if (hook.apps > 0 && !hook.connection_deleted) return this.go('ensuring');
    return this.end((tx) => this.forget(tx, hook));
  }

  private async forget(tx: Sql, hook: Hook): Promise<void> {
    // The lock first: an app that is just being made from the repository is seen by the next statement.
    await tx.query('select 1 as held from git_hook where id = $1::uuid for update', [hook.id]);
    const gone = await tx.query(
      `delete from git_hook h where id = $1::uuid
         and ($2::boolean or not exists (select 1 from app a where a.git_connection_id = h.connection_id::text
           and a.repo_key = h.repo_key and a.auto_deploy and a.deleted_at is null)) returning 1 as gone`,
      [hook.id, hook.connection_deleted],
    );
    if (gone.length === 0) throw new Error('an app is built from the repository again');
  }

  private async note(hook: Hook, externalId: string | null, error: string | null): Promise<void> {
    await this.database.transaction(async (tx) => {
      await tx.query(
        'update git_hook set external_id = coalesce($2, external_id), error = $3 where id = $1::uuid',
        [hook.id, externalId, error],
      );
      // Only its own sentence is taken back: the source may have other troubles.
      await tx.query(
        `update app set source_error = $3
         where git_connection_id = $1 and repo_key = $2 and deleted_at is null and auto_deploy
           and (source_error is null or source_error like 'pushes are not heard:%')
           and source_error is distinct from $3`,
        [hook.connection_id, hook.repo_key, error],
      );
    });
  }
}
