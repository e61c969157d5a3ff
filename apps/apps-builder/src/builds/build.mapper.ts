import type { V1AppDeployResult, V1Build, V1DeployEvent } from '@nebo/contracts';

/** The columns of a build that its record shows. */
export interface BuildColumns {
  id: string;
  app_id: string;
  status: string;
  deploy_state: string | null;
  commit_sha: string | null;
  commit_message: string | null;
  commit_author: string | null;
  branch: string | null;
  docker_image: string | null;
  docker_image_digest: string | null;
  source_sha256: string | null;
  source_bytes: bigint | null;
  error: string | null;
  boot_error: string | null;
  duration_ms: number | null;
  created_at: Date;
  finished_at: Date | null;
}

/** `deploy_state` at which waiters give up (4-client-behaviours.md, 0): none may appear in a healthy rollout. */
export const failedDeployStates = [
  'failing',
  'never_booted',
  'build_failed',
  'stale_serving',
  'booted',
] as const;

/** Whether nothing more will come of a build by itself. */
export function isOver(build: Pick<BuildColumns, 'status' | 'deploy_state'>): boolean {
  const failed: readonly (string | null)[] = failedDeployStates;
  return (
    build.status === 'error' ||
    build.status === 'cancelled' ||
    build.deploy_state === 'live' ||
    failed.includes(build.deploy_state)
  );
}

/** A row as the contract's record. */
export function buildRecord(row: BuildColumns): V1Build {
  return {
    id: row.id,
    app_id: row.app_id,
    status: row.status,
    deploy_state: row.deploy_state,
    commit_sha: row.commit_sha,
    commit_message: row.commit_message,
    commit_author: row.commit_author,
    branch: row.branch,
    docker_image: row.docker_image,
    docker_image_digest: row.docker_image_digest,
    // Of an image the stored source is a document of ours, no archive of the user's.
    source_archive_bytes:
      row.source_bytes === null || row.docker_image !== null ? null : Number(row.source_bytes),
    source_archive_sha256: row.docker_image === null ? row.source_sha256 : null,
    error: row.error,
    boot_error: row.boot_error,
    duration_ms: row.duration_ms,
    created_at: row.created_at.toISOString(),
    finished_at: row.finished_at === null ? null : row.finished_at.toISOString(),
  };
}

/** The answer to whatever starts a build; `site_id` equals `app_id`. */
export function deployResult(row: { id: string; app_id: string; status: string }): V1AppDeployResult {
  return { id: row.id, app_id: row.app_id, site_id: row.app_id, status: row.status };
}

/** What the deploy status stream says of a build. */
export function deployEvent(row: BuildColumns): V1DeployEvent {
  return {
    build_id: row.id,
    status: row.status,
    deploy_state: row.deploy_state,
    error: row.error,
    boot_error: row.boot_error,
  };
}
