import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { type BlobAccess } from '../drivers/types.js';

/**
 * The blobs of an image that has just been stored, read from this host as long as they are on it.
 * @param document the image's document, which is small
 * @param file where a layer lies; undefined: it does not
 */
export function localBlobs(
  blobs: BlobAccess,
  document: { sha256: string; bytes: Buffer },
  file: (sha256: string) => string | undefined,
): BlobAccess {
  return {
    put: (blob, open, signal) => blobs.put(blob, open, signal),
    get: async (sha256, signal) => {
      if (sha256 === document.sha256) return Readable.from([document.bytes]);
      const path = file(sha256);
      if (path !== undefined && (await stat(path).catch(() => null))) return createReadStream(path);
      return blobs.get(sha256, signal);
    },
  };
}
