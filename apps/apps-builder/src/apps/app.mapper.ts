import type { V1App } from '@nebo/contracts';

/** The columns of an app that its record shows; from Prisma or from the function `app_get`. */
export interface AppColumns {
  id: string;
  project_id: string;
  region_id: string;
  name: string;
  app_type: string;
  runtime_type: string;
  source_type: string;
  source_error: string | null;
  git_provider: string;
  repo_full_name: string;
  branch: string;
  auto_deploy: boolean;
  docker_image: string | null;
  running_docker_image: string | null;
  running_docker_image_digest: string | null;
  predeploy_command: string | null;
  readiness_path: string | null;
  vpc_id: string | null;
  replica_count: number;
  replica_vcpu: number;
  replica_memory_mb: number;
  deploy_strategy: string;
  current_build_id: string | null;
  /** A text where the row came as JSON. */
  created_at: Date | string;
  updated_at: Date | string;
}

/** The newest build of an app, as far as the app's record shows it. */
export interface NewestBuild {
  status: string;
  deploy_state: string | null;
}

/** `active` serves, `pending` is on its way to a first answer, `inactive` is neither. */
export function appStatus(currentBuildId: string | null, newest: NewestBuild | null): string {
  if (currentBuildId !== null) return 'active';
  if (newest === null) return 'inactive';
  const underWay = newest.status === 'queued' || newest.status === 'building';
  const rolling =
    newest.status === 'success' && (newest.deploy_state === null || newest.deploy_state === 'rolling');
  return underWay || rolling ? 'pending' : 'inactive';
}

/** A row as the contract's record. A plain object: this runs for the hottest read. */
export function appRecord(row: AppColumns, newest: NewestBuild | null): V1App {
  return {
    id: row.id,
    project_id: row.project_id,
    name: row.name,
    status: appStatus(row.current_build_id, newest),
    app_type: row.app_type,
    runtime_type: row.runtime_type,
    source_type: row.source_type,
    source_error: row.source_error,
    git_provider: row.git_provider,
    repo_full_name: row.repo_full_name,
    branch: row.branch,
    auto_deploy: row.auto_deploy,
    docker_image: row.docker_image,
    running_docker_image: row.running_docker_image,
    running_docker_image_digest: row.running_docker_image_digest,
    current_build_id: row.current_build_id,
    deploy_state: newest === null ? null : newest.deploy_state,
    predeploy_command: row.predeploy_command,
    readiness_path: row.readiness_path,
    replica_count: row.replica_count,
    replica_vcpu: row.replica_vcpu,
    replica_memory_mb: row.replica_memory_mb,
    vpc_id: row.vpc_id,
    cluster_id: row.region_id,
    deploy_strategy: row.deploy_strategy,
    created_at: new Date(row.created_at).toISOString(),
    updated_at: new Date(row.updated_at).toISOString(),
  };
}
