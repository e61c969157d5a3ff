import { createHash } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { applyLayer, LayerRefused, RootTree } from '@nebo/archive';
import { type BlobAccess } from '../drivers/types.js';
import { type Unpack } from '../replicas/artifact-cache.js';
import { ImageFailure } from './image-failure.js';
import { maxImageDocument, readDocument } from './image-document.js';
import { budgetOf, type ImageLimits } from './image-limits.js';

/** The group of all files of all images on a host. Processes of image apps are in it, each under a user of its own. */
export const imageGid = 199_999;

/** In an unpacked image's folder: the root file system, and the document. */
export const unpackedImage = { root: 'root', document: 'image.json' } as const;

/** Unpacks images by their documents, whose layers come from the blob store. */
export function imageUnpacker(limits: ImageLimits): Unpack {
  return async (sha256, into, blobs, signal) => {
    const bytes = await documentBytes(sha256, blobs, signal);
    const found = createHash('sha256').update(bytes).digest('hex');
    if (found !== sha256) return { sha256: found, bytes: bytes.length };
    const { layers } = readDocument(bytes);
    const root = join(into, unpackedImage.root);
    await mkdir(into, { mode: 0o755 });
    await mkdir(root, { mode: 0o755 });
    const tree = new RootTree(root, limits, process.getuid?.() === 0 ? imageGid : null);
    const budget = budgetOf(limits);
    let expanded = 0;
    for (const [index, layer] of layers.entries()) {
      const shown = `Layer ${index + 1} of ${layers.length} (${layer.sha256.slice(0, 12)})`;
      const source = await blobs.get(layer.sha256, signal);
      try {
        const applied = await applyLayer(source, tree, budget, signal);
        if (applied.sha256 !== layer.sha256)
          throw new Error(`${shown} came with other bytes (${applied.sha256})`);
        if (`sha256:${applied.diffId}` !== layer.diff_id)
          throw new ImageFailure(`${shown} holds something else than the image settings say.`);
        expanded += applied.expandedBytes;
      } catch (error) {
        if (error instanceof LayerRefused)
          throw new ImageFailure(`${shown} cannot be unpacked: ${error.message}`);
        throw error;
      } finally {
        source.on('error', () => undefined).destroy();
      }
    }
    await writeFile(join(into, unpackedImage.document), bytes);
    return { sha256, bytes: expanded };
  };
}

/** The bytes of a document. @throws Error when they are too many */
export async function documentBytes(sha256: string, blobs: BlobAccess, signal: AbortSignal): Promise<Buffer> {
  const parts: Buffer[] = [];
  let size = 0;
  for await (const part of (await blobs.get(sha256, signal)) as AsyncIterable<Buffer>) {
    size += part.length;
    if (size > maxImageDocument) throw new Error('An image document is larger than it may be');
    parts.push(part);
  }
  return Buffer.concat(parts);
}
