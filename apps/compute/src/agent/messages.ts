import type { BackupFacts, BackupState, MachineFacts, MachineState } from '@nebo/contracts';
import { idOrNull, isSha256, validationError } from '@nebo/service-kit';

interface Seen {
  id: string;
  generation: number;
  reason: string | null;
  /** RFC 3339. */
  at: string;
}

/** What an agent saw of a machine, checked. */
export interface ObservedMachine extends Seen {
  kind: 'vm';
  state: MachineState;
  facts: MachineFacts;
}

/** The same of a backup; facts come with `ready` only. */
export interface ObservedBackup extends Seen {
  kind: 'backup';
  state: BackupState;
  facts: BackupFacts | null;
}

const states: Readonly<Record<string, readonly unknown[]>> = {
  vm: ['creating', 'starting', 'running', 'stopping', 'stopped', 'failed', 'gone'] satisfies MachineState[],
  backup: ['creating', 'ready', 'failed', 'gone'] satisfies BackupState[],
};

const maxItems = 1_000;

function refuse(loc: (string | number)[], msg: string): never {
  throw validationError([{ loc: ['body', ...loc], msg, type: 'value_error' }]);
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isTime = (value: unknown): value is string =>
  typeof value === 'string' &&
  /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/.test(value) &&
  !Number.isNaN(Date.parse(value));
const isCount = (value: unknown): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 2_147_483_647;

/** Checked by hand: a batch may hold thousands. @throws ApiError 422 naming the item */
export function parseObserved(body: unknown): (ObservedMachine | ObservedBackup)[] {
  const list = isObject(body) ? body['items'] : undefined;
  if (!Array.isArray(list)) refuse(['items'], 'must be a list');
  if (list.length > maxItems) refuse(['items'], `must have at most ${maxItems} items`);
  return list.map((item: unknown, index): ObservedMachine | ObservedBackup => {
    const at = (field: string) => ['items', index, field];
    if (!isObject(item)) refuse(['items', index], 'must be an object');
    const { kind, id, generation, state, reason } = item;
    if (kind !== 'vm' && kind !== 'backup') refuse(at('kind'), 'must be vm or backup');
    const known = typeof id === 'string' ? idOrNull(id) : null;
    if (known === null) refuse(at('id'), 'must be an id');
    if (!isCount(generation)) refuse(at('generation'), 'must be a whole number');
    if (!states[kind]!.includes(state)) refuse(at('state'), `must be one of ${states[kind]!.join(', ')}`);
    if (reason !== null && reason !== undefined && typeof reason !== 'string')
      refuse(at('reason'), 'must be a text or null');
    if (!isTime(item['at'])) refuse(at('at'), 'must be a time in RFC 3339');
    const seen: Seen = {
      id: known,
      generation,
      reason:
        typeof reason === 'string' ? reason.replaceAll('\0', '\ufffd').slice(0, 4_000).toWellFormed() : null,
      // Written anew: JavaScript takes dates that PostgreSQL refuses (30 February).
      at: new Date(item['at']).toISOString(),
    };
    const facts = isObject(item['facts']) ? item['facts'] : {};
    if (kind === 'vm') return { ...seen, kind, state: state as MachineState, facts: factsOf(facts) };
    const made = state === 'ready' ? backupFactsOf(facts, at('facts')) : null;
    return { ...seen, kind, state: state as BackupState, facts: made };
  });
}

/** What a backup is must be said whole: bytes will be looked for by it. @throws ApiError 422 */
function backupFactsOf(facts: Record<string, unknown>, loc: (string | number)[]): BackupFacts {
  const { driver, real, blob, consistency } = facts;
  if (!isObject(blob) || typeof blob['sha256'] !== 'string' || !isSha256(blob['sha256']))
    refuse([...loc, 'blob', 'sha256'], 'must be 64 lower-case hex digits');
  const bytes = blob['bytes'];
  if (typeof bytes !== 'number' || !Number.isSafeInteger(bytes) || bytes < 1)
    refuse([...loc, 'blob', 'bytes'], 'must be a whole number of bytes');
  if (consistency !== 'frozen' && consistency !== 'crash' && consistency !== 'stopped')
    refuse([...loc, 'consistency'], 'must be frozen, crash or stopped');
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
    started_at: isTime(started_at) ? new Date(started_at).toISOString() : null,
    guest_agent: guest_agent === 'connected' || guest_agent === 'absent' ? guest_agent : null,
    restored: isCount(restored) ? restored : 0,
    vcpu: isCount(vcpu) ? vcpu : 0,
    memory_mb: isCount(memory_mb) ? memory_mb : 0,
    disk_gb: isCount(disk_gb) ? disk_gb : 0,
  };
}
