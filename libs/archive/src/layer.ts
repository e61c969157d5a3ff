import { createHash, type Hash } from 'node:crypto';
import { PassThrough, type Readable, type Transform } from 'node:stream';
import { createGunzip, createZstdDecompress } from 'node:zlib';
import { readLayer, LayerRefused } from './layer-tar.js';
import { type RootTree } from './root-tree.js';

/** What all layers of an image may be together, bytes; spent as they are unpacked. */
export class LayerBudget {
  private left: number;

  /**
   * @param expandedBytes of all layers
   * @param ratio expanded : compressed of one layer, looked at once more than `ratioAfterBytes` have been expanded
   */
  constructor(
    readonly expandedBytes: number,
    readonly ratio: number,
    readonly ratioAfterBytes: number,
  ) {
    this.left = expandedBytes;
  }

  /** @throws LayerRefused */
  spend(bytes: number): void {
    this.left -= bytes;
    if (this.left < 0) throw new LayerRefused(`The image holds more than ${this.expandedBytes} bytes.`);
  }
}

/** What a layer turned out to be. */
export interface AppliedLayer {
  /** Of the bytes as they came, hex. */
  sha256: string;
  bytes: number;
  /** Of the tar inside, hex. */
  diffId: string;
  expandedBytes: number;
}

/**
 * Unpacks one layer into a tree: gzip, zstd or plain tar, told by its first bytes. The caller compares the hashes and throws
 * the tree away when they differ.
 * @throws LayerRefused, the signal's reason, or the file system's error
 */
export async function applyLayer(
  source: Readable,
  tree: RootTree,
  budget: LayerBudget,
  signal: AbortSignal,
): Promise<AppliedLayer> {
  const raw = createHash('sha256');
  const inner = createHash('sha256');
  const count = { raw: 0, inner: 0 };
  const expanded = await expand(source, raw, count);
  async function* counted(): AsyncGenerator<Buffer> {
    for await (const chunk of expanded as AsyncIterable<Buffer>) {
      signal.throwIfAborted();
      budget.spend(chunk.length);
      count.inner += chunk.length;
      if (count.inner > budget.ratioAfterBytes && count.inner > budget.ratio * count.raw)
        throw new LayerRefused(`It expands to more than ${budget.ratio} times its size.`);
      inner.update(chunk);
      yield chunk;
    }
  }
  tree.beginLayer();
  try {
    for await (const entry of readLayer(counted())) await tree.apply(entry);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? '';
    if (code.startsWith('Z_') || code.startsWith('ZSTD_') || code === 'ERR_STREAM_PREMATURE_CLOSE')
      throw new LayerRefused('Its compressed data are damaged.');
    throw error;
  } finally {
    expanded.destroy();
    source.destroy();
  }
  return {
    sha256: raw.digest('hex'),
    bytes: count.raw,
    diffId: inner.digest('hex'),
    expandedBytes: count.inner,
  };
}

/** The tar in a stream, by its first four bytes. */
async function expand(source: Readable, hash: Hash, count: { raw: number }): Promise<Transform> {
  const bytes = source[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
  const first: Buffer[] = [];
  let known = 0;
  while (known < 4) {
    const { value, done } = await bytes.next();
    if (done) break;
    first.push(value);
    known += value.length;
  }
  const head = Buffer.concat(first);
  const into = decoder(head);
  const feed = async () => {
    const give = async (chunk: Buffer) => {
      hash.update(chunk);
      count.raw += chunk.length;
      if (!into.write(chunk)) await drained(into);
    };
    if (head.length > 0) await give(head);
    for (;;) {
      const { value, done } = await bytes.next();
      if (done || into.destroyed) break;
      await give(value);
    }
    into.end();
  };
  feed().catch((error: Error) => into.destroy(error));
  return into;
}

function decoder(head: Buffer): Transform {
  if (head[0] === 0x1f && head[1] === 0x8b) return createGunzip();
  if (head.length >= 4 && head.readUInt32LE(0) === 0xfd2fb528) return createZstdDecompress();
  return new PassThrough();
}

const drained = (stream: Transform): Promise<void> =>
  new Promise((resolve) => {
    const go = () => {
      stream.off('drain', go);
      stream.off('close', go);
      resolve();
    };
    stream.once('drain', go);
    stream.once('close', go);
  });
