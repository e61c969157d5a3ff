/** Bytes of a header, and what every body is filled up to. */
export const BLOCK = 512;

/** Text of a fixed header field up to its NUL; `nul` is set when something stands behind that NUL. */
export function field(block: Buffer, from: number, length: number): { bytes: Buffer; hidden: boolean } {
  const all = block.subarray(from, from + length);
  const end = all.indexOf(0);
  if (end < 0) return { bytes: all, hidden: false };
  return { bytes: all.subarray(0, end), hidden: all.subarray(end).some((byte) => byte !== 0) };
}

/** An octal field; null when it is not one. */
export function octal(block: Buffer, from: number, length: number): number | null {
  const text = block
    .toString('latin1', from, from + length)
    .replace(/^[ ]*/, '')
    .replace(/[ \0]*$/, '');
  if (text === '') return 0;
  return /^[0-7]+$/.test(text) ? parseInt(text, 8) : null;
}

/** A size: octal, or base-256 when the top bit is set; null when negative, unsafe or no number. */
export function sizeField(block: Buffer): number | null {
  const first = block.readUInt8(124);
  if (!(first & 0x80)) return octal(block, 124, 12);
  if (first !== 0x80) return null;
  let value = 0n;
  for (let i = 125; i < 136; i++) value = (value << 8n) | BigInt(block.readUInt8(i));
  return value > BigInt(Number.MAX_SAFE_INTEGER) ? null : Number(value);
}

/** Whether a header's sum is that of its bytes. */
export function checksumFits(block: Buffer): boolean {
  const told = octal(block, 148, 8);
  let sum = 8 * 32;
  for (let i = 0; i < BLOCK; i++) if (i < 148 || i >= 156) sum += block.readUInt8(i);
  return told === sum;
}
