import type { V1VM, VmStatus } from '@nebo/contracts';
import { isExpired } from './period.lifecycle.js';
import type { VmRow } from './vm.rows.js';

/** What decides the status of a machine. */
export type StatusFacts = Pick<
  VmRow,
  | 'phase'
  | 'power'
  | 'boot'
  | 'restoring'
  | 'deleted_at'
  | 'generation'
  | 'power_generation'
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
    case 'queued':
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
  // A larger size that the region has not heard of yet changes nothing of what it said.
  const seen = (vm.observed_generation ?? 0) >= vm.power_generation ? vm.observed_state : null;
  if (seen === 'failed') return 'failed';
  if (vm.restoring) return 'restoring';
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
    ephemeral: vm.ephemeral,
    interfaces: attached.map((port) => ({
      id: port.id,
      name: `eth${port.position}`,
      type: 'vpc',
      mac: port.mac!,
      ipv4_addresses: [port.address!],
      vpc_id: port.vpc_id,
    })),
    floating_ips: attached.flatMap(({ fip }) => (fip ? [fip] : [])),
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
  if (['stopping', 'stopped'].includes(status) && vm.suspended)
    return 'The balance is used up: the machine is stopped, and kept for a while. A top-up starts it again.';
  if (status === 'active') return sizeReasonOf(vm);
  if (status === 'stopped') return null;
  return vm.reason;
}

/** What the region has not made of the machine's size yet. */
function sizeReasonOf({ vcpu, memory_mb, disk_gb, observed_facts }: VmRow): string | null {
  const real = { vcpu: 0, memory_mb: 0, disk_gb: 0, ...observed_facts };
  if (real.disk_gb > 0 && real.disk_gb < disk_gb)
    return `Its disk has ${real.disk_gb} GB and is being enlarged.`;
  if (real.vcpu > 0 && (real.vcpu !== vcpu || real.memory_mb !== memory_mb))
    return `It runs with ${real.vcpu} processors and ${real.memory_mb} MB until its next start.`;
  return null;
}
