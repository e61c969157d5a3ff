import { defineEvent } from '@nebo/bus';

/** A key was revoked, disabled, enabled or changed: who keeps it forgets it at once. */
export interface KeyChanged {
  key_id: string;
  /** Keyed hash of the key, base64url. */
  hash: string;
}

export const keyChanged = defineEvent<KeyChanged>('nebo.identity-billing.key.changed.v1');
