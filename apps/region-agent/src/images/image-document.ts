import { createHash } from 'node:crypto';
import { type BlobRef } from '@nebo/contracts';
import { ImageFailure } from './image-failure.js';
import { type ImageSettings } from './manifest.js';

/** A layer as it is stored, with the hash of the tar inside. */
export interface ImageLayer extends BlobRef {
  diff_id: string;
}

/**
 * All that is needed to run an image, and what an image app's artifact is: the registry is never asked again. Equal images
 * have equal documents, whatever name they were pulled by.
 */
export interface ImageDocument {
  version: 1;
  /** Of what was named: the image, or the index that it was chosen from. */
  digest: string;
  /** Of the image for this platform. */
  manifest: string;
  settings: ImageSettings;
  /** Lowest first. */
  layers: ImageLayer[];
}

/** Most bytes of a document. */
export const maxImageDocument = 8 * 1024 * 1024;

/** The bytes of a document, always the same for the same image. */
export function writeDocument({ digest, manifest, settings, layers }: ImageDocument): {
  bytes: Buffer;
  blob: BlobRef;
} {
  const { user, env, entrypoint, cmd, working_dir, ports } = settings;
  const ordered = {
    ...{ version: 1, digest, manifest, settings: { user, env, entrypoint, cmd, working_dir, ports } },
    layers: layers.map(({ sha256, bytes, diff_id }) => ({ sha256, bytes, diff_id })),
  };
  const bytes = Buffer.from(JSON.stringify(ordered));
  if (bytes.length > maxImageDocument) throw new ImageFailure('The settings of the image are too large.');
  return { bytes, blob: { sha256: createHash('sha256').update(bytes).digest('hex'), bytes: bytes.length } };
}

/** Reads what `writeDocument` wrote; its hash has been checked. @throws Error when it is something else */
export function readDocument(bytes: Buffer): ImageDocument {
  const document = JSON.parse(bytes.toString('utf8')) as ImageDocument;
  if (document.version !== 1 || !Array.isArray(document.layers)) throw new Error('This is no image document');
  return document;
}
