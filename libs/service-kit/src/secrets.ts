import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes } from 'node:crypto';
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { ConfigError } from './config.js';

/**
 * The installation's master key, from which every other key is derived: signatures between services, the pepper of API
 * keys, passwords of database roles and the keys that seal secrets.
 */
export class MasterKey {
  private readonly derived = new Map<string, Buffer>();

  constructor(private readonly bytes: Buffer) {
    if (bytes.length !== 32) throw new ConfigError('the master key must be 32 bytes (64 hex digits)');
  }

  /** Reads the key file, making it (0600) when absent. */
  static fromFile(path: string): MasterKey {
    if (!existsSync(path)) {
      mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
      writeFileSync(path, `${randomBytes(32).toString('hex')}\n`, { mode: 0o600, flag: 'wx' });
      chmodSync(path, 0o600);
    }
    const text = readFileSync(path, 'utf8').trim();
    if (!/^[0-9a-f]{64}$/i.test(text)) {
      throw new ConfigError(`NEBO_MASTER_KEY_FILE: ${path} does not hold a key (64 hex digits)`);
    }
    return new MasterKey(Buffer.from(text, 'hex'));
  }

  /** A 32-byte key for one purpose (HKDF-SHA256, RFC 5869). */
  derive(purpose: string): Buffer {
    let key = this.derived.get(purpose);
    if (!key) {
      key = Buffer.from(hkdfSync('sha256', this.bytes, 'nebo', purpose, 32));
      this.derived.set(purpose, key);
    }
    return key;
  }

  /** Password of a service's database role. */
  rolePassword(schema: string): string {
    return this.derive(`database-role:${schema}`).toString('base64url');
  }

  /** Keyed hash of a bearer key: what the database holds of it. */
  hashKey(key: string): Buffer {
    return createHmac('sha256', this.derive('key-pepper')).update(key).digest();
  }

  /**
   * Seals a secret with AES-256-GCM. `context` (account|resource|name) is bound in, so that a sealed value copied to
   * another row does not open.
   * @returns version byte, nonce (12 bytes), tag (16 bytes), ciphertext
   */
  seal(plain: string, context: string): Buffer {
    const nonce = randomBytes(12);
    const cipher = createCipheriv('aes-256-gcm', this.derive('secrets'), nonce).setAAD(Buffer.from(context));
    const body = Buffer.concat([cipher.update(plain, 'utf8'), cipher.final()]);
    return Buffer.concat([Buffer.of(1), nonce, cipher.getAuthTag(), body]);
  }

  /** @throws Error when the value was sealed for another context or by another master key */
  open(sealed: Uint8Array, context: string): string {
    const bytes = Buffer.from(sealed);
    if (bytes[0] !== 1) throw new Error('sealed secret of an unknown version');
    const decipher = createDecipheriv('aes-256-gcm', this.derive('secrets'), bytes.subarray(1, 13))
      .setAAD(Buffer.from(context))
      .setAuthTag(bytes.subarray(13, 29));
    return Buffer.concat([decipher.update(bytes.subarray(29)), decipher.final()]).toString('utf8');
  }
}
