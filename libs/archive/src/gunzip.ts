import { type Readable } from 'node:stream';
import { crc32, createInflateRaw } from 'node:zlib';
import { type ArchiveLimits } from './limits.js';
import { ArchiveRefused } from './refused.js';

const FHCRC = 2;
const FEXTRA = 4;
const FNAME = 8;
const FCOMMENT = 16;

const truncated = () => new ArchiveRefused('truncated', 'it ends in the middle. Send it again.');

/**
 * Length of the gzip header at the start of `bytes`, or null while it is not complete.
 * @throws ArchiveRefused `not_gzip`, `header_size`
 */
function headerLength(bytes: Buffer, limit: number): number | null {
  const notGzip = () =>
    new ArchiveRefused('not_gzip', 'it is not a gzip file. Send a .tar.gz of the folder.');
  if ((bytes.length > 0 && bytes[0] !== 0x1f) || (bytes.length > 1 && bytes[1] !== 0x8b)) throw notGzip();
  if (bytes.length > 2 && bytes[2] !== 8) throw notGzip();
  if (bytes.length < 10) return null;
  const flags = bytes.readUInt8(3);
  if (flags & 0xe0) throw notGzip();
  let at = 10;
  const tooLong = () => new ArchiveRefused('header_size', `its gzip header is longer than ${limit} bytes.`);
  if (flags & FEXTRA) {
    if (bytes.length < at + 2) return null;
    at += 2 + bytes.readUInt16LE(at);
  }
  for (const flag of [FNAME, FCOMMENT]) {
    if (!(flags & flag)) continue;
    const end = bytes.indexOf(0, at);
    if (end < 0) {
      if (bytes.length > limit) throw tooLong();
      return null;
    }
    at = end + 1;
  }
  if (flags & FHCRC) at += 2;
  if (at > limit) throw tooLong();
  return bytes.length < at ? null : at;
}

/** What has gone through a `gunzip` so far. */
export interface GunzipCount {
  compressed: number;
  expanded: number;
}

/** The next chunk of `source`, or a refusal when none comes within `idleMs`. */
async function nextWithin(source: AsyncIterator<Buffer>, idleMs: number): Promise<IteratorResult<Buffer>> {
  let timer: NodeJS.Timeout | undefined;
  const idle = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () =>
        reject(
          new ArchiveRefused('stalled', `nothing arrived for ${Math.ceil(idleMs / 1000)} s. Send it again.`),
        ),
      idleMs,
    );
  });
  try {
    return await Promise.race([source.next(), idle]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Expands exactly one gzip member, chunk by chunk. Node's own Gunzip accepts further members and ignores what follows
 * the last one, so header and trailer are read here and only the deflate part is zlib's.
 * @param onRaw sees (and may wait on) each compressed chunk: hash, copy to disk
 * @throws ArchiveRefused not_gzip, empty_body, truncated, corrupt, trailing_data, second_member, compressed_size,
 *   expanded_size, ratio, stalled
 */
export async function* gunzip(
  input: Readable | AsyncIterable<Buffer>,
  limits: ArchiveLimits,
  count: GunzipCount,
  onRaw?: (chunk: Buffer) => Promise<void> | void,
): AsyncGenerator<Buffer> {
  const inflate = createInflateRaw({ chunkSize: 64 * 1024 });
  const trailer = Buffer.alloc(8);
  let trailerBytes = 0;
  let crc = 0;
  let failure: unknown;

  const afterDeflate = (rest: Buffer): void => {
    const taken = Math.min(8 - trailerBytes, rest.length);
    rest.copy(trailer, trailerBytes, 0, taken);
    trailerBytes += taken;
    const extra = rest.subarray(taken);
    if (extra.length === 0) return;
    if (extra[0] === 0x1f && (extra.length === 1 || extra[1] === 0x8b))
      throw new ArchiveRefused(
        'second_member',
        'it holds a second gzip file behind the first. Pack it in one go.',
      );
    throw new ArchiveRefused('trailing_data', 'it has bytes behind its end. Pack the folder again.');
  };

  const feed = async (): Promise<void> => {
    let head: Buffer | null = Buffer.alloc(0);
    let deflateDone = false;
    // Left intact after a refusal: destroying a request would cut the connection before its answer.
    const source: AsyncIterator<Buffer> =
      'iterator' in input ? input.iterator({ destroyOnReturn: false }) : input[Symbol.asyncIterator]();
    try {
      for (;;) {
        const { value, done } = await nextWithin(source, limits.idleMs);
        if (done) break;
        let chunk: Buffer = Buffer.isBuffer(value) ? value : Buffer.from(value);
        if (chunk.length === 0) continue;
        count.compressed += chunk.length;
        if (count.compressed > limits.compressedBytes)
          throw new ArchiveRefused(
            'compressed_size',
            `it is larger than ${limits.compressedBytes} bytes. Leave files out with an ignore file.`,
          );
        await onRaw?.(chunk);
        if (head) {
          head = Buffer.concat([head, chunk]);
          const length = headerLength(head, limits.headerBytes);
          if (length === null) continue;
          chunk = head.subarray(length);
          head = null;
          if (chunk.length === 0) continue;
        }
        if (!deflateDone) {
          const before = inflate.bytesWritten;
          await new Promise<void>((resolve, reject) => {
            const failed = (error: Error) => reject(error);
            inflate.once('error', failed);
            // An abandoned inflater never calls back, so its closing ends the wait as well.
            inflate.once('close', resolve);
            inflate.write(chunk, (error) => {
              inflate.off('error', failed);
              inflate.off('close', resolve);
              if (error) reject(error);
              else resolve();
            });
          });
          if (inflate.destroyed && !inflate.readableEnded) return;
          const used = inflate.bytesWritten - before;
          if (used === chunk.length) continue;
          deflateDone = true;
          chunk = chunk.subarray(used);
        }
        afterDeflate(chunk);
      }
      if (count.compressed === 0)
        throw new ArchiveRefused('empty_body', 'the request has no body. Send a .tar.gz of the folder.');
      if (head || !deflateDone || trailerBytes < 8) throw truncated();
    } catch (error) {
      failure = error;
      inflate.destroy(error as Error);
      // Not awaited: an upload that hangs must not keep the refusal from its sender.
      void source.return?.();
      return;
    }
    inflate.end();
  };

  const feeding = feed();
  try {
    for await (const chunk of inflate as AsyncIterable<Buffer>) {
      count.expanded += chunk.length;
      crc = crc32(chunk, crc);
      if (count.expanded > limits.expandedBytes)
        throw new ArchiveRefused('expanded_size', `it holds more than ${limits.expandedBytes} bytes.`);
      if (count.expanded > limits.ratioAfterBytes && count.expanded > limits.ratio * count.compressed)
        throw new ArchiveRefused('ratio', `it expands to more than ${limits.ratio} times its size.`);
      yield chunk;
    }
    await feeding;
    if (failure) throw failure;
  } catch (error) {
    const cause = failure ?? error;
    if (cause instanceof ArchiveRefused) throw cause;
    const code = (cause as NodeJS.ErrnoException).code ?? '';
    // Anything that is not zlib's (a broken connection, a full disk) is not the archive's fault.
    if (!code.startsWith('Z_')) throw cause;
    throw new ArchiveRefused('corrupt', 'its compressed data are damaged. Send it again.');
  } finally {
    inflate.destroy();
  }
  if (trailer.readUInt32LE(0) !== crc || trailer.readUInt32LE(4) !== count.expanded % 2 ** 32)
    throw new ArchiveRefused('corrupt', 'its checksum is wrong. Send it again.');
}
