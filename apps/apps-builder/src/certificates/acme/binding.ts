import { createHmac, type KeyObject } from 'node:crypto';
import { type Config, ConfigError } from '@nebo/service-kit';
import { publicJwk } from './jws.js';

/** What an authority gave its customer, so that an account can be told to be theirs. */
export interface AccountBinding {
  keyId: string;
  hmacKey: Buffer;
}

/**
 * `NEBO_ACME_EAB_KID` and `NEBO_ACME_EAB_KEY` (base64url, as authorities show it).
 * @returns null when neither is set
 * @throws ConfigError, which never shows the key
 */
export function bindingOf(config: Config): AccountBinding | null {
  const keyId = config.optional('NEBO_ACME_EAB_KID');
  const key = config.optional('NEBO_ACME_EAB_KEY');
  if (keyId === undefined && key === undefined) return null;
  if (keyId === undefined || key === undefined)
    throw new ConfigError('NEBO_ACME_EAB_KID and NEBO_ACME_EAB_KEY are set together or not at all');
  if (!/^[\w+/-]{16,}={0,2}$/.test(key))
    throw new ConfigError('NEBO_ACME_EAB_KEY must be base64url, as the authority shows it');
  return { keyId, hmacKey: Buffer.from(key, 'base64url') };
}

/** Says that an account's key belongs to a customer (RFC 8555, 7.3.4). @param url where the account is made */
export function boundBy({ keyId, hmacKey }: AccountBinding, key: KeyObject, url: string): object {
  const head = encoded({ alg: 'HS256', kid: keyId, url });
  const payload = encoded(publicJwk(key));
  const signature = createHmac('sha256', hmacKey).update(`${head}.${payload}`).digest('base64url');
  return { protected: head, payload, signature };
}

const encoded = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
