import { BoolField, EnumField, IntField, StrField, TimeField, StringsField } from '../fields.js';

/** Empty (no probe) or an absolute path without white space. */
const readinessPath = /^(\/[^\s#]*)?$/;

/** What shells pass on: a variable of another name would be kept and never reach a program. */
const envName = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** Where an app's code comes from. */
export const sourceTypes = ['git', 'docker_image', 'upload'] as const;
export const appTypes = ['frontend', 'backend', 'function'] as const;
export const runtimeTypes = ['firecracker', 'vm'] as const;
export const gitProviders = ['github', 'gitlab', 'gitea', 'gitverse', 'gitflic'] as const;
export const deployStrategies = ['rolling', 'recreate'] as const;

/** Words of `V1App.status`. */
export const appStatuses = ['inactive', 'pending', 'active'] as const;
/** Words of `V1Build.status`: `success` is the good end, `error` and `cancelled` the bad ones. */
export const buildStatuses = ['queued', 'building', 'success', 'error', 'cancelled'] as const;
/** Words of `deploy_state`; `live` is the only success. */
export const deployStates = [
  'rolling',
  'live',
  'failing',
  'never_booted',
  'build_failed',
  'stale_serving',
  'booted',
  'unverified',
] as const;

/** A web app. */
export class V1App {
  @StrField()
  id!: string;
  @StrField()
  project_id!: string;
  @StrField()
  name!: string;
  @StrField()
  status!: string;
  @StrField({ default: 'frontend' })
  app_type!: string;
  @StrField({ default: 'firecracker' })
  runtime_type!: string;
  @StrField({ default: 'git' })
  source_type!: string;
  @StrField({ nullable: true, optional: true })
  source_error!: string | null;
  @StrField({ default: 'github' })
  git_provider!: string;
  @StrField({ default: '' })
  repo_full_name!: string;
  @StrField({ default: 'main' })
  branch!: string;
  @BoolField({ default: true })
  auto_deploy!: boolean;
  @StrField({ nullable: true, optional: true })
  docker_image!: string | null;
  @StrField({ nullable: true, optional: true })
  running_docker_image!: string | null;
  @StrField({ nullable: true, optional: true })
  running_docker_image_digest!: string | null;
  @StrField({ nullable: true, optional: true })
  current_build_id!: string | null;
  @StrField({ nullable: true, optional: true })
  deploy_state!: string | null;
  @StrField({
    nullable: true,
    optional: true,
    description:
      'Runs once in each deployed version before it serves; when it fails, the version does not. For apps that have a server',
  })
  predeploy_command!: string | null;
  @StrField({ nullable: true, optional: true })
  readiness_path!: string | null;
  @IntField({ default: 0 })
  replica_count!: number;
  @IntField({ default: 1 })
  replica_vcpu!: number;
  @IntField({ default: 512 })
  replica_memory_mb!: number;
  @StrField({ nullable: true, optional: true })
  vpc_id!: string | null;
  @StrField({ description: 'Region' })
  cluster_id!: string;
  @EnumField(deployStrategies, { default: 'rolling' })
  deploy_strategy!: string;
  @TimeField({ nullable: true, optional: true })
  created_at!: string | null;
  @TimeField({ nullable: true, optional: true })
  updated_at!: string | null;
}

/** Body to create an app. */
export class V1AppCreate {
  @StrField({ min: 1, max: 255 })
  name!: string;
  @EnumField(appTypes, { default: 'frontend' })
  app_type: string = 'frontend';
  @EnumField(runtimeTypes, { default: 'firecracker' })
  runtime_type: string = 'firecracker';
  @EnumField(sourceTypes, { default: 'git' })
  source_type: string = 'git';
  @StrField({ nullable: true, optional: true, description: 'Region; the default region when absent' })
  cluster_id?: string | null;
  @EnumField(gitProviders, { default: 'github' })
  git_provider: string = 'github';
  @StrField({ nullable: true, optional: true })
  git_connection_id?: string | null;
  @StrField({ nullable: true, optional: true })
  github_installation_id?: string | null;
  @StrField({ nullable: true, optional: true })
  gitlab_connection_id?: string | null;
  @StrField({ default: '', max: 500 })
  repo_full_name: string = '';
  @IntField({ default: 0, min: 0, max: Number.MAX_SAFE_INTEGER })
  repo_id: number = 0;
  @StrField({ default: 'main', max: 255 })
  branch: string = 'main';
  @BoolField({ default: true })
  auto_deploy: boolean = true;
  @StrField({ nullable: true, optional: true, max: 500 })
  docker_image?: string | null;
  @StrField({ nullable: true, optional: true, max: 100 })
  framework?: string | null;
  @StrField({ nullable: true, optional: true, max: 40 })
  nodejs_version?: string | null;
  @StrField({ nullable: true, optional: true, max: 500 })
  root_directory?: string | null;
  @StrField({ nullable: true, optional: true, max: 2000 })
  install_command?: string | null;
  @StrField({ nullable: true, optional: true, max: 2000 })
  build_command?: string | null;
  @StrField({ nullable: true, optional: true, max: 2000 })
  start_command?: string | null;
  @StrField({ nullable: true, optional: true, max: 500 })
  output_directory?: string | null;
  @StrField({
    nullable: true,
    optional: true,
    max: 2000,
    description:
      'Runs once in each deployed version before it serves; when it fails, the version does not. For apps that have a server',
  })
  predeploy_command?: string | null;
  @StrField({ nullable: true, optional: true, max: 1000, pattern: readinessPath })
  readiness_path?: string | null;
  @StrField({ nullable: true, optional: true })
  vpc_id?: string | null;
  @IntField({ min: 0, max: 10, default: 0 })
  replica_count: number = 0;
  @IntField({ nullable: true, optional: true, min: 1, max: 8 })
  replica_vcpu?: number | null;
  @IntField({ nullable: true, optional: true, min: 256, max: 8192 })
  replica_memory_mb?: number | null;
  @EnumField(deployStrategies, { default: 'rolling' })
  deploy_strategy: string = 'rolling';
}

/** Body to change an app; unknown fields are refused. */
export class V1AppUpdate {
  @StrField({ nullable: true, optional: true, min: 1, max: 255 })
  name?: string | null;
  @StrField({ nullable: true, optional: true, max: 500 })
  docker_image?: string | null;
  @StrField({
    nullable: true,
    optional: true,
    max: 2000,
    description:
      'Runs once in each deployed version before it serves; when it fails, the version does not. For apps that have a server',
  })
  predeploy_command?: string | null;
  @StrField({ nullable: true, optional: true, max: 1000, pattern: readinessPath })
  readiness_path?: string | null;
  @StrField({ nullable: true, optional: true })
  vpc_id?: string | null;
  @IntField({ nullable: true, optional: true, min: 0, max: 10 })
  replica_count?: number | null;
  @IntField({ nullable: true, optional: true, min: 1, max: 8 })
  replica_vcpu?: number | null;
  @IntField({ nullable: true, optional: true, min: 256, max: 8192 })
  replica_memory_mb?: number | null;
  @EnumField(deployStrategies, { nullable: true, optional: true })
  deploy_strategy?: string | null;
}

/** Body of a deploy; empty for the newest source. */
export class V1DeployRequest {
  @StrField({ nullable: true, optional: true, max: 64 })
  commit_sha?: string | null;
}

/** A started build. */
export class V1AppDeployResult {
  @StrField({ description: 'Id of the build' })
  id!: string;
  @StrField()
  app_id!: string;
  @StrField()
  site_id!: string;
  @StrField()
  status!: string;
}

/** One build of an app. */
export class V1Build {
  @StrField()
  id!: string;
  @StrField()
  app_id!: string;
  @StrField()
  status!: string;
  @StrField({ nullable: true, optional: true })
  deploy_state!: string | null;
  @StrField({ nullable: true, optional: true })
  commit_sha!: string | null;
  @StrField({ nullable: true, optional: true })
  commit_message!: string | null;
  @StrField({ nullable: true, optional: true })
  commit_author!: string | null;
  @StrField({ nullable: true, optional: true, description: 'Branch that the commit was taken from' })
  branch!: string | null;
  @StrField({ nullable: true, optional: true })
  docker_image!: string | null;
  @StrField({ nullable: true, optional: true })
  docker_image_digest!: string | null;
  @IntField({ nullable: true, optional: true })
  source_archive_bytes!: number | null;
  @StrField({ nullable: true, optional: true })
  source_archive_sha256!: string | null;
  @StrField({ nullable: true, optional: true })
  error!: string | null;
  @StrField({ nullable: true, optional: true })
  boot_error!: string | null;
  @IntField({ nullable: true, optional: true })
  duration_ms!: number | null;
  @TimeField({ nullable: true, optional: true })
  created_at!: string | null;
  @TimeField({ nullable: true, optional: true })
  finished_at!: string | null;
}

/** An environment variable; the value of a secret is masked. */
export class V1EnvVar {
  @StrField()
  id!: string;
  @StrField()
  name!: string;
  @StrField()
  value!: string;
  @BoolField()
  is_secret!: boolean;
  @TimeField({ nullable: true, optional: true })
  created_at!: string | null;
}

/** Body to create or set an environment variable. */
export class V1EnvVarCreate {
  @StrField({
    min: 1,
    max: 255,
    pattern: envName,
    rule: 'must be letters, digits and underscores, and not begin with a digit: shells pass on no others',
  })
  name!: string;
  @StrField({ min: 1, max: 65_536 })
  value!: string;
  @BoolField({ default: false })
  is_secret: boolean = false;
}

/** A domain of an app. */
export class V1AppDomain {
  @StrField()
  id!: string;
  @StrField()
  app_id!: string;
  @StrField()
  domain!: string;
  @StrField({
    nullable: true,
    optional: true,
    description: 'Where it is served, with the port of this installation; null for a wildcard',
  })
  url!: string | null;
  @StrField()
  status!: string;
  @StrField({ default: 'current' })
  type!: string;
  @BoolField({ default: false })
  is_default!: boolean;
  @StrField({ nullable: true, optional: true })
  build_id!: string | null;
  @BoolField({ default: false })
  dns_configured!: boolean;
  @StrField({ nullable: true, optional: true })
  target_ip!: string | null;
  @StrField({ nullable: true, optional: true })
  certificate_id!: string | null;
  @StrField({ nullable: true, optional: true })
  error!: string | null;
  @TimeField({ nullable: true, optional: true })
  created_at!: string | null;
}

/** Words of `V1AppDomain.status`. */
export const domainStatuses = ['pending', 'active', 'error'] as const;

/** Body of a new custom domain. */
export class V1DomainCreate {
  @StrField({
    min: 1,
    max: 255,
    description: 'Name, or `*.` and a name; international ones in either spelling',
    example: 'shop.example.com',
  })
  domain!: string;
  @BoolField({
    default: false,
    description: 'Replace address records that stand at the name in a DNS zone of the account',
  })
  override_dns: boolean = false;
  @BoolField({ default: false, description: 'Order no certificate for the name' })
  skip_certificate: boolean = false;
}

/** Words of `V1Certificate.status`. */
export const certificateStatuses = ['pending', 'issued', 'error'] as const;

/** A certificate of a custom domain. Its key is never shown. */
export class V1Certificate {
  @StrField()
  id!: string;
  @StrField()
  primary_domain!: string;
  @StringsField()
  domains!: string[];
  @StrField()
  status!: string;
  @StrField({
    nullable: true,
    optional: true,
    description: 'http-01 or dns-01; null when the edge makes it by its own CA',
  })
  challenge_type!: string | null;
  @TimeField({ declared: true, nullable: true, optional: true })
  not_before!: string | null;
  @TimeField({ declared: true, nullable: true, optional: true })
  not_after!: string | null;
  @TimeField({ declared: true, nullable: true, optional: true })
  created_at!: string | null;
}

/** One event of an app's deploy status stream: the state of the build that is watched. */
export class V1DeployEvent {
  @StrField()
  build_id!: string;
  @StrField({
    description:
      'queued, building, built, rolling, live; cancelled, build_failed, or the failing word of deploy_state',
  })
  state!: string;
  @StrField({ nullable: true, description: 'Why it failed' })
  reason!: string | null;
  @StrField()
  status!: string;
  @StrField({ nullable: true })
  deploy_state!: string | null;
  @StrField({ nullable: true })
  error!: string | null;
  @StrField({ nullable: true })
  boot_error!: string | null;
}
