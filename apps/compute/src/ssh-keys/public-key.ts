import { createHash } from 'node:crypto';

/** A public key as it is kept: its line without options, and what tells keys apart. */
export interface PublicKey {
  line: string;
  /** `SHA256:…` over the key's bytes, as `ssh-keygen -l` shows it. */
  fingerprint: string;
}

/** How long the bytes of each type are at least; a shorter RSA key (under 2048 bits) is refused by sshd of today. */
const leastBytes: Readonly<Record<string, number>> = {
  'ssh-ed25519': 51,
  'ssh-rsa': 277,
  'ecdsa-sha2-nistp256': 104,
  'ecdsa-sha2-nistp384': 136,
  'ecdsa-sha2-nistp521': 172,
  'sk-ssh-ed25519@openssh.com': 60,
  'sk-ecdsa-sha2-nistp256@openssh.com': 110,
};

/**
 * Reads one line of an OpenSSH public key file: type, base64, comment. The bytes must say the same type as the line
 * (RFC 4253, 6.6), so that half a key or a private one is refused here and not by the machine.
 * @throws RangeError with a sentence for the user
 */
export function parsePublicKey(text: string): PublicKey {
  const line = text.trim();
  if (/PRIVATE KEY/.test(line)) throw new RangeError('this is a private key; send the public one (.pub)');
  if (/[\r\n\t\0]/.test(line)) throw new RangeError('must be one line of an OpenSSH public key file');
  const [type = '', base64 = ''] = line.split(/ +/, 2);
  const least = leastBytes[type];
  if (least === undefined)
    throw new RangeError(`must begin with a key type: ${Object.keys(leastBytes).join(', ')}`);
  if (!/^[A-Za-z0-9+/]+={0,2}$/.test(base64) || base64.length % 4 !== 0)
    throw new RangeError('the key after its type must be base64');
  const bytes = Buffer.from(base64, 'base64');
  const fields = wireFields(bytes);
  if (fields === null || fields[0]?.toString('latin1') !== type)
    throw new RangeError('the key is incomplete, or of another type than it says');
  if (bytes.length < least) throw new RangeError(`the ${type} key is too short`);
  return {
    line,
    fingerprint: `SHA256:${createHash('sha256').update(bytes).digest('base64').replace(/=+$/, '')}`,
  };
}

/** Length-prefixed fields, or null when the bytes do not end with one. */
function wireFields(bytes: Buffer): Buffer[] | null {
  const fields: Buffer[] = [];
  for (let at = 0; at < bytes.length;) {
    if (at + 4 > bytes.length) return null;
    const end = at + 4 + bytes.readUInt32BE(at);
    if (end > bytes.length) return null;
    fields.push(bytes.subarray(at + 4, end));
    at = end;
  }
  return fields.length >= 2 ? fields : null;
}
