import type { Observed, VpcState } from '@nebo/contracts';
import { idOrNull, isItem, itemsOf, seenOf, sentence } from '@nebo/service-kit';
import type { ObservedAddresses } from '../shared/region-word.js';

const states = { vpc: ['active', 'error', 'gone'] satisfies VpcState[] } as const;
const maxItems = 5_000;

/** An observation of a VPC, with what it says of floating IPs; null when it says nothing. */
export type ObservedVpc = Omit<Observed, 'facts' | 'state'> & {
  state: VpcState;
  addresses: ObservedAddresses | null;
};

/** What facts say of floating IPs. Facts are free: what is not as `VpcFacts` says it is not understood, never refused. */
function addressesOf(facts: unknown): ObservedAddresses | null {
  if (!isItem(facts) || !Array.isArray(facts['floating_ips'])) return null;
  const idOf = (value: unknown) => (typeof value === 'string' ? idOrNull(value) : null);
  const faults: Record<string, string> = {};
  for (const [key, reason] of Object.entries(isItem(facts['faults']) ? facts['faults'] : {})) {
    const id = idOrNull(key);
    if (id !== null && typeof reason === 'string') faults[id] = sentence(reason);
  }
  const floating_ips = (facts['floating_ips'] as unknown[]).map(idOf).filter((id) => id !== null);
  return { floating_ips: floating_ips.sort(), faults };
}

/** What an agent saw of VPCs. @throws ApiError 422 naming the item */
export function parseObserved(body: unknown): ObservedVpc[] {
  return itemsOf(body, 'items', maxItems).map((item, index) => {
    const { seen, facts } = seenOf(item, index, states);
    const addresses = isItem(item) && isItem(item['facts']) ? addressesOf(facts) : null;
    return { ...seen, state: seen.state as VpcState, addresses };
  });
}
