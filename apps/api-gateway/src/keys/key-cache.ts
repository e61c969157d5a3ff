import type { Identity, IdentitySigner } from '@nebo/contracts';
import { ApiError, type MasterKey, type Peers } from '@nebo/service-kit';

/** A live key, ready to be handed on. */
export interface ResolvedKey {
  identity: Identity;
  /** The identity, signed: the same header serves all requests of the cached time. */
  header: string;
}

interface Entry {
  resolved: Promise<ResolvedKey | null>;
  /** Milliseconds of `performance.now()` after which it is asked again. */
  until: number;
  hash: string;
  /** What was resolved; null until then. */
  live: ResolvedKey | null;
}

/** Longest time that a key is believed without asking (interfaces.md, 4). */
const cacheMs = 5_000;
const maxEntries = 20_000;

/**
 * Whose key it is: memory first (at most 5 s), then identity-billing. A revocation that is heard takes effect at once;
 * one that is missed, in five seconds. Unknown keys are never kept: a fresh key must work at once.
 */
export class KeyCache {
  private readonly byKey = new Map<string, Entry>();

  constructor(
    private readonly peers: Peers,
    private readonly masterKey: MasterKey,
    private readonly signer: IdentitySigner,
  ) {}

  /**
   * @param key the bearer key as sent, its form checked by the caller
   * @returns null for a key that is unknown, revoked or disabled
   * @throws ApiError 503 when identity-billing cannot be asked
   */
  resolve(key: string): Promise<ResolvedKey | null> {
    const now = performance.now();
    const known = this.byKey.get(key);
    if (known && known.until > now) return known.resolved;
    const hash = this.masterKey.hashKey(key).toString('base64url');
    const entry: Entry = { resolved: this.ask(hash), until: now + cacheMs, hash, live: null };
    if (this.byKey.size >= maxEntries) this.byKey.clear();
    this.byKey.set(key, entry);
    const forget = () => {
      if (this.byKey.get(key) === entry) this.byKey.delete(key);
    };
    entry.resolved.then((resolved) => {
      entry.live = resolved;
      if (!resolved) forget();
    }, forget);
    return entry.resolved;
  }

  /** A live key that is in memory, without waiting; its form was checked when it came in. */
  known(key: string): ResolvedKey | null {
    const entry = this.byKey.get(key);
    return entry !== undefined && entry.until > performance.now() ? entry.live : null;
  }

  private async ask(hash: string): Promise<ResolvedKey | null> {
    try {
      const { identity } = await this.peers.call<{ identity: Identity }>(
        'identity-billing',
        '/internal/v1/keys/resolve',
        {
          account: null,
          body: { hash },
        },
      );
      return { identity, header: this.signer.sign(identity) };
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return null;
      throw new ApiError(503, 'unavailable', 'the key could not be checked; try again', {
        cause: error,
        headers: { 'retry-after': '2' },
      });
    }
  }

  /** Forgets a key by its hash (base64url), or all when it is not said which. */
  forget(hash: string | null): void {
    if (hash === null) return this.byKey.clear();
    for (const [key, entry] of this.byKey) if (entry.hash === hash) this.byKey.delete(key);
  }
}
