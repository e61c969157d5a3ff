import { Inject, Injectable } from '@nestjs/common';
import {
  type AgentIdentity,
  type BuildSpec,
  type ImageSource,
  type ReplicaSpec,
  type Wanted,
  type WantedAnswer,
  parseImageReference,
} from '@nebo/contracts';
import { Database, type Sql } from '@nebo/persistence';
import { Changes, cursorOf, Epochs, type Feed, numberAfter, RUNTIME, type Runtime } from '@nebo/service-kit';
import { openEntries, type SealedEntry } from '../env/env.service.js';
import { isLoginVariable, loginOf, withoutLogin } from '../env/registry-login.js';
import { type PortColumns, portColumns, portSpec } from '../networks/port.rows.js';
import { sealContext } from '../git/connections.rows.js';
import { TokenRenewal } from '../git/oauth/renewal.js';
import { wantedRuns } from '../jobs/wanted-runs.js';
import type { Topic } from '../shared/topics.js';

interface BuildRow {
  id: string;
  generation: number;
  gone: boolean;
  change: bigint;
  account_id: string;
  app_id: string;
  env: SealedEntry[];
  source_sha256: string | null;
  source_bytes: number | null;
  commit_sha: string | null;
  branch: string | null;
  clone_url: string | null;
  clone_username: string | null;
  /** Of the connection; null: none, or it is gone. */
  connection_id: string | null;
  token_sealed: Uint8Array | null;
  docker_image: string | null;
  docker_image_digest: string | null;
  /** Of the app's last build that was made. */
  known_layers: string[] | null;
  app_type: string;
  framework: string | null;
  nodejs_version: string | null;
  root_directory: string | null;
  install_command: string | null;
  build_command: string | null;
  start_command: string | null;
  output_directory: string | null;
}

interface ReplicaRow extends PortColumns {
  id: string;
  generation: number;
  gone: boolean;
  change: bigint;
  account_id: string;
  app_id: string;
  build_id: string;
  env: SealedEntry[];
  artifact_sha256: string;
  artifact_bytes: number;
  is_image: boolean;
  start_command: string | null;
  vcpu: number;
  memory_mb: number;
  readiness_path: string;
  ready_timeout_ms: number;
  idle_ms: number | null;
  proven: boolean;
}

/** What a region shall make so. The only place where variables are opened. */
@Injectable()
export class WantedService {
  constructor(
    private readonly database: Database,
    private readonly changes: Changes<Topic>,
    private readonly epochs: Epochs,
    private readonly renewal: TokenRenewal,
    @Inject(RUNTIME) private readonly runtime: Runtime,
  ) {}

  /**
   * What changed in a region after a cursor; waits while nothing does.
   * @param since null, or a cursor that is too old or another database's: everything
   * @param waitMs 0 answers at once
   * @throws ApiError 409 `stale_epoch`, also when a newer agent comes while this one waits
   */
  async since(
    agent: AgentIdentity,
    since: string | null,
    waitMs: number,
    gone: AbortSignal,
  ): Promise<WantedAnswer> {
    const ear = this.changes.listen(`wanted:${agent.region_id}`);
    const over = AbortSignal.any([gone, this.changes.stopping]);
    const end = Date.now() + waitMs;
    try {
      for (;;) {
        await this.renewal.beforeClones(agent.region_id);
        const answer = await this.database.transaction((tx) => this.read(tx, agent, since));
        const left = end - Date.now();
        if (answer.full || answer.items.length > 0 || left <= 0 || over.aborted) return answer;
        await ear.next(left, over);
      }
    } finally {
      ear.close();
    }
  }

  private async read(tx: Sql, agent: AgentIdentity, since: string | null): Promise<WantedAnswer> {
    await this.epochs.check(tx, agent);
    const [feed] = await tx.query<Feed>('select * from number_wanted($1::uuid)', [agent.region_id]);
    const after = numberAfter(feed!, since);
    const items = [
      ...(await this.builds(tx, agent.region_id, after)),
      ...(await this.replicas(tx, agent.region_id, after)),
      ...(await wantedRuns(tx, this.runtime.masterKey, agent.region_id, after)),
    ];
    items.sort((a, b) => (a.change < b.change ? -1 : 1));
    return { cursor: cursorOf(feed!), full: after === null, items: items.map(({ item }) => item) };
  }

  /** In a delta a finished build is of interest only when it was called off; in a full answer absence says so. */
  private async builds(tx: Sql, regionId: string, after: bigint | null) {
    const rows = await tx.query<BuildRow>(
      `select b.id, b.generation, b.gone, coalesce(b.change, 0) as change, b.account_id, b.app_id, b.env, b.source_sha256,
         b.source_bytes::float8 as source_bytes, a.app_type, a.framework, a.nodejs_version, a.root_directory, a.install_command,
         a.build_command, a.start_command, a.output_directory, b.commit_sha, b.branch, b.clone_url, b.clone_username,
         g.id as connection_id, g.token_sealed, b.docker_image, b.docker_image_digest,
         case when b.docker_image is not null then (select k.image_layers from build k
           where k.app_id = b.app_id and k.status = 'success' and k.image_layers is not null order by k.seq desc limit 1) end as known_layers
       from build b join app a on a.id = b.app_id
         left join git_connection g on g.id = b.git_connection_id and g.account_id = b.account_id and g.deleted_at is null
       where b.region_id = $1::uuid and (b.source_sha256 is not null or b.clone_url is not null or b.docker_image is not null)
         and ($2::bigint is null or b.change > $2::bigint)
         and (b.status in ('queued', 'building') or ($2::bigint is not null and b.gone))`,
      [regionId, after?.toString() ?? null],
    );
    return rows.map((row) => ({ change: row.change, item: this.wantedBuild(row) }));
  }

  /** One that has no address in its app's private network yet is not wanted yet. */
  private async replicas(tx: Sql, regionId: string, after: bigint | null) {
    const rows = await tx.query<ReplicaRow>(
      `select p.id, p.generation, p.gone, coalesce(p.change, 0) as change, p.account_id, p.app_id, r.build_id, r.env,
         b.artifact_sha256, b.artifact_bytes::float8 as artifact_bytes, b.image_layers is not null as is_image, b.start_command, r.vcpu,
         r.memory_mb, p.readiness_path, p.ready_timeout_ms, p.idle_ms, p.ready_at is not null as proven, ${portColumns}
       from replica p join revision r on r.id = p.revision_id join build b on b.id = r.build_id
         left join app_port t on t.id = p.port_id
       where p.region_id = $1::uuid and ($2::bigint is null or p.change > $2::bigint) and p.ended_at is null
         and (p.port_id is null or t.address is not null or p.gone)`,
      [regionId, after?.toString() ?? null],
    );
    return rows.map((row) => ({ change: row.change, item: this.wantedReplica(row) }));
  }

  private wantedBuild(row: BuildRow): Wanted {
    const spec: BuildSpec = {
      account_id: row.account_id,
      app_id: row.app_id,
      app_type: row.app_type,
      ...this.source(row),
      framework: row.framework,
      nodejs_version: row.nodejs_version,
      root_directory: row.root_directory,
      install_command: row.install_command,
      build_command: row.build_command,
      start_command: row.start_command,
      output_directory: row.output_directory,
      env: this.env(row),
      log_stream: row.id,
    };
    return { kind: 'build', id: row.id, generation: row.generation, gone: row.gone, spec };
  }

  /** Stored bytes, or the commit that becomes them; the credential travels to the region that fetches it only. */
  private source(row: BuildRow): Pick<BuildSpec, 'source' | 'git' | 'image'> {
    if (row.docker_image !== null) {
      const ofLogin = row.env.filter(({ name }) => isLoginVariable(name));
      const login = row.gone ? null : loginOf(this.open({ ...row, env: ofLogin }));
      return { source: null, image: { ...imageSource(row, row.docker_image), login } };
    }
    const { source_sha256, source_bytes, clone_url, commit_sha, branch } = row;
    if (source_sha256 !== null) return { source: { sha256: source_sha256, bytes: source_bytes! } };
    const { connection_id, token_sealed, account_id } = row;
    const password =
      token_sealed === null || row.gone
        ? null
        : this.runtime.masterKey.open(token_sealed, sealContext(account_id, connection_id!, 'token'));
    const username = password === null ? null : row.clone_username;
    return { source: null, git: { clone_url: clone_url!, commit: commit_sha!, branch, username, password } };
  }

  private wantedReplica(row: ReplicaRow): Wanted {
    const spec: ReplicaSpec = {
      account_id: row.account_id,
      app_id: row.app_id,
      build_id: row.build_id,
      artifact: { sha256: row.artifact_sha256, bytes: row.artifact_bytes },
      ...(row.is_image ? { image: true } : {}),
      start_command: row.start_command ?? '',
      vcpu: row.vcpu,
      memory_mb: row.memory_mb,
      readiness_path: row.readiness_path,
      ready_timeout_ms: row.ready_timeout_ms,
      env: this.env(row),
      log_stream: row.id,
      on_demand: row.idle_ms === null ? null : { idle_ms: row.idle_ms, proven: row.proven },
      port: row.gone ? null : portSpec(row),
    };
    return { kind: 'replica', id: row.id, generation: row.generation, gone: row.gone, spec };
  }

  /** What is to be removed needs no secrets any more. */
  private env(row: BuildRow | ReplicaRow) {
    return row.gone ? [] : this.open({ ...row, env: withoutLogin(row.env) });
  }

  private open({ account_id, app_id, env }: BuildRow | ReplicaRow) {
    return openEntries(this.runtime.masterKey, account_id, app_id, env);
  }
}

/** The image as it is named, or the bytes of the build that is made again. */
function imageSource(row: BuildRow, reference: string): ImageSource {
  const { source_sha256: sha256, source_bytes: bytes, docker_image_digest: digest, known_layers } = row;
  const stored = sha256 === null ? null : { sha256, bytes: bytes! };
  return {
    reference,
    name: parseImageReference(reference),
    digest,
    stored,
    known_layers: known_layers ?? [],
  };
}
