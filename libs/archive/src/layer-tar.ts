import { decodeName } from './paths.js';
import { type Overrides, readGnuLong, readPax } from './pax.js';
import { ArchiveRefused, printable } from './refused.js';
import { BLOCK, checksumFits, field, octal, sizeField } from './tar-block.js';

/** A layer of an image cannot be unpacked. `message` is public: the entry, what is wrong with it. */
export class LayerRefused extends Error {
  override readonly name = 'LayerRefused';

  constructor(what: string, entry?: string) {
    super(entry === undefined ? what : `"${printable(entry)}" ${what}`);
  }
}

/** One entry of a layer. What stands in the way of an honest one is refused, what cannot be had here is `other`. */
export interface LayerEntry {
  type: 'file' | 'directory' | 'symlink' | 'hardlink' | 'other';
  /** Names from the root down; empty: the root itself. */
  segments: string[];
  /** Permissions, sticky bit included; never set-uid or set-gid. */
  mode: number;
  /** Seconds since 1970. */
  mtime: number;
  target: string;
  /** The bytes of a file; those that were not read are passed over. */
  body: AsyncIterable<Buffer>;
}

const maxPathBytes = 4_096;
const maxLevels = 512;
/** Extended attributes make the headers of some entries large. */
const maxHeaderBytes = 1024 * 1024;

const metaTypes: ReadonlySet<string> = new Set(['x', 'g', 'L', 'K']);
/** Of these the size means nothing. */
const bodiless: ReadonlySet<string> = new Set(['1', '2', '3', '4', '5', '6']);

/** Expanded bytes, taken piece by piece. */
class Bytes {
  private readonly source: AsyncIterator<Buffer>;
  private rest: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Buffer>) {
    this.source = source[Symbol.asyncIterator]();
  }

  /** The next bytes, at most `most`; null at the end. */
  async some(most: number): Promise<Buffer | null> {
    while (this.rest.length === 0) {
      const { value, done } = await this.source.next();
      if (done) return null;
      this.rest = value;
    }
    const part = this.rest.subarray(0, most);
    this.rest = this.rest.subarray(part.length);
    return part;
  }

  /** Exactly so many; fewer only at the end. */
  async exactly(count: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    for (let left = count; left > 0;) {
      const part = await this.some(left);
      if (part === null) break;
      parts.push(part);
      left -= part.length;
    }
    return parts.length === 1 ? parts[0]! : Buffer.concat(parts);
  }

  async skip(count: number): Promise<void> {
    for (let left = count; left > 0;) {
      const part = await this.some(left);
      if (part === null) throw cut();
      left -= part.length;
    }
  }

  async drain(): Promise<void> {
    while ((await this.some(Number.MAX_SAFE_INTEGER)) !== null);
  }
}

const cut = () => new LayerRefused('It ends in the middle.');

/**
 * Reads the tar of an image's layer. Unlike `TarReader`, which takes what users pack, this takes what builders of images write:
 * entries twice, any order, links anywhere. Where a link leads is the writer's to decide; names with ".." are refused.
 * Entries whose names are not UTF-8 are passed over.
 * @throws LayerRefused
 */
export async function* readLayer(source: AsyncIterable<Buffer>): AsyncGenerator<LayerEntry> {
  const bytes = new Bytes(source);
  let pending: Overrides = {};
  let metaBytes = 0;
  for (;;) {
    const block = await bytes.exactly(BLOCK);
    // Some writers leave the two empty blocks out; that nothing is missing is seen by the digest.
    if (block.length === 0) return;
    if (block.length < BLOCK) throw cut();
    if (block.every((byte) => byte === 0)) return await bytes.drain();
    if (!checksumFits(block)) throw new LayerRefused('A header is damaged, or it holds no tar.');
    const type = block.toString('latin1', 156, 157);
    const size = sizeField(block);
    if (size === null) throw new LayerRefused('A header has a size that is no size.');
    if (metaTypes.has(type)) {
      metaBytes += size;
      if (metaBytes > maxHeaderBytes)
        throw new LayerRefused(`The headers of one entry are larger than ${maxHeaderBytes} bytes.`);
      const body = await bytes.exactly(size);
      if (body.length < size) throw cut();
      await bytes.skip(filling(size));
      readMeta(type, body, pending);
      continue;
    }
    const overrides = pending;
    pending = {};
    metaBytes = 0;
    const length = bodiless.has(type) ? 0 : (overrides.size ?? size);
    const path = overrides.path ?? nameOf(block);
    const body = new Body(bytes, length);
    if (path !== null) yield entryOf(block, type, path, overrides.linkpath, body);
    await body.pass();
    await bytes.skip(filling(length));
  }
}

const filling = (size: number) => (BLOCK - (size % BLOCK)) % BLOCK;

class Body implements AsyncIterable<Buffer> {
  constructor(
    private readonly bytes: Bytes,
    private left: number,
  ) {}

  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer> {
    while (this.left > 0) {
      const part = await this.bytes.some(this.left);
      if (part === null) throw cut();
      this.left -= part.length;
      yield part;
    }
  }

  async pass(): Promise<void> {
    await this.bytes.skip(this.left);
    this.left = 0;
  }
}

function readMeta(type: string, body: Buffer, into: Overrides): void {
  try {
    if (type === 'g') readPax(body, true, {});
    else if (type === 'x') readPax(body, false, into);
    else readGnuLong(body, type === 'L' ? 'path' : 'linkpath', into);
  } catch (error) {
    if (error instanceof ArchiveRefused)
      throw new LayerRefused(`An extended header breaks the rule ${error.rule}.`);
    throw error;
  }
}

/** The fixed name; null when it is not UTF-8. */
function nameOf(block: Buffer): string | null {
  const name = field(block, 0, 100).bytes;
  const prefix =
    block.toString('latin1', 257, 263) === 'ustar\0' ? field(block, 345, 155).bytes : Buffer.alloc(0);
  try {
    return decodeName(prefix.length > 0 ? Buffer.concat([prefix, Buffer.from('/'), name]) : name);
  } catch {
    return null;
  }
}

function entryOf(
  block: Buffer,
  type: string,
  path: string,
  linkpath: string | undefined,
  body: Body,
): LayerEntry {
  const mode = octal(block, 100, 8);
  if (mode === null) throw new LayerRefused('has unreadable permissions.', path);
  const kind = kindOf(type, path);
  const isLink = kind === 'symlink' || kind === 'hardlink';
  return {
    type: kind,
    segments: layerPath(path),
    mode: mode & 0o1777,
    mtime: octal(block, 136, 12) ?? 0,
    target: isLink ? (linkpath ?? targetOf(block, path)) : '',
    body,
  };
}

function targetOf(block: Buffer, path: string): string {
  try {
    return decodeName(field(block, 157, 100).bytes);
  } catch {
    throw new LayerRefused('is a link to a name that is not UTF-8.', path);
  }
}

function kindOf(type: string, path: string): LayerEntry['type'] {
  if (type === '5' || ((type === '0' || type === '\0') && path.endsWith('/'))) return 'directory';
  if (type === '0' || type === '\0' || type === '7') return 'file';
  if (type === '1') return 'hardlink';
  if (type === '2') return 'symlink';
  if (type === '3' || type === '4' || type === '6') return 'other';
  throw new LayerRefused(type === 'S' ? 'is a sparse file.' : 'is of an unknown kind.', path);
}

/** Names of a path from the root down. @throws LayerRefused for what leads upwards or is too long */
export function layerPath(path: string): string[] {
  const segments = path.split('/').filter((segment) => segment !== '' && segment !== '.');
  if (segments.includes('..')) throw new LayerRefused('has a ".." in its path.', path);
  if (path.includes('\0')) throw new LayerRefused('has a NUL in its path.', path);
  if (Buffer.byteLength(path) > maxPathBytes || segments.some((name) => Buffer.byteLength(name) > 255))
    throw new LayerRefused('has a name that is too long.', path);
  if (segments.length > maxLevels) throw new LayerRefused(`lies deeper than ${maxLevels} folders.`, path);
  return segments;
}
