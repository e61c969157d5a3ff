/** What a written tar header says; times and owners are always 0. */
export interface WrittenHeader {
  path: string;
  type: 'file' | 'directory' | 'symlink';
  size: number;
  mode: number;
  target: string | null;
}

const flags = { file: '0', directory: '5', symlink: '2' } as const;

function block(name: string, flag: string, size: number, mode: number, target: string): Buffer {
  const head = Buffer.alloc(512);
  head.write(name, 0, 100, 'latin1');
  const octal = (value: number, at: number, width: number) =>
    head.write(`${value.toString(8).padStart(width - 1, '0')}\0`, at, width, 'latin1');
  octal(mode, 100, 8);
  octal(0, 108, 8);
  octal(0, 116, 8);
  octal(size, 124, 12);
  octal(0, 136, 12);
  head.write(flag, 156, 1, 'latin1');
  head.write(target, 157, 100, 'latin1');
  head.write('ustar\x0000', 257, 8, 'latin1');
  octal(0, 329, 8);
  octal(0, 337, 8);
  head.fill(0x20, 148, 156);
  let sum = 0;
  for (const byte of head) sum += byte;
  head.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 8, 'latin1');
  return head;
}

function paxRecord(key: string, value: string): Buffer {
  const rest = Buffer.byteLength(` ${key}=${value}\n`);
  // The length counts its own digits.
  let length = rest + String(rest).length;
  if (rest + String(length).length !== length) length = rest + String(length).length;
  return Buffer.from(`${length} ${key}=${value}\n`);
}

/** Zeros that fill the last block of `size` bytes. */
export function padding(size: number): Buffer {
  return Buffer.alloc((512 - (size % 512)) % 512);
}

const fits = (text: string) => text.length <= 100 && /^[\x20-\x7e]*$/.test(text);

/**
 * The header blocks of one entry: ustar, with a pax header before it when a name is longer than 100 bytes or not plain
 * ASCII. The fixed field then holds a harmless stand-in.
 */
export function tarHeader(entry: WrittenHeader): Buffer {
  const target = entry.target ?? '';
  const records: Buffer[] = [];
  if (!fits(entry.path)) records.push(paxRecord('path', entry.path));
  if (!fits(target)) records.push(paxRecord('linkpath', target));
  const parts: Buffer[] = [];
  if (records.length > 0) {
    const body = Buffer.concat(records);
    parts.push(block('PaxHeader', 'x', body.length, 0o644, ''), body, padding(body.length));
  }
  const slash = entry.type === 'directory' ? '/' : '';
  const name = fits(entry.path) ? entry.path : `PaxEntry${slash}`;
  parts.push(block(name, flags[entry.type], entry.size, entry.mode, fits(target) ? target : 'PaxLink'));
  return Buffer.concat(parts);
}
