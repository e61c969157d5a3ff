import type { Wanted } from '@nebo/contracts';
import type { Sql } from '@nebo/persistence';
import type { MasterKey } from '@nebo/service-kit';
import { openEntries, type SealedEntry } from '../env/env.service.js';
import { withoutLogin } from '../env/registry-login.js';
import { type PortColumns, portColumns, portSpec } from '../networks/port.rows.js';

interface RunRow extends PortColumns {
  id: string;
  generation: number;
  gone: boolean;
  change: bigint;
  account_id: string;
  app_id: string;
  build_id: string;
  artifact_sha256: string;
  artifact_bytes: number;
  is_image: boolean;
  command: string;
  vcpu: number;
  memory_mb: number;
  timeout_ms: number;
  begun: boolean;
  env: SealedEntry[];
}

/**
 * Runs that a region shall make. In a delta a run that has ended is of interest only when it was called off; in a full
 * answer absence says so; only one with a port is asked for until the region has said that it is gone.
 */
export async function wantedRuns(
  tx: Sql,
  masterKey: MasterKey,
  regionId: string,
  after: bigint | null,
): Promise<{ change: bigint; item: Wanted }[]> {
  const rows = await tx.query<RunRow>(
    `select j.id, j.generation, j.gone, coalesce(j.change, 0) as change, j.account_id, j.app_id, r.build_id, b.artifact_sha256,
       b.artifact_bytes::float8 as artifact_bytes, b.image_layers is not null as is_image, j.command, r.vcpu, r.memory_mb, j.timeout_ms,
       j.observed_state is not null as begun, r.env, ${portColumns}
     from job_run j join revision r on r.id = j.revision_id join build b on b.id = r.build_id left join app_port t on t.id = j.port_id
     where j.region_id = $1::uuid and ($2::bigint is null or j.change > $2::bigint)
       and (j.port_id is null or t.address is not null or j.gone)
       and (j.status in ('queued', 'running') or ($2::bigint is not null and j.gone)
         or (j.gone and t.id is not null and coalesce(j.observed_state, 'running') = 'running'))`,
    [regionId, after?.toString() ?? null],
  );
  return rows.map((row) => ({ change: row.change, item: wantedRun(row, masterKey) }));
}

function wantedRun(row: RunRow, masterKey: MasterKey): Wanted {
  const { id, generation, gone, account_id, app_id, build_id, command, vcpu, memory_mb, timeout_ms, begun } =
    row;
  return {
    ...{ kind: 'run', id, generation, gone },
    spec: {
      ...{ account_id, app_id, build_id, command, vcpu, memory_mb, timeout_ms, begun },
      artifact: { sha256: row.artifact_sha256, bytes: row.artifact_bytes },
      ...(row.is_image ? { image: true } : {}),
      // What is to be ended needs no secrets any more.
      env: gone ? [] : openEntries(masterKey, account_id, app_id, withoutLogin(row.env)),
      log_stream: id,
      port: gone ? null : portSpec(row),
    },
  };
}
