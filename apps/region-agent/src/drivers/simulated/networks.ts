import { type VpcFacts, type VpcSpec } from '@nebo/contracts';
import { addressBookFault } from '../address-book.js';
import { publicAddresses } from '../floating.js';
import { type NetworkDriver, type VpcObservation } from '../types.js';

export interface SimulatedNetworksOptions {
  /** Failures on demand, for tests: why a floating IP or gateway does not work, by its address, or null. */
  failure?: (address: string) => string | null;
}

/** An address book without a network behind it: nothing is isolated, since nothing is connected. */
export class SimulatedNetworkDriver implements NetworkDriver {
  readonly name = 'simulated';
  readonly isolated = false;
  readonly taps = null;
  readonly plugs = null;
  private readonly book = new Map<string, VpcObservation>();
  /** VPC by public address. */
  private readonly owners = new Map<string, string>();

  constructor(private readonly options: SimulatedNetworksOptions = {}) {}

  async start(): Promise<void> {}

  async ensure(id: string, generation: number, spec: VpcSpec): Promise<VpcObservation> {
    const facts: VpcFacts = {
      driver: this.name,
      real: false,
      ports: spec.ports.length,
      floating_ips: [],
      faults: {},
    };
    const fault = addressBookFault(spec);
    if (fault !== null) return this.keep({ id, generation, state: 'error', reason: fault, facts });
    const { good, faults } = publicAddresses(spec);
    this.giveBack(
      id,
      good.map(({ address }) => address),
    );
    for (const { id: way, address } of good) {
      const owner = this.owners.get(address) ?? id;
      const why =
        owner === id ? this.options.failure?.(address) : 'another network of this region still has it';
      if (owner === id) this.owners.set(address, id);
      if (why) faults[way] = why;
      else facts.floating_ips.push(way);
    }
    return this.keep({ id, generation, state: 'active', reason: null, facts: { ...facts, faults } });
  }

  async remove(id: string): Promise<void> {
    this.giveBack(id, []);
    this.book.delete(id);
  }

  async list(): Promise<VpcObservation[]> {
    return [...this.book.values()];
  }

  async stop(): Promise<void> {}

  async clear(): Promise<void> {
    this.book.clear();
    this.owners.clear();
  }

  private keep(observation: VpcObservation): VpcObservation {
    this.book.set(observation.id, observation);
    return observation;
  }

  private giveBack(id: string, but: readonly string[]): void {
    for (const [address, owner] of this.owners)
      if (owner === id && !but.includes(address)) this.owners.delete(address);
  }
}
