import { defineEvent } from '@nebo/bus';

/** A key was changed, disabled, enabled or revoked: whoever keeps it in memory forgets it. A hint, never the truth. */
export interface KeyChanged {
  key_id: string;
  /** Keyed hash of the key, base64url, as in `keys/resolve`. */
  hash: string;
  state: 'active' | 'disabled' | 'revoked';
}

/** Said by identity-billing, heard by every gateway. */
export const keyChanged = defineEvent<KeyChanged>('nebo.identity-billing.key.changed.v1');
