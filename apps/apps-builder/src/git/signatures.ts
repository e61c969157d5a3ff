import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import type { DeliveryHeaders } from './git-host.js';

/** The one value of a header; null when it is absent, empty or came more than once. */
export function headerOf(headers: DeliveryHeaders, name: string): string | null {
  const value = headers[name];
  return typeof value === 'string' && value !== '' ? value : null;
}

/** Compares in a time that does not depend on where two texts differ, or on their length. */
export function sameSecret(given: string, secret: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return secret !== '' && timingSafeEqual(digest(given), digest(secret));
}

/**
 * Whether a header holds the HMAC-SHA256 of the raw body in hex.
 * @param prefix what stands before the digits, as `sha256=`
 */
export function hexSignatureHolds(
  given: string | null,
  prefix: string,
  body: Buffer,
  secret: string,
): boolean {
  if (given === null || secret === '' || !given.startsWith(prefix)) return false;
  const digits = given.slice(prefix.length);
  if (!/^[0-9a-f]{64}$/i.test(digits)) return false;
  const wanted = createHmac('sha256', secret).update(body).digest();
  return timingSafeEqual(Buffer.from(digits, 'hex'), wanted);
}

/** How far the time of a signed delivery may be from ours, milliseconds (facts/reliability.md, 8). */
const clockMs = 5 * 60_000;

/**
 * Standard Webhooks: `v1,<base64>` of `id.timestamp.body`; several signatures may stand there, separated by spaces.
 * @param now milliseconds since 1970
 */
export function standardSignatureHolds(
  headers: DeliveryHeaders,
  body: Buffer,
  secret: string,
  now: number,
): boolean {
  const id = headerOf(headers, 'webhook-id');
  const time = headerOf(headers, 'webhook-timestamp');
  const given = headerOf(headers, 'webhook-signature');
  if (id === null || time === null || given === null || secret === '' || !/^\d{1,12}$/.test(time))
    return false;
  if (Math.abs(now - Number(time) * 1_000) > clockMs) return false;
  const key = secret.startsWith('whsec_') ? Buffer.from(secret.slice(6), 'base64') : Buffer.from(secret);
  const wanted = createHmac('sha256', key).update(`${id}.${time}.`).update(body).digest();
  return given.split(' ').some((one) => {
    const bytes = one.startsWith('v1,') ? Buffer.from(one.slice(3), 'base64') : Buffer.alloc(0);
    return bytes.length === wanted.length && timingSafeEqual(bytes, wanted);
  });
}
