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
  /** Questions under way: who asks the same meanwhile gets the same answer. */
  private readonly asked = new Map<string, Promise<Owner | null>>();

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
    if (!uuid.test(lower)) return null;
    const key = `${kind}:${lower}`;
    let answer = this.asked.get(key);
    if (!answer) {
      answer = this.ask(kind, lower).finally(() => this.asked.delete(key));
      this.asked.set(key, answer);
    }
    return answer;
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
