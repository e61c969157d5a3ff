import { randomUUID } from 'node:crypto';
import { type RegionView, regionWord } from './region-word.js';

const fip_id = randomUUID();
const view = (more: Partial<RegionView>): RegionView => ({
  fip_id,
  wanted_generation: 5,
  vpc_known: true,
  observed_generation: 5,
  observed_state: 'active',
  observed_reason: null,
  observed_facts: { floating_ips: [], faults: {} },
  ...more,
});
const listed = { floating_ips: [randomUUID(), fip_id], faults: {} };
const silence = { word: 'unknown', reason: 'the region has not reported it' };

describe('what a region says of an address', () => {
  it.each<[string, Partial<RegionView>, object]>([
    ['it is in the list', { observed_facts: listed }, { word: 'works' }],
    ['a later word says so', { observed_generation: 9, observed_facts: listed }, { word: 'works' }],
    ['it is in no list', {}, { word: 'absent' }],
    ['an earlier word counts for nothing', { observed_generation: 4, observed_facts: listed }, silence],
    ['no word at all', { observed_generation: null, observed_state: null, observed_facts: null }, silence],
    ['a word without a list', { observed_facts: null }, silence],
    [
      'a fault of its own',
      { observed_facts: { ...listed, faults: { [fip_id]: 'no uplink' } } },
      { word: 'fault', reason: 'no uplink' },
    ],
    [
      'a network in trouble, without a list',
      { observed_state: 'error', observed_reason: 'no bridge', observed_facts: null },
      { word: 'unknown', reason: 'no bridge' },
    ],
    [
      'a network in trouble, not in its list',
      { observed_state: 'error', observed_reason: 'no bridge' },
      { word: 'fault', reason: 'no bridge' },
    ],
    [
      'a network in trouble, in its list',
      { observed_state: 'error', observed_facts: listed },
      { word: 'works' },
    ],
    ['the network is gone', { observed_state: 'gone', observed_facts: null }, { word: 'absent' }],
    ['the network was gone before', { observed_state: 'gone', observed_generation: 4 }, silence],
    ['its row is gone too', { vpc_known: false, observed_generation: null }, { word: 'absent' }],
    ['no network has it', { wanted_generation: null }, { word: 'absent' }],
  ])('%s', (_what, more, said) => {
    expect(regionWord(view(more))).toEqual(said);
  });
});
