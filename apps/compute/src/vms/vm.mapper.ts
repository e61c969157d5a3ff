import type { V1VM, VmStatus } from '@nebo/contracts';
import { isExpired } from './period.lifecycle.js';
import type { VmRow } from './vm.rows.js';

/** What decides the status of a machine. */
export type StatusFacts = Pick<
  VmRow,
  | 'phase'
  | 'power'
  | 'boot'
  | 'deleted_at'
  | 'generation'
  | 'observed_generation'
  | 'observed_state'
  | 'observed_facts'
>;

/** Ends at which nobody waits any longer for another word (4-client-behaviours.md, 2). */
export const badVmStatuses: readonly string[] = ['error', 'failed', 'deleting'] satisfies VmStatus[];

/**
 * The status word: made of what is wanted and what was observed, and kept nowhere, so that a power action shows at once
 * and an old observation can never pass for a new one.
 */
export function statusOf(vm: StatusFacts): VmStatus {
  if (vm.deleted_at !== null) return 'deleting';
  switch (vm.phase) {
    case 'ordered':
    case 'attaching':
      return 'pending';
    case 'provisioning':
      return 'provisioning';
    case 'refunding':
    case 'error':
      return 'error';
    default:
      return powerStatus(vm);
  }
}

function powerStatus(vm: StatusFacts): VmStatus {
  const seen = vm.observed_generation === vm.generation ? vm.observed_state : null;
  if (seen === 'failed') return 'failed';
  if (vm.power === 'stopped') return seen === 'stopped' ? 'stopped' : 'stopping';
  const booted = vm.observed_facts?.boot ?? 0;
  if (seen === 'running' && booted >= vm.boot) return 'active';
  return booted < vm.boot && vm.boot > 1 && vm.observed_state !== 'stopped' ? 'restarting' : 'starting';
}

/** Whether the region has made what is wanted, or has given up on it. */
export const isSettled = (vm: StatusFacts): boolean => ['active', 'stopped', 'failed'].includes(statusOf(vm));

/** A machine as the contract shows it. */
export function vmRecord(vm: VmRow): V1VM {
  const status = statusOf(vm);
  const attached = vm.interfaces.filter(({ address }) => address !== null);
  return {
    id: vm.id,
    name: vm.name,
    hostname: vm.hostname,
    status,
    project_id: vm.project_id,
    vcpu: vm.vcpu,
    mem: vm.memory_mb,
    disk_size: vm.disk_gb,
    ephemeral: false,
    interfaces: attached.map((port) => ({
      id: port.id,
      name: `eth${port.position}`,
      type: 'vpc',
      mac: port.mac!,
      ipv4_addresses: [port.address!],
      vpc_id: port.vpc_id,
    })),
    floating_ips: [],
    ipv4_addresses: attached.map(({ address }) => address!),
    install_guest_agent: vm.install_guest_agent,
    guest_agent_state: status === 'active' ? (vm.observed_facts?.guest_agent ?? null) : null,
    guest_agent_checked_at:
      status === 'active' && vm.observed_facts?.guest_agent ? (vm.observed_at?.toISOString() ?? null) : null,
    image_id: vm.image_id,
    vm_plan_id: vm.plan_id,
    cluster_id: vm.region_id,
    // What could not be made is paid back, and counts as unpaid before that is done.
    paid_until: status === 'error' ? null : (vm.paid_until?.toISOString() ?? null),
    auto_renew: vm.auto_renew,
    status_reason: reasonOf(vm, status),
    created_at: vm.created_at.toISOString(),
    simulated: vm.observed_facts?.real === undefined ? null : !vm.observed_facts.real,
  };
}

/** The region's word on a failure, otherwise that of the life; a bad status never comes without one. */
function reasonOf(vm: VmRow, status: VmStatus): string | null {
  if (status === 'failed') return vm.observed_reason ?? 'the region could not run it and did not say why';
  if (status === 'error') return vm.reason ?? 'the machine could not be made';
  if (status === 'stopped' && isExpired(vm))
    return 'The paid period has ended; start it with renew to pay the next one.';
  if (status === 'active' || status === 'stopped') return null;
  return vm.reason;
}
