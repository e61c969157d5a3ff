import { createHash, createPublicKey, generateKeyPairSync, type KeyObject, sign } from 'node:crypto';

const base64url = (value: string | Buffer): string => Buffer.from(value).toString('base64url');

/** A fresh P-256 key as PKCS #8 PEM. */
export function newKeyPem(): string {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
}

/** The public half as a JSON Web Key, its members in the order of RFC 7638. */
export function publicJwk(key: KeyObject): { crv: string; kty: string; x: string; y: string } {
  const { crv, kty, x, y } = createPublicKey(key).export({ format: 'jwk' });
  return { crv: crv!, kty: kty!, x: x!, y: y! };
}

/** Thumbprint of an account's key (RFC 7638). */
export const thumbprint = (key: KeyObject): string =>
  createHash('sha256')
    .update(JSON.stringify(publicJwk(key)))
    .digest('base64url');

/** What a challenge's token is answered with over HTTP (RFC 8555, 8.1). */
export const keyAuthorization = (key: KeyObject, token: string): string => `${token}.${thumbprint(key)}`;

/** What the TXT record of a challenge says (RFC 8555, 8.4). */
export const dnsAuthorization = (key: KeyObject, token: string): string =>
  createHash('sha256').update(keyAuthorization(key, token)).digest('base64url');

/**
 * A signed request (RFC 8555, 6.2).
 * @param account null: the key itself is named, for an account that has no address yet
 * @param payload null: the empty payload of a read
 */
export function signedRequest(
  key: KeyObject,
  account: string | null,
  request: { url: string; nonce: string; payload: object | null },
): string {
  const { url, nonce, payload } = request;
  const who = account === null ? { jwk: publicJwk(key) } : { kid: account };
  const head = base64url(JSON.stringify({ alg: 'ES256', ...who, nonce, url }));
  const body = payload === null ? '' : base64url(JSON.stringify(payload));
  const signature = sign('sha256', Buffer.from(`${head}.${body}`), { key, dsaEncoding: 'ieee-p1363' });
  return JSON.stringify({ protected: head, payload: body, signature: base64url(signature) });
}
