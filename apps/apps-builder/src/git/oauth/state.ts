import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { idOrNull } from '@nebo/service-kit';

/** What goes with a person to the git host and back: which authorization it is, and a secret that shows it. */
export interface State {
  id: string;
  secret: string;
}

const digest = (secret: string) => createHash('sha256').update(secret).digest();

/** A new secret with what is kept of it. */
export function newSecret(): { secret: string; hash: Buffer } {
  const secret = randomBytes(32).toString('base64url');
  return { secret, hash: digest(secret) };
}

export const stateText = ({ id, secret }: State): string => `${id}.${secret}`;

/** @returns null for what no address of ours had */
export function readState(text: unknown): State | null {
  if (typeof text !== 'string' || text.length > 200) return null;
  const [id = '', secret = '', ...rest] = text.split('.');
  const known = idOrNull(id);
  if (known === null || rest.length > 0 || !/^[\w-]{43}$/.test(secret)) return null;
  return { id: known, secret };
}

/** In a time that does not depend on where they differ. */
export function isSecretOf(secret: string, hash: Uint8Array): boolean {
  const given = digest(secret);
  return given.length === hash.length && timingSafeEqual(given, hash);
}

/** RFC 7636: what the host is shown first of a verifier that it gets with the code (S256). */
export const challengeOf = (verifier: string): string =>
  createHash('sha256').update(verifier).digest('base64url');
