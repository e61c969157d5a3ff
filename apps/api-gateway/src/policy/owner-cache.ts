import { type Owner, ownerServices } from '@nebo/contracts';
import { ApiError, type Peers } from '@nebo/service-kit';

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const maxEntries = 100_000;

/**
 * Who owns a thing. Owners never change, so they are kept; what is absent is not, since it may be made the next moment.
 * That a thing is gone meanwhile only its own service knows: where another one answers, it is asked again.
 */
export class OwnerCache {
  private readonly known = new Map<string, Owner>();

  constructor(private readonly peers: Peers) {}

  /**
   * @param answering the service that will answer the request; null: what was known once is enough
   * @returns null when there is no such thing
   */
  find(kind: string, id: string, answering: string | null): Owner | null | Promise<Owner | null> {
    const lower = id.toLowerCase();
    if (answering === null || answering === ownerServices[kind]) {
      const owner = this.known.get(`${kind}:${lower}`);
      if (owner) return owner;
    }
    return uuid.test(lower) ? this.ask(kind, lower) : null;
  }

  private async ask(kind: string, id: string): Promise<Owner | null> {
    const service = ownerServices[kind];
    if (!service) return null;
    try {
      const owner = await this.peers.call<Owner>(service, `/internal/v1/owners/${kind}/${id}`, {
        account: null,
      });
      if (this.known.size >= maxEntries) this.known.clear();
      this.known.set(`${kind}:${id}`, owner);
      return owner;
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) {
        this.known.delete(`${kind}:${id}`);
        return null;
      }
      throw error;
    }
  }
}
