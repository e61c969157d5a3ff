import type { MachineFacts, MachineState } from '@nebo/contracts';
import { idOrNull, validationError } from '@nebo/service-kit';

/** What an agent saw of a machine, checked. */
export interface ObservedMachine {
  id: string;
  generation: number;
  state: MachineState;
  reason: string | null;
  facts: MachineFacts;
  /** RFC 3339. */
  at: string;
}

const states: readonly unknown[] = [
  'creating',
  'starting',
  'running',
  'stopping',
  'stopped',
  'failed',
  'gone',
] satisfies MachineState[];

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
export function parseObserved(body: unknown): ObservedMachine[] {
  const list = isObject(body) ? body['items'] : undefined;
  if (!Array.isArray(list)) refuse(['items'], 'must be a list');
  if (list.length > maxItems) refuse(['items'], `must have at most ${maxItems} items`);
  return list.map((item: unknown, index) => {
    const at = (field: string) => ['items', index, field];
    if (!isObject(item)) refuse(['items', index], 'must be an object');
    const { kind, id, generation, state, reason, facts } = item;
    if (kind !== 'vm') refuse(at('kind'), 'must be vm');
    const known = typeof id === 'string' ? idOrNull(id) : null;
    if (known === null) refuse(at('id'), 'must be an id');
    if (!isCount(generation)) refuse(at('generation'), 'must be a whole number');
    if (!states.includes(state)) refuse(at('state'), `must be one of ${states.join(', ')}`);
    if (reason !== null && reason !== undefined && typeof reason !== 'string')
      refuse(at('reason'), 'must be a text or null');
    if (!isTime(item['at'])) refuse(at('at'), 'must be a time in RFC 3339');
    return {
      id: known,
      generation,
      state: state as MachineState,
      reason: typeof reason === 'string' ? reason.replaceAll('\0', '\ufffd').slice(0, 4_000) : null,
      facts: factsOf(isObject(facts) ? facts : {}),
      // Written anew: JavaScript takes dates that PostgreSQL refuses (30 February).
      at: new Date(item['at']).toISOString(),
    };
  });
}

/** Only what is known of, in its form: it is shown to users. */
function factsOf({ driver, real, boot, started_at, guest_agent }: Record<string, unknown>): MachineFacts {
  return {
    driver: typeof driver === 'string' ? driver.replaceAll('\0', '').slice(0, 63) : 'unknown',
    real: real === true,
    boot: isCount(boot) ? boot : 0,
    started_at: isTime(started_at) ? new Date(started_at).toISOString() : null,
    guest_agent: guest_agent === 'connected' || guest_agent === 'absent' ? guest_agent : null,
  };
}
