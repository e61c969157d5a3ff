import type { InferenceIdentity, KeyIdentity } from '../identity.js';

/**
 * `POST /internal/v1/keys/resolve`: whose key it is, by its keyed hash (`MasterKey.hashKey`, base64url). 404 when it is
 * unknown, revoked or disabled, or its account is gone.
 */
export interface KeyResolveRequest {
  hash: string;
}

export interface KeyResolveAnswer {
  key_kind: 'control' | 'inference';
  identity: KeyIdentity | InferenceIdentity;
  /** Rises with each change of the key. */
  version: number;
}

/**
 * `POST /internal/v1/rate/lease`: a block of a key's window. What is granted over all gateways never exceeds `quota`.
 */
export interface RateLeaseRequest {
  key_id: string;
  /** Unix seconds at which the window begins. */
  window_start: number;
  /** Length of the window, for forgetting it afterwards. Default 86400. */
  seconds?: number;
  quota: number;
  want: number;
}

export interface RateLeaseAnswer {
  granted: number;
}

/** `POST /internal/v1/audit`: an entry from another service. A repeat with the same id is dropped. */
export interface AuditWriteRequest {
  id?: string;
  /** Null: about the whole installation. */
  account_id: string | null;
  /** `key:<id>`, `member:<id>`, `operator`; the calling service when absent. */
  actor?: string;
  /** Operation id or command. */
  action: string;
  /** `kind:<id>`. */
  resource?: string | null;
  details?: object | null;
}
