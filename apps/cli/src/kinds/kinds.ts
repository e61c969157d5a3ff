import { type Column } from '../output/table.js';

/** A record of the API, as far as every command needs it. */
export type Row = Record<string, unknown>;

/** A kind of thing: where it is listed, and what people call one. */
export interface Kind {
  /** Path of its list; ids of what it lies in stand in braces. */
  list: string;
  /** The id of one in paths. */
  id: string;
  /** Fields by which one may be named beside its id. */
  names: readonly string[];
  columns: readonly Column<Row>[];
}

const text = (...keys: string[]): Column<Row>[] => keys.map((key) => ({ key }));
const wide = (...keys: string[]): Column<Row>[] => keys.map((key) => ({ key, wide: true }));

/** Every kind that commands of the table are about, by the word that stands for one in their usage. */
export const kinds = {
  APP: { list: '/apps', id: 'app_id', names: ['name'], columns: text('name', 'status', 'id') },
  PROJECT: { list: '/projects', id: 'project_id', names: ['name'], columns: text('name', 'id') },
  ZONE: {
    list: '/dns/zones',
    id: 'zone_id',
    names: ['name'],
    columns: [...text('name', 'status', 'default_ttl', 'id'), ...wide('status_reason', 'nameservers')],
  },
  RECORD: {
    list: '/dns/zones/{zone_id}/dns_records',
    id: 'record_id',
    names: ['name'],
    columns: [...text('name', 'type', 'ttl', 'content', 'managed'), ...wide('id')],
  },
  DOMAIN: {
    list: '/apps/{app_id}/domains',
    id: 'domain_id',
    names: ['domain'],
    columns: [
      ...text('domain', 'status', 'type', 'is_default', 'target_ip'),
      ...wide('error', 'certificate_id', 'id'),
    ],
  },
  CERTIFICATE: {
    list: '/certificates',
    id: 'certificate_id',
    names: ['primary_domain'],
    columns: [...text('primary_domain', 'status', 'not_after', 'challenge_type'), ...wide('domains', 'id')],
  },
  JOB: {
    list: '/apps/{app_id}/jobs',
    id: 'job_id',
    names: ['name'],
    columns: [
      ...text('name', 'schedule', 'enabled', 'last_run.status', 'command'),
      ...wide('timeout_seconds', 'id'),
    ],
  },
  RUN: {
    list: '/apps/{app_id}/job-runs',
    id: 'run_id',
    names: [],
    columns: [
      ...text('id', 'status', 'exit_code', 'duration_ms', 'started_at', 'triggered_by'),
      ...wide('job_id', 'error'),
    ],
  },
  CONNECTION: {
    list: '/git/connections',
    id: 'connection_id',
    names: ['name', 'login'],
    columns: [
      ...text('name', 'provider', 'login', 'auth', 'status', 'id'),
      ...wide('base_url', 'status_reason'),
    ],
  },
  VM: {
    list: '/vms',
    id: 'vm_id',
    names: ['name'],
    columns: [
      ...text('name', 'status', 'vcpu', 'mem', 'ipv4_addresses', 'id'),
      ...wide('status_reason', 'paid_until', 'project_id'),
    ],
  },
  BACKUP: {
    list: '/vms/{vm_id}/backups',
    id: 'backup_id',
    names: ['name'],
    columns: [...text('name', 'status', 'size_bytes', 'created_at', 'id'), ...wide('consistency', 'error')],
  },
  VPC: {
    list: '/vpcs',
    id: 'vpc_id',
    names: ['name'],
    columns: [
      ...text('name', 'subnet', 'status', 'is_default', 'nat_gateway.status', 'id'),
      ...wide('cluster_id', 'status_reason'),
    ],
  },
  ADDRESS: {
    list: '/vpcs/{vpc_id}/reserved-ips',
    id: 'ip_id',
    names: ['name', 'address'],
    columns: text('name', 'address', 'mac', 'id'),
  },
  IP: {
    list: '/floating-ips',
    id: 'fip_id',
    names: ['address', 'name'],
    columns: [
      ...text('address', 'name', 'status', 'target_kind', 'monthly_price', 'id'),
      ...wide('vm_id', 'vpc_id', 'last_error'),
    ],
  },
  KEY: { list: '/ssh-keys', id: 'key_id', names: ['name'], columns: text('name', 'fingerprint', 'id') },
  REGION: { list: '/regions', id: 'cluster_id', names: ['name'], columns: text('name', 'is_default', 'id') },
  PLAN: {
    list: '/vm-plans',
    id: 'vm_plan_id',
    names: ['name'],
    columns: [
      ...text('name', 'vcpu', 'mem', 'disk_size', 'monthly_price', 'id'),
      ...wide('max_disk_size', 'hourly_price'),
    ],
  },
  IMAGE: {
    list: '/projects/{project_id}/images',
    id: 'image_id',
    names: ['name'],
    columns: text('name', 'id'),
  },
  BUILD: {
    list: '/apps/{app_id}/builds',
    id: 'build_id',
    names: [],
    columns: text('id', 'status', 'deploy_state'),
  },
  REPOSITORY: {
    list: '/git/connections/{connection_id}/repositories',
    id: 'repository_id',
    names: ['full_name'],
    columns: text('full_name', 'default_branch', 'private'),
  },
  DELIVERY: {
    list: '/apps/{app_id}/deliveries',
    id: 'delivery_id',
    names: [],
    columns: [
      ...text('received_at', 'event', 'branch', 'outcome', 'reason'),
      ...wide('commit_sha', 'build_id', 'repeats'),
    ],
  },
} as const satisfies Record<string, Kind>;

export type KindWord = keyof typeof kinds;

/** Fields of bodies and queries that name another thing: their flag, and whose name may stand there. */
export const references: Readonly<Record<string, { flag: string; kind: KindWord }>> = {
  cluster_id: { flag: 'region', kind: 'REGION' },
  vm_plan_id: { flag: 'plan', kind: 'PLAN' },
  image_id: { flag: 'image', kind: 'IMAGE' },
  vpc_id: { flag: 'vpc', kind: 'VPC' },
  ssh_key_ids: { flag: 'ssh-key', kind: 'KEY' },
  fip_id: { flag: 'ip', kind: 'IP' },
  job_id: { flag: 'job', kind: 'JOB' },
};
