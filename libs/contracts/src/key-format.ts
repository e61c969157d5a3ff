import { randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';

const digits = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const randomLength = 43; // 32 bytes in base62
const checkLength = 6; // CRC-32 in base62

function base62(value: bigint, length: number): string {
  let text = '';
  for (let rest = value; text.length < length; rest /= 62n) text = digits[Number(rest % 62n)] + text;
  return text;
}

/** How bearer keys of one prefix look: prefix, 32 random bytes in base62, six characters of CRC-32. */
export interface KeyForm {
  prefix: string;
  /** A new key. */
  generate(): string;
  /** Whether a text is a key of this form, so that typos and fakes are refused without a lookup. */
  matches(text: string): boolean;
}

/** @param prefix ends in `live_`, so that people and scanners know what they see */
export function keyForm(prefix: string): KeyForm {
  const check = (random: string) => base62(BigInt(crc32(prefix + random)), checkLength);
  const length = prefix.length + randomLength + checkLength;
  return {
    prefix,
    generate: () => {
      const random = base62(BigInt(`0x${randomBytes(32).toString('hex')}`), randomLength);
      return prefix + random + check(random);
    },
    matches: (text) => {
      if (text.length !== length || !text.startsWith(prefix)) return false;
      const random = text.slice(prefix.length, -checkLength);
      return text.slice(-checkLength) === check(random);
    },
  };
}
