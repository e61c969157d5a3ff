/** What a region last said of a VPC, as the life of an address in it sees it. */
export interface RegionView {
  /** Id of the floating IP. */
  fip_id: string;
  /** From which generation of the VPC on it is as it is wanted; null when no VPC has it. */
  wanted_generation: number | null;
  /** False when the VPC is gone, its row too. */
  vpc_known: boolean;
  observed_generation: number | null;
  observed_state: string | null;
  observed_reason: string | null;
  observed_facts: ObservedAddresses | null;
}

/** The part of `VpcFacts` that is kept. */
export interface ObservedAddresses {
  floating_ips: string[];
  faults: Record<string, string>;
}

/** The same columns of a query over `f` (an address or a gateway) with its VPC joined as `v`. */
export const regionView = `f.wanted_generation, v.id is not null as vpc_known, v.observed_generation, v.observed_state,
  v.observed_reason, v.observed_facts`;

/** Column `age_ms`: milliseconds since the thing `f` entered the state that it lives in, by PostgreSQL's clock. */
export const ageOf = (kind: string): string =>
  `(select (extract(epoch from clock_timestamp() - l.entered_at) * 1000)::float8 from lifecycle l
    where l.kind = '${kind}' and l.id = f.id) as age_ms`;

/** `works`: packets go through; `absent`: the region does not have it; `fault`: it has trouble with it; `unknown`: no word yet. */
export type RegionWord =
  { word: 'works' | 'absent' } | { word: 'fault'; reason: string } | { word: 'unknown'; reason: string };

const silence = 'the region has not reported it';
const trouble = 'the region could not make the network';

/** What a region says of an address, by its own word about what is wanted now or later, never about what was wanted before. */
export function regionWord(view: RegionView): RegionWord {
  const { fip_id, wanted_generation: wanted, observed_generation: seen, observed_facts: facts } = view;
  // A network that is gone has no addresses.
  if (!view.vpc_known || wanted === null) return { word: 'absent' };
  if (seen === null || seen < wanted) return { word: 'unknown', reason: silence };
  if (view.observed_state === 'gone') return { word: 'absent' };
  if (facts === null) return { word: 'unknown', reason: view.observed_reason ?? silence };
  const fault = facts.faults[fip_id];
  if (fault !== undefined) return { word: 'fault', reason: fault };
  if (facts.floating_ips.includes(fip_id)) return { word: 'works' };
  // What does not work in a network that is in trouble may still be there.
  if (view.observed_state === 'error') return { word: 'fault', reason: view.observed_reason ?? trouble };
  return { word: 'absent' };
}
