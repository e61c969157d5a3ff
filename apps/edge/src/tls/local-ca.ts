import 'reflect-metadata';
import { randomBytes, webcrypto } from 'node:crypto';
import { link, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import * as x509 from '@peculiar/x509';
import { type Certificate, type CertificateSource } from './certificate-source.js';

const KEY_ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256' } as const;
const SIGNING = { name: 'ECDSA', hash: 'SHA-256' } as const;
const DAY = 86_400_000;
const CA_DAYS = 3_650;
const LEAF_DAYS = 90;
/** Clocks of clients may be behind. */
const BACKDATED = 3_600_000;

type Keys = Awaited<ReturnType<typeof generateKeys>>;

/**
 * A certificate authority of this installation: `ca.pem` and `ca.key` (0600) in its folder, made on first use. Its leaves
 * live in memory only. Names directly under the apps domain share one wildcard leaf, so that nobody can make the edge sign
 * without end by inventing names.
 */
export class LocalCa implements CertificateSource {
  readonly name = 'local CA';
  private ready: Promise<{ cert: x509.X509Certificate; keys: Keys }> | null = null;

  /**
   * @param folder e.g. `NEBO_HOME/ca`
   * @param appsDomain suffix of the default app names, e.g. `apps.localhost`
   */
  constructor(
    private readonly folder: string,
    private readonly appsDomain: string,
  ) {}

  /** The CA's certificate as PEM, for clients that are to trust it. */
  async rootPem(): Promise<string> {
    return (await this.authority()).cert.toString('pem');
  }

  async certificate(host: string): Promise<Certificate> {
    const { cert, keys } = await this.authority();
    const under =
      host.endsWith(`.${this.appsDomain}`) && !host.slice(0, -this.appsDomain.length - 1).includes('.');
    const names = under || host === this.appsDomain ? [`*.${this.appsDomain}`, this.appsDomain] : [host];
    const leafKeys = await generateKeys();
    const now = Date.now();
    const leaf = await x509.X509CertificateGenerator.create(
      {
        serialNumber: serial(),
        // Names are in the extension; a common name may not be longer than 64.
        subject: [{ CN: [names[0]!.length <= 64 ? names[0]! : 'nebo'] }],
        issuer: cert.subject,
        notBefore: new Date(now - BACKDATED),
        notAfter: new Date(now + LEAF_DAYS * DAY),
        signingAlgorithm: SIGNING,
        publicKey: leafKeys.publicKey,
        signingKey: keys.privateKey,
        extensions: [
          new x509.BasicConstraintsExtension(false, undefined, true),
          new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
          new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]),
          new x509.SubjectAlternativeNameExtension(names.map((value) => ({ type: 'dns' as const, value }))),
          await x509.AuthorityKeyIdentifierExtension.create(cert.publicKey, false),
          await x509.SubjectKeyIdentifierExtension.create(leafKeys.publicKey),
        ],
      },
      webcrypto as never,
    );
    return {
      cert: leaf.toString('pem'),
      key: await keyPem(leafKeys),
      notBefore: leaf.notBefore,
      notAfter: leaf.notAfter,
    };
  }

  private authority(): Promise<{ cert: x509.X509Certificate; keys: Keys }> {
    this.ready ??= this.open().catch((error: unknown) => {
      // Not remembered: a full or read-only disk may be mended.
      this.ready = null;
      throw error;
    });
    return this.ready;
  }

  private async open(): Promise<{ cert: x509.X509Certificate; keys: Keys }> {
    x509.cryptoProvider.set(webcrypto as never);
    await mkdir(this.folder, { recursive: true, mode: 0o700 });
    const keyFile = join(this.folder, 'ca.key');
    const certFile = join(this.folder, 'ca.pem');
    const keyText =
      (await readIfThere(keyFile)) ?? (await createOnce(keyFile, await keyPem(await generateKeys()), 0o600));
    const keys = await importKeys(keyText);
    const certText =
      (await readIfThere(certFile)) ??
      (await createOnce(certFile, (await selfSign(keys)).toString('pem'), 0o644));
    const cert = new x509.X509Certificate(certText);
    if (
      !Buffer.from(cert.publicKey.rawData).equals(
        Buffer.from(await webcrypto.subtle.exportKey('spki', keys.publicKey)),
      )
    ) {
      throw new Error(`${certFile} and ${keyFile} do not belong together`);
    }
    return { cert, keys };
  }
}

async function selfSign(keys: Keys): Promise<x509.X509Certificate> {
  const now = Date.now();
  return x509.X509CertificateGenerator.createSelfSigned(
    {
      serialNumber: serial(),
      name: [{ O: ['Nebo'] }, { CN: [`Nebo local CA ${randomBytes(3).toString('hex')}`] }],
      notBefore: new Date(now - BACKDATED),
      notAfter: new Date(now + CA_DAYS * DAY),
      signingAlgorithm: SIGNING,
      keys,
      extensions: [
        new x509.BasicConstraintsExtension(true, 0, true),
        new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
        await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
      ],
    },
    webcrypto as never,
  );
}

function generateKeys() {
  return webcrypto.subtle.generateKey(KEY_ALGORITHM, true, ['sign', 'verify']);
}

/** Positive, 127 random bits. */
function serial(): string {
  const bytes = randomBytes(16);
  bytes[0] = (bytes[0]! & 0x7f) | 0x40;
  return bytes.toString('hex');
}

async function keyPem(keys: Keys): Promise<string> {
  const der = Buffer.from(await webcrypto.subtle.exportKey('pkcs8', keys.privateKey));
  const lines = der.toString('base64').match(/.{1,64}/g)!;
  return `-----BEGIN PRIVATE KEY-----\n${lines.join('\n')}\n-----END PRIVATE KEY-----\n`;
}

async function importKeys(pem: string): Promise<Keys> {
  const der = Buffer.from(pem.replace(/-----[^-]+-----|\s/g, ''), 'base64');
  const privateKey = await webcrypto.subtle.importKey('pkcs8', der, KEY_ALGORITHM, true, ['sign']);
  const { kty, crv, x, y } = await webcrypto.subtle.exportKey('jwk', privateKey);
  const publicJwk = { kty, crv, x, y } as webcrypto.JsonWebKey;
  const publicKey = await webcrypto.subtle.importKey('jwk', publicJwk, KEY_ALGORITHM, true, ['verify']);
  return { privateKey, publicKey };
}

async function readIfThere(path: string): Promise<string | null> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
}

/**
 * Creates a file whole or not at all, and never over one that exists: of two processes that start at once, both go on with
 * what the first one wrote.
 */
async function createOnce(path: string, text: string, mode: number): Promise<string> {
  const next = `${path}.${randomBytes(4).toString('hex')}`;
  await writeFile(next, text, { mode, flag: 'wx' });
  try {
    await link(next, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    await rm(next, { force: true });
  }
  return readFile(path, 'utf8');
}
