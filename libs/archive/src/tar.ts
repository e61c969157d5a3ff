import { type ArchiveLimits } from './limits.js';
import { type Overrides, readGnuLong, readPax } from './pax.js';
import { checkCharacters, decodeName, entrySegments, isAbsolute, type PathRegistry } from './paths.js';
import { ArchiveRefused, printable } from './refused.js';
import { BLOCK, checksumFits, field, octal, sizeField } from './tar-block.js';

/** One entry that passed every check. */
export interface TarEntry {
  type: 'file' | 'directory' | 'symlink' | 'hardlink';
  /** Relative, forward slashes, without `.` segments. */
  path: string;
  /** Of files: bytes that follow. */
  size: number;
  executable: boolean;
  /** Of symbolic links as written, of hard links the path of the file. */
  target: string | null;
}

/** Told about what an archive holds, in order; a promise holds the reader until it is settled. */
export interface TarSink {
  entry(entry: TarEntry): Promise<void> | void;
  data(chunk: Buffer): Promise<void> | void;
  /** The file's last byte has been given. */
  fileEnd(): Promise<void> | void;
}

type Meta = 'x' | 'g' | 'L' | 'K';
const metaTypes: ReadonlySet<string> = new Set(['x', 'g', 'L', 'K']);

/**
 * Reads a tar stream strictly: what two readers could understand differently is refused. Constant memory: one header,
 * the extension headers of one entry, and digests of paths.
 */
export class TarReader {
  entries = 0;
  private readonly head = Buffer.alloc(BLOCK);
  private headBytes = 0;
  /** Bytes of the present body still to come, and zero bytes that fill its last block. */
  private left = 0;
  private padding = 0;
  private meta: { type: Meta; body: Buffer; at: number } | null = null;
  private metaBytes = 0;
  private pending: Overrides | null = null;
  private paxSeen = false;
  private zeroBlocks = 0;

  constructor(
    private readonly limits: ArchiveLimits,
    private readonly paths: PathRegistry,
    private readonly sink: TarSink,
  ) {}

  /** Takes the next expanded bytes. */
  async push(chunk: Buffer): Promise<void> {
    let at = 0;
    while (at < chunk.length) {
      if (this.left > 0) {
        const part = chunk.subarray(at, at + this.left);
        at += part.length;
        this.left -= part.length;
        if (this.meta) {
          part.copy(this.meta.body, this.meta.at);
          this.meta.at += part.length;
          if (this.left === 0) this.readMeta();
        } else {
          const wait = this.sink.data(part);
          if (wait) await wait;
          if (this.left === 0) await this.sink.fileEnd();
        }
      } else if (this.padding > 0) {
        const skipped = Math.min(this.padding, chunk.length - at);
        this.padding -= skipped;
        at += skipped;
      } else {
        const part = chunk.subarray(at, at + BLOCK - this.headBytes);
        part.copy(this.head, this.headBytes);
        this.headBytes += part.length;
        at += part.length;
        if (this.headBytes === BLOCK) {
          this.headBytes = 0;
          await this.header(this.head);
        }
      }
    }
  }

  /** The stream is over. */
  end(): void {
    if (this.left > 0 || this.padding > 0 || this.pending || this.zeroBlocks < 2)
      throw new ArchiveRefused('truncated', 'it ends in the middle. Send it again.');
    // Filling up to a record's end may be any number of zeros, but whole bytes of another header are no filling.
    if (this.headBytes > 0 && this.head.subarray(0, this.headBytes).some((byte) => byte !== 0))
      throw trailing();
    if (this.entries === 0)
      throw new ArchiveRefused('empty_archive', 'it holds no files. Pack a folder with files.');
  }

  private async header(block: Buffer): Promise<void> {
    const zero = block.every((byte) => byte === 0);
    if (this.zeroBlocks > 0 || zero) {
      if (!zero) throw trailing();
      if (this.pending)
        throw new ArchiveRefused('truncated', 'its last header has no entry. Pack the folder again.');
      this.zeroBlocks++;
      return;
    }
    if (!checksumFits(block))
      throw new ArchiveRefused(
        'bad_header',
        'a header is damaged, or the gzip file holds no tar. Send a .tar.gz.',
      );
    const magic = block.toString('latin1', 257, 265);
    if (magic !== 'ustar\x0000' && magic !== 'ustar  \0')
      throw new ArchiveRefused(
        'bad_header',
        'a header is neither of format ustar nor GNU. Pack with a current tar.',
      );
    const type = block.toString('latin1', 156, 157);
    const size = sizeField(block);
    if (size === null)
      throw new ArchiveRefused('size_field', 'a header has a negative, huge or unreadable size. Pack again.');
    if (metaTypes.has(type)) this.startMeta(type as Meta, size);
    else await this.startEntry(block, type, size, magic.startsWith('ustar\0'));
  }

  private startMeta(type: Meta, size: number): void {
    this.metaBytes += size + BLOCK;
    if (size > this.limits.headerBytes || this.metaBytes > this.limits.headerBytes + 3 * BLOCK)
      throw new ArchiveRefused(
        'header_size',
        `the headers of one entry are larger than ${this.limits.headerBytes} bytes. Pack without extra attributes.`,
      );
    if (size === 0)
      throw new ArchiveRefused('bad_header', 'an extended header is empty. Pack the folder again.');
    if (type === 'x') {
      if (this.paxSeen)
        throw new ArchiveRefused(
          'path_override',
          'one entry has two extended headers. Pack the folder again.',
        );
      this.paxSeen = true;
    }
    this.meta = { type, body: Buffer.alloc(size), at: 0 };
    this.left = size;
    this.padding = (BLOCK - (size % BLOCK)) % BLOCK;
  }

  private readMeta(): void {
    const { type, body } = this.meta!;
    this.meta = null;
    if (type === 'g') {
      readPax(body, true, {});
      return;
    }
    this.pending ??= {};
    if (type === 'x') readPax(body, false, this.pending);
    else readGnuLong(body, type === 'L' ? 'path' : 'linkpath', this.pending);
  }

  /** The entry's name: an extension header's, else the fixed field's. Both must be harmless. */
  private name(block: Buffer, ustar: boolean, override: string | undefined): string {
    const name = field(block, 0, 100);
    const prefix = ustar ? field(block, 345, 155) : { bytes: Buffer.alloc(0), hidden: false };
    const raw = prefix.bytes.length
      ? Buffer.concat([prefix.bytes, Buffer.from('/'), name.bytes])
      : name.bytes;
    const shown = printable(override ?? raw.toString('utf8'));
    if (name.hidden || prefix.hidden)
      throw new ArchiveRefused(
        'path_control',
        'has a NUL in its name. Rename the file and pack again.',
        shown,
      );
    if (override === undefined) return decodeName(raw);
    // A simpler reader would take the fixed field instead, so it may not say anything dangerous either.
    const simple = raw.toString('latin1').replace(/[\x80-\xff]/g, '_');
    checkCharacters(simple, shown);
    if (isAbsolute(simple) || simple.split('/').includes('..'))
      throw new ArchiveRefused(
        'path_override',
        'has a second, unsafe name in its header. Pack again.',
        shown,
      );
    return override;
  }

  private async startEntry(block: Buffer, type: string, headerSize: number, ustar: boolean): Promise<void> {
    const overrides = this.pending ?? {};
    this.pending = null;
    this.paxSeen = false;
    this.metaBytes = 0;
    const path = this.name(block, ustar, overrides.path);
    const shown = printable(path);
    if (++this.entries > this.limits.entries)
      throw new ArchiveRefused('entries', `it holds more than ${this.limits.entries} entries.`);
    const segments = entrySegments(path, this.limits);
    if (type === 'S') throw new ArchiveRefused('sparse', 'is a sparse file. Pack without --sparse.', shown);
    const kind = this.kind(type, path, shown);
    if (overrides.size !== undefined && overrides.size !== headerSize)
      throw new ArchiveRefused('size_field', 'has two different sizes in its headers. Pack again.', shown);
    if (kind !== 'file' && headerSize !== 0)
      throw new ArchiveRefused('size_field', 'is no file and yet has a size. Pack again.', shown);
    if (headerSize > this.limits.expandedBytes)
      throw new ArchiveRefused('expanded_size', `is larger than ${this.limits.expandedBytes} bytes.`, shown);
    const mode = octal(block, 100, 8);
    if (mode === null)
      throw new ArchiveRefused('bad_header', 'has unreadable permissions. Pack again.', shown);
    if (mode & 0o6000)
      throw new ArchiveRefused('set_id_bits', 'has a set-uid or set-gid bit. Remove it (chmod a-s).', shown);
    const target = this.register(block, kind, path, segments, overrides);
    const executable = kind === 'file' && (mode & 0o111) !== 0;
    if (segments.length > 0) {
      const wait = this.sink.entry({
        type: kind,
        path: segments.join('/'),
        size: headerSize,
        executable,
        target,
      });
      if (wait) await wait;
    }
    this.left = headerSize;
    this.padding = (BLOCK - (headerSize % BLOCK)) % BLOCK;
    if (kind === 'file' && headerSize === 0) await this.sink.fileEnd();
  }

  private kind(type: string, path: string, shown: string): TarEntry['type'] {
    const slash = path.endsWith('/') || path.endsWith('/.') || path === '.';
    if (type === '5' || ((type === '0' || type === '\0') && slash)) return 'directory';
    if (slash)
      throw new ArchiveRefused('entry_type', 'is named like a folder but is none. Pack again.', shown);
    if (type === '0' || type === '\0') return 'file';
    if (type === '2') return 'symlink';
    if (type === '1') return 'hardlink';
    const named: Record<string, string> = { 3: 'a device', 4: 'a device', 6: 'a named pipe' };
    const what = named[type] ?? 'of an unknown kind';
    throw new ArchiveRefused('entry_type', `is ${what}. Only files, folders and links are taken.`, shown);
  }

  private register(
    block: Buffer,
    kind: TarEntry['type'],
    path: string,
    segments: string[],
    overrides: Overrides,
  ): string | null {
    if (segments.length === 0) {
      if (kind !== 'directory')
        throw new ArchiveRefused('path_empty', 'an entry that is no folder has no name.');
      return null;
    }
    if (kind === 'file' || kind === 'directory') {
      this.paths.add(segments, kind, path);
      return null;
    }
    const fixed = field(block, 157, 100);
    if (fixed.hidden)
      throw new ArchiveRefused('path_control', 'has a NUL in its link target. Pack again.', printable(path));
    const target = overrides.linkpath ?? decodeName(fixed.bytes);
    if (kind === 'symlink') {
      this.paths.checkSymlink(segments, target, path);
      this.paths.add(segments, 'symlink', path);
      return target;
    }
    const file = this.paths.checkHardlink(target, path);
    this.paths.add(segments, 'file', path);
    return file.join('/');
  }
}

const trailing = () =>
  new ArchiveRefused('trailing_data', 'it has bytes behind its end. Pack the folder again.');
