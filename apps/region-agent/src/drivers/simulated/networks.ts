import { type VpcSpec } from '@nebo/contracts';
import { addressBookFault } from '../address-book.js';
import { type NetworkDriver, type VpcObservation } from '../types.js';

/** An address book without a network behind it: nothing is isolated, since nothing is connected. */
export class SimulatedNetworkDriver implements NetworkDriver {
  readonly name = 'simulated';
  readonly isolated = false;
  private readonly book = new Map<string, VpcObservation>();

  async start(): Promise<void> {}

  async ensure(id: string, generation: number, spec: VpcSpec): Promise<VpcObservation> {
    const fault = addressBookFault(spec);
    const observation: VpcObservation = {
      id,
      generation,
      state: fault === null ? 'active' : 'error',
      reason: fault,
      facts: { driver: this.name, real: false, ports: spec.ports.length },
    };
    this.book.set(id, observation);
    return observation;
  }

  async remove(id: string): Promise<void> {
    this.book.delete(id);
  }

  async list(): Promise<VpcObservation[]> {
    return [...this.book.values()];
  }

  async stop(): Promise<void> {
    this.book.clear();
  }
}
