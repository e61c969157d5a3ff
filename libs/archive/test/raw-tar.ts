import { gzipSync } from 'node:zlib';

/** A header as hostile as one likes; nothing is checked or corrected. */
export interface RawHeader {
  name?: string | Buffer;
  prefix?: string;
  mode?: number;
  size?: number;
  /** The 12 bytes of the size field as they are. */
  rawSize?: Buffer;
  type?: string;
  linkname?: string | Buffer;
  magic?: string;
  checksum?: number;
}

const put = (head: Buffer, value: string | Buffer, at: number) =>
  (Buffer.isBuffer(value) ? value : Buffer.from(value, 'utf8')).copy(head, at, 0, 155);

/** One 512-byte header block. */
export function rawHeader(of: RawHeader): Buffer {
  const head = Buffer.alloc(512);
  put(head, (of.name ?? 'file.txt').slice(0, 100) as string | Buffer, 0);
  put(head, (of.mode ?? 0o644).toString(8).padStart(7, '0'), 100);
  put(head, '0000000', 108);
  put(head, '0000000', 116);
  put(head, of.rawSize ?? (of.size ?? 0).toString(8).padStart(11, '0'), 124);
  put(head, '00000000000', 136);
  put(head, of.type ?? '0', 156);
  put(head, (of.linkname ?? '').slice(0, 100) as string | Buffer, 157);
  put(head, of.magic ?? 'ustar\x0000', 257);
  put(head, of.prefix ?? '', 345);
  head.fill(0x20, 148, 156);
  const sum = of.checksum ?? head.reduce((total, byte) => total + byte, 0);
  put(head, `${sum.toString(8).padStart(6, '0')}\0 `, 148);
  return head;
}

const pad = (size: number) => Buffer.alloc((512 - (size % 512)) % 512);

/** Header, body and filling. */
export function rawEntry(of: RawHeader, body: string | Buffer = ''): Buffer {
  const bytes = Buffer.isBuffer(body) ? body : Buffer.from(body);
  return Buffer.concat([rawHeader({ size: bytes.length, ...of }), bytes, pad(bytes.length)]);
}

/** `"<length> key=value\n"`. */
export function paxRecord(key: string, value: string | Buffer): Buffer {
  const tail = Buffer.concat([
    Buffer.from(` ${key}=`),
    Buffer.isBuffer(value) ? value : Buffer.from(value),
    Buffer.from('\n'),
  ]);
  let length = tail.length;
  while (tail.length + String(length).length !== length) length = tail.length + String(length).length;
  return Buffer.concat([Buffer.from(String(length)), tail]);
}

/** A pax header ('x', or 'g' for all) with these records. */
export function rawPax(records: readonly [string, string | Buffer][], type: 'x' | 'g' = 'x'): Buffer {
  return rawEntry(
    { name: 'PaxHeader', type },
    Buffer.concat(records.map(([key, value]) => paxRecord(key, value))),
  );
}

export const endOfTar = Buffer.alloc(1024);

/** Blocks with a proper end, not compressed. */
export const rawTar = (...parts: Buffer[]): Buffer => Buffer.concat([...parts, endOfTar]);

/** Blocks with a proper end, as .tar.gz. */
export const rawArchive = (...parts: Buffer[]): Buffer => gzipSync(rawTar(...parts), { level: 6 });
