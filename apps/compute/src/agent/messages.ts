import type { BackupFacts, BackupState, MachineFacts, MachineState } from '@nebo/contracts';
import {
  isCount,
  isItem,
  isSha256,
  itemsOf,
  refuseItem,
  type Seen,
  seenOf,
  timeOrNull,
} from '@nebo/service-kit';

/** What an agent saw of a machine, checked. */
export interface ObservedMachine extends Seen<'vm'> {
  state: MachineState;
  facts: MachineFacts;
}

/** The same of a backup; facts come with `ready` only. */
export interface ObservedBackup extends Seen<'backup'> {
  state: BackupState;
  facts: BackupFacts | null;
}

const states = {
  vm: ['creating', 'starting', 'running', 'stopping', 'stopped', 'failed', 'gone'] satisfies MachineState[],
  backup: ['creating', 'ready', 'failed', 'gone'] satisfies BackupState[],
} as const;

const maxItems = 1_000;

/** @throws ApiError 422 naming the item */
export function parseObserved(body: unknown): (ObservedMachine | ObservedBackup)[] {
  return itemsOf(body, 'items', maxItems).map((item, index): ObservedMachine | ObservedBackup => {
    const { seen, facts } = seenOf(item, index, states);
    if (seen.kind === 'vm')
      return { ...seen, kind: 'vm', state: seen.state as MachineState, facts: factsOf(facts) };
    const made = seen.state === 'ready' ? backupFactsOf(facts, ['items', index, 'facts']) : null;
    return { ...seen, kind: 'backup', state: seen.state as BackupState, facts: made };
  });
}

/** What a backup is must be said whole: bytes will be looked for by it. @throws ApiError 422 */
function backupFactsOf(facts: Record<string, unknown>, loc: (string | number)[]): BackupFacts {
  const { driver, real, blob, consistency } = facts;
  if (!isItem(blob) || typeof blob['sha256'] !== 'string' || !isSha256(blob['sha256']))
    refuseItem([...loc, 'blob', 'sha256'], 'must be 64 lower-case hex digits');
  const bytes = blob['bytes'];
  if (typeof bytes !== 'number' || !Number.isSafeInteger(bytes) || bytes < 1)
    refuseItem([...loc, 'blob', 'bytes'], 'must be a whole number of bytes');
  if (consistency !== 'frozen' && consistency !== 'crash' && consistency !== 'stopped')
    refuseItem([...loc, 'consistency'], 'must be frozen, crash or stopped');
  return {
    driver: driverOf(driver),
    real: real === true,
    blob: { sha256: blob['sha256'], bytes },
    consistency,
  };
}

const driverOf = (driver: unknown): string =>
  typeof driver === 'string' ? driver.replaceAll('\0', '').slice(0, 63) : 'unknown';

/** Only what is known of, in its form: it is shown to users. */
function factsOf(facts: Record<string, unknown>): MachineFacts {
  const { driver, real, boot, started_at, guest_agent, restored, vcpu, memory_mb, disk_gb } = facts;
  return {
    driver: driverOf(driver),
    real: real === true,
    boot: isCount(boot) ? boot : 0,
    started_at: timeOrNull(started_at),
    guest_agent: guest_agent === 'connected' || guest_agent === 'absent' ? guest_agent : null,
    restored: isCount(restored) ? restored : 0,
    vcpu: isCount(vcpu) ? vcpu : 0,
    memory_mb: isCount(memory_mb) ? memory_mb : 0,
    disk_gb: isCount(disk_gb) ? disk_gb : 0,
  };
}
