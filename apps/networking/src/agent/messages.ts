import type { Observed, VpcState } from '@nebo/contracts';
import { idOrNull, validationError } from '@nebo/service-kit';
import type { ObservedAddresses } from '../shared/region-word.js';

const states: readonly unknown[] = ['active', 'error', 'gone'] satisfies VpcState[];
const maxItems = 5_000;

/** An observation of a VPC, with what it says of floating IPs; null when it says nothing. */
export type ObservedVpc = Omit<Observed, 'facts' | 'state'> & {
  state: VpcState;
  addresses: ObservedAddresses | null;
};

function refuse(loc: (string | number)[], msg: string): never {
  throw validationError([{ loc: ['body', ...loc], msg, type: 'value_error' }]);
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** A time in RFC 3339, written anew: JavaScript takes dates that PostgreSQL refuses (30 February). */
function timeOf(value: unknown): string | null {
  const shape = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/;
  if (typeof value !== 'string' || !shape.test(value) || Number.isNaN(Date.parse(value))) return null;
  return new Date(value).toISOString();
}

const clean = (text: string) => text.replaceAll('\0', '\ufffd').slice(0, 4_000).toWellFormed();

/** What facts say of floating IPs. Facts are free: what is not as `VpcFacts` says it is not understood, never refused. */
function addressesOf(facts: unknown): ObservedAddresses | null {
  if (!isObject(facts) || !Array.isArray(facts['floating_ips'])) return null;
  const idOf = (value: unknown) => (typeof value === 'string' ? idOrNull(value) : null);
  const faults: Record<string, string> = {};
  for (const [key, reason] of Object.entries(isObject(facts['faults']) ? facts['faults'] : {})) {
    const id = idOrNull(key);
    if (id !== null && typeof reason === 'string') faults[id] = clean(reason);
  }
  const floating_ips = (facts['floating_ips'] as unknown[]).map(idOf).filter((id) => id !== null);
  return { floating_ips: floating_ips.sort(), faults };
}

/**
 * What an agent saw of VPCs, checked by hand: a batch may hold thousands.
 * @throws ApiError 422 naming the item
 */
export function parseObserved(body: unknown): ObservedVpc[] {
  const list = isObject(body) ? body['items'] : undefined;
  if (!Array.isArray(list)) refuse(['items'], 'must be a list');
  if (list.length > maxItems) refuse(['items'], `must have at most ${maxItems} items`);
  return list.map((item: unknown, index) => {
    const at = (field: string) => ['items', index, field];
    if (!isObject(item)) refuse(['items', index], 'must be an object');
    const { kind, generation, state, reason, facts } = item;
    if (kind !== 'vpc') refuse(at('kind'), 'must be vpc');
    const id = typeof item['id'] === 'string' ? idOrNull(item['id']) : null;
    if (id === null) refuse(at('id'), 'must be an id');
    if (!Number.isInteger(generation) || (generation as number) < 0 || (generation as number) > 2_147_483_647)
      refuse(at('generation'), 'must be a whole number');
    if (!states.includes(state)) refuse(at('state'), `must be one of ${states.join(', ')}`);
    if (reason !== null && reason !== undefined && typeof reason !== 'string')
      refuse(at('reason'), 'must be a text or null');
    const time = timeOf(item['at']);
    if (time === null) refuse(at('at'), 'must be a time in RFC 3339');
    return {
      kind,
      id,
      generation: generation as number,
      state: state as VpcState,
      reason: typeof reason === 'string' ? clean(reason) : null,
      addresses: addressesOf(facts),
      at: time,
    };
  });
}
