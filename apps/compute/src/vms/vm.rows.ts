import type { MachineFacts, MachineState } from '@nebo/contracts';
import type { Sql } from '@nebo/persistence';

/** Where a machine's life stands; the states of `vm.lifecycle.ts`. */
export type VmPhase =
  | 'ordered'
  | 'attaching'
  | 'provisioning'
  | 'living'
  | 'changing'
  | 'overdue'
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
  paid_until: Date | null;
  refunded: boolean;
  phase: VmPhase;
  reason: string | null;
  provisioned_at: Date | null;
  power: 'running' | 'stopped';
  boot: number;
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

/** The columns of `VmRow`, from `vm v`. */
export const vmColumns = `v.id, v.account_id, v.project_id, v.region_id, v.image_id, v.plan_id, v.name, v.hostname, v.vcpu,
  v.memory_mb, v.disk_gb, v.install_guest_agent, v.auto_renew, v.backup_count, v.period_months, v.period_days, v.paid_until, v.refunded,
  v.phase, v.reason, v.provisioned_at, v.power, v.boot, v.deleted_at, v.unlisted, v.admitted, v.handed, v.gone,
  v.generation, v.observed_generation, v.observed_state, v.observed_reason, v.observed_facts, v.observed_at, v.created_at,
  (select coalesce(json_agg(json_build_object('id', i.id, 'position', i.position, 'wanted_vpc_id', i.wanted_vpc_id,
     'vpc_id', i.vpc_id, 'mac', i.mac, 'address', i.address) order by i.position), '[]')
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
