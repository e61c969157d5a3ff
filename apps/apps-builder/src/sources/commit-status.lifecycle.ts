import { Injectable } from '@nestjs/common';
import { hours, Lifecycle, type Outcome, State, type StepContext } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import { failedDeployStates } from '../builds/build.mapper.js';
import { type ConnectionRow, findConnection } from '../git/connections.rows.js';
import { type CommitState, GitHostError } from '../git/git-host.js';
import { GitReach } from '../git/git-reach.js';
import { Settings } from '../shared/settings.js';

interface ToldBuild {
  id: string;
  app_id: string;
  app_name: string;
  repo_full_name: string;
  commit_sha: string;
  status: string;
  deploy_state: string | null;
  error: string | null;
  boot_error: string | null;
  commit_status: string | null;
  connection: ConnectionRow | null;
}

/** So often a host that is away is asked again; the status of a commit is worth no more. */
const mostAttempts = 12;

/** Life of a build's status at its git host: telling → end. Says pending, and then success or failure, once each. */
@Injectable()
export class CommitStatusLifecycle extends Lifecycle<ToldBuild> {
  override readonly kind = 'commit_status';

  constructor(
    private readonly database: Database,
    private readonly reach: GitReach,
    private readonly settings: Settings,
  ) {
    super();
  }

  override async load(tx: Sql, id: string): Promise<ToldBuild | null> {
    const [row] = await tx.query<Omit<ToldBuild, 'connection'> & { git_connection_id: string | null }>(
      `select b.id, b.app_id, a.name as app_name, a.repo_full_name, b.commit_sha, b.status, b.deploy_state, b.error,
         b.boot_error, b.commit_status, b.git_connection_id
       from build b join app a on a.id = b.app_id where b.id = $1::uuid and b.commit_sha is not null`,
      [id],
    );
    return row ? { ...row, connection: await findConnection(tx, row.git_connection_id) } : null;
  }

  @State({ deadline: hours(6), onMissed: 'over' })
  async telling(build: ToldBuild, { attempt }: StepContext): Promise<Outcome> {
    const { connection } = build;
    if (connection === null) return this.end();
    const { state, description } = commitStateOf(build);
    if (state !== build.commit_status) {
      const { host, api } = this.reach.connected(connection);
      const status = {
        state,
        description,
        // Several apps may be built from one repository: each has a line of its own.
        context: `nebo/${build.app_name}`,
        url: `${this.settings.publicUrl}/a/${connection.account_id}/apps/${build.app_id}/deploys/${build.id}`,
      };
      try {
        await this.reach.watch(connection, () =>
          host.setStatus(api, build.repo_full_name, build.commit_sha, status),
        );
      } catch (error) {
        if (!(error instanceof GitHostError)) throw error;
        // Another failure than being away will not pass by itself, and the build does not depend on it.
        if (error.failure !== 'away' || attempt >= mostAttempts) return this.end();
        throw error;
      }
      await this.database.transaction((tx) =>
        tx.query('update build set commit_status = $2 where id = $1::uuid', [build.id, state]),
      );
    }
    return state === 'pending' ? this.wait(Infinity, 'the build is under way') : this.end();
  }

  @State()
  over(): Outcome {
    return this.end();
  }
}

/** What a git host is told of a build: a success is one that takes traffic. */
export function commitStateOf(build: Pick<ToldBuild, 'status' | 'deploy_state' | 'error' | 'boot_error'>): {
  state: CommitState;
  description: string;
} {
  const { status, deploy_state, error, boot_error } = build;
  const failed: readonly (string | null)[] = failedDeployStates;
  if (status === 'cancelled') return { state: 'failure', description: error ?? 'The build was cancelled' };
  if (status === 'error') return { state: 'failure', description: error ?? 'The build failed' };
  if (deploy_state === 'live') return { state: 'success', description: 'Live' };
  if (failed.includes(deploy_state))
    return { state: 'failure', description: boot_error ?? 'The new version did not start' };
  return { state: 'pending', description: status === 'success' ? 'Going live' : 'Building' };
}
