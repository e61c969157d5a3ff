import type { MachineFacts, MachineState, V1VMFloatingIP } from '@nebo/contracts';
import type { Sql } from '@nebo/persistence';

/** Where a machine's life stands; the states of `vm.lifecycle.ts`. */
export type VmPhase =
  | 'ordered'
  | 'queued'
  | 'attaching'
  | 'provisioning'
  | 'living'
  | 'changing'
  | 'overdue'
  | 'restoring'
  | 'refunding'
  | 'error'
  | 'removing'
  | 'remains'
  | 'releasing'
  | 'settling';

/** An interface: what was ordered, and the port that it got. */
export interface InterfaceRow {
  id: string;
  position: number;
  wanted_vpc_id: string | null;
  vpc_id: string | null;
  mac: string | null;
  address: string | null;
  /** Whether a floating IP of its own was ordered with it; its id, and what it was when it was attached. */
  floating_ip: boolean;
  fip_id: string | null;
  fip: V1VMFloatingIP | null;
}

/** A machine with its interfaces. */
export interface VmRow {
  id: string;
  account_id: string;
  project_id: string;
  region_id: string;
  image_id: string;
  plan_id: string;
  name: string;
  hostname: string;
  vcpu: number;
  memory_mb: number;
  disk_gb: number;
  install_guest_agent: boolean;
  auto_renew: boolean;
  backup_count: number;
  period_months: number | null;
  period_days: number | null;
  /** 10⁻⁹ rubles of the first period. */
  amount: string;
  ephemeral: boolean;
  /** Has its place in the region. */
  placed: boolean;
  /** Could not be made, and its place and addresses are given back. */
  cleared: boolean;
  /** The generation since which nothing but its size has changed. */
  power_generation: number;
  /** Its account is suspended; `power` is `stopped` then, whatever its owner chose. */
  suspended: boolean;
  paid_from: Date | null;
  paid_until: Date | null;
  refunded: boolean;
  phase: VmPhase;
  reason: string | null;
  provisioned_at: Date | null;
  power: 'running' | 'stopped';
  boot: number;
  /** Rises with every restore of a backup into it, 0 for none. */
  restore_number: number;
  /** The region has not yet said that it is done. */
  restoring: boolean;
  deleted_at: Date | null;
  unlisted: boolean;
  admitted: boolean;
  handed: boolean;
  gone: boolean;
  generation: number;
  observed_generation: number | null;
  observed_state: MachineState | null;
  observed_reason: string | null;
  observed_facts: Partial<MachineFacts> | null;
  observed_at: Date | null;
  created_at: Date;
  interfaces: InterfaceRow[];
}

/** What a machine of `vm v` shall be: stopped while its account is suspended, otherwise as its owner chose. */
export const effectivePower = "case when v.suspended then 'stopped' else v.power end";

/** The columns of `VmRow`, from `vm v`. */
export const vmColumns = `v.id, v.account_id, v.project_id, v.region_id, v.image_id, v.plan_id, v.name, v.hostname, v.vcpu,
  v.memory_mb, v.disk_gb, v.install_guest_agent, v.auto_renew, v.backup_count, v.period_months, v.period_days, v.paid_until, v.refunded,
  v.amount::text as amount, v.ephemeral, v.placed, v.cleared, v.power_generation, v.suspended, v.paid_from,
  v.phase, v.reason, v.provisioned_at, ${effectivePower} as power, v.boot, v.restore_number,
  v.restore_sha256 is not null as restoring, v.deleted_at, v.unlisted, v.admitted, v.handed, v.gone,
  v.generation, v.observed_generation, v.observed_state, v.observed_reason, v.observed_facts, v.observed_at, v.created_at,
  (select coalesce(json_agg(json_build_object('id', i.id, 'position', i.position, 'wanted_vpc_id', i.wanted_vpc_id,
     'vpc_id', i.vpc_id, 'mac', i.mac, 'address', i.address, 'floating_ip', i.floating_ip, 'fip_id', i.fip_id, 'fip', i.fip) order by i.position), '[]')
   from vm_interface i where i.vm_id = v.id) as interfaces`;

/** A machine, also one that is not listed any more. */
export async function readVm(tx: Sql, id: string): Promise<VmRow | null> {
  const [row] = await tx.query<VmRow>(`select ${vmColumns} from vm v where v.id = $1::uuid`, [id]);
  return row ?? null;
}

/**
 * A machine of an account that is listed, locked until the transaction ends.
 * @param projectId null by the flat path; otherwise the machine must lie in it
 */
export async function lockVm(
  tx: Sql,
  account: string,
  projectId: string | null,
  id: string,
): Promise<VmRow | null> {
  const [row] = await tx.query<VmRow>(
    `select ${vmColumns} from vm v where v.id = $1::uuid and v.account_id = $2::uuid and not v.unlisted
       and ($3::uuid is null or v.project_id = $3::uuid) for update of v`,
    [id, account, projectId],
  );
  return row ?? null;
}
