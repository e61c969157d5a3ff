import 'reflect-metadata';
import { createPrivateKey, webcrypto, X509Certificate } from 'node:crypto';
import * as x509 from '@peculiar/x509';

const algorithm = { name: 'ECDSA', namedCurve: 'P-256' } as const;

/**
 * A request for a certificate.
 * @param keyPem PKCS #8
 * @returns DER
 */
export async function certificateRequest(keyPem: string, names: readonly string[]): Promise<Buffer> {
  const key = createPrivateKey(keyPem);
  const der = key.export({ type: 'pkcs8', format: 'der' });
  const { kty, crv, x, y } = key.export({ format: 'jwk' });
  const publicJwk = { kty, crv, x, y } as webcrypto.JsonWebKey;
  const { subtle } = webcrypto;
  const keys = {
    privateKey: await subtle.importKey('pkcs8', der, algorithm, true, ['sign']),
    publicKey: await subtle.importKey('jwk', publicJwk, algorithm, true, ['verify']),
  };
  const request = await x509.Pkcs10CertificateRequestGenerator.create(
    {
      keys,
      signingAlgorithm: { name: 'ECDSA', hash: 'SHA-256' },
      extensions: [
        new x509.SubjectAlternativeNameExtension(names.map((value) => ({ type: 'dns' as const, value }))),
      ],
    },
    webcrypto as never,
  );
  return Buffer.from(request.rawData);
}

/** What an authority sent, checked. */
export interface IssuedChain {
  /** SHA-256 of the leaf, lower-case hex. */
  fingerprint: string;
  notBefore: Date;
  notAfter: Date;
}

/**
 * Reads a chain that was ordered.
 * @param pem leaf first
 * @throws Error for a leaf of another key or other names, or one that is over
 */
export function checkChain(pem: string, keyPem: string, names: readonly string[]): IssuedChain {
  const leaf = new X509Certificate(pem);
  if (!leaf.checkPrivateKey(createPrivateKey(keyPem)))
    throw new Error('the certificate is for another key than was asked for');
  const written = (leaf.subjectAltName ?? '').split(', ');
  const missing = names.find((name) => !written.includes(`DNS:${name}`));
  if (missing !== undefined) throw new Error(`the certificate does not name ${missing}`);
  const notBefore = new Date(leaf.validFrom);
  const notAfter = new Date(leaf.validTo);
  if (notAfter.getTime() <= Date.now()) throw new Error('the certificate is over already');
  return { fingerprint: leaf.fingerprint256.replaceAll(':', '').toLowerCase(), notBefore, notAfter };
}
