import { type Owner, type V1VMCreate, type V1VMInterface, vmPeriodMonths } from '@nebo/contracts';
import { badRequest, conflict, fieldError } from '@nebo/service-kit';
import type { Image, Plan } from '../catalogue/catalogue.service.js';
import type { Period } from '../catalogue/prices.js';

/** Name of a machine as it is compared: without case and Unicode form. */
export const nameKey = (name: string): string => name.normalize('NFKC').toLowerCase();

/** What an order gets that names no interface. */
export const defaultInterface: V1VMInterface = {
  type: 'vpc',
  floating_ip: false,
  dhcp4: true,
  enable_ipv4: true,
  enable_ipv6: false,
};

/** @throws ApiError 400 `interface_not_offered` */
export function checkInterfaces(interfaces: readonly V1VMInterface[]): void {
  for (const { type } of interfaces)
    if (type === 'public')
      throw badRequest('interface_not_offered', 'interfaces of type public are not offered; use vpc');
}

/** A machine's private network lies where the machine does. @throws ApiError 400 `vpc_region_mismatch` */
export function checkRegion({ region_id }: Owner, machine: string): void {
  if (region_id !== undefined && region_id !== machine)
    throw badRequest(
      'vpc_region_mismatch',
      'interfaces.vpc_id: the VPC lies in another region than the machine',
    );
}

/**
 * The period that is paid: one month when nothing is said, none for a machine that is billed by the second.
 * @throws ApiError 422 naming the field
 */
export function periodOf(body: V1VMCreate): Period | null {
  const { period_days, period_months, ephemeral, backup_count } = body;
  if (ephemeral) {
    const paid = 'must be absent: an ephemeral machine is billed by the second';
    if (period_days != null) throw fieldError('period_days', paid);
    if (period_months != null) throw fieldError('period_months', paid);
    if (backup_count > 0) throw fieldError('backup_count', 'must be 0: an ephemeral machine has no backups');
    return null;
  }
  if (period_days != null && period_months != null)
    throw fieldError('period_days', 'give period_days or period_months, not both');
  if (period_days != null) return { days: period_days };
  const months = period_months ?? 1;
  if (!(vmPeriodMonths as readonly number[]).includes(months))
    throw fieldError('period_months', `must be one of ${vmPeriodMonths.join(', ')}`);
  return { months };
}

/** Size within the plan: a smaller one costs the same; more disk than the plan has is paid per GB. @throws ApiError 422 */
export function sizeOf({ vcpu, mem, disk_size_gb }: V1VMCreate, plan: Plan, image: Image) {
  const limit = (field: string, value: number, min: number, max: number, unit: string) => {
    if (value < min || value > max)
      throw fieldError(field, `must be ${min} to ${max}${unit} with the plan ${plan.name} and this image`);
    return value;
  };
  return {
    vcpu: limit('vcpu', vcpu ?? plan.vcpu, 1, plan.vcpu, ''),
    memory_mb: limit('mem', mem ?? plan.memory_mb, Math.min(128, plan.memory_mb), plan.memory_mb, ' MB'),
    disk_gb: limit('disk_size_gb', disk_size_gb ?? plan.disk_gb, image.min_disk_gb, plan.max_disk_gb, ' GB'),
  };
}

export const nameIsTaken = (name: string) =>
  conflict('name_taken', `a machine named "${name}" exists in this project`);

/** What the unique index refused, in the contract's words; everything else as it is. */
export function nameTaken(error: unknown, name: string): unknown {
  const { code, constraint } = (error ?? {}) as { code?: string; constraint?: string };
  return code === '23505' && constraint === 'vm_name' ? nameIsTaken(name) : error;
}
