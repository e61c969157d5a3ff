import { createReadStream } from 'node:fs';
import { open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { type BlobRef, type ImageSource } from '@nebo/contracts';
import { type AllowList, type SafeClient } from '@nebo/safe-net';
import { type BlobAccess } from '../drivers/types.js';
import { Places } from '../system/timing.js';
import { type ImageDocument, type ImageLayer, writeDocument } from './image-document.js';
import { ImageFailure } from './image-failure.js';
import { type ImageLimits } from './image-limits.js';
import { localBlobs } from './local-blobs.js';
import {
  chooseManifest,
  type Descriptor,
  type ImageManifest,
  readManifest,
  readSettings,
} from './manifest.js';
import { Registry } from './registry.js';
import { loginFor } from './registry-login.js';

/** Layers that are pulled at a time. */
const pulledAtOnce = 3;

export interface PullParts {
  client: SafeClient;
  allow: AllowList;
  blobs: BlobAccess;
  limits: ImageLimits;
  /** Folder for layers on their way; the caller removes it. */
  dir: string;
  /** The processor of this host, as manifests say it. */
  architecture: string;
  signal: AbortSignal;
  say(line: string): void;
  pauseMs?: number;
}

/** A pulled image: all its bytes are in the blob store. */
export interface PulledImage {
  document: ImageDocument;
  artifact: BlobRef;
  /** The same bytes, as long as they are on this host. */
  local: BlobAccess;
}

/** Fetches an image from its registry and stores it, layer by layer, as it came. */
export class ImagePull {
  private readonly registry: Registry;
  private readonly pulled = new Set<string>();

  constructor(
    private readonly source: ImageSource,
    private readonly parts: PullParts,
  ) {
    const { client, allow, signal, pauseMs } = parts;
    this.registry = new Registry(source.name, {
      ...{ client, allow, signal, login: loginFor(source, (line) => parts.say(line)) },
      ...(pauseMs === undefined ? {} : { pauseMs }),
    });
  }

  /**
   * Names, checks and stores everything that the image consists of.
   * @throws ImageFailure with a sentence for the user, the signal's reason
   */
  async run(): Promise<PulledImage> {
    const { parts } = this;
    const { tag, digest } = this.source.name;
    const named = await this.registry.manifest(this.source.digest ?? digest ?? tag!);
    parts.say(`${this.source.reference} is ${named.digest}`);
    const { manifest, digest: ofManifest } = await this.choose(named);
    const { settings, diffIds } = readSettings(
      await this.registry.document(manifest.config),
      parts.architecture,
    );
    if (diffIds.length !== manifest.layers.length)
      throw new ImageFailure(
        `The image names ${manifest.layers.length} layers, and its settings ${diffIds.length}.`,
      );
    const layers = manifest.layers.map(({ digest: each, size }, index) => ({
      sha256: each.slice('sha256:'.length),
      bytes: size,
      diff_id: diffIds[index]!,
    }));
    this.checkSize(layers);
    await this.fetch(manifest.layers);
    const document: ImageDocument = {
      version: 1,
      digest: named.digest,
      manifest: ofManifest,
      settings,
      layers,
    };
    const { bytes, blob } = writeDocument(document);
    await parts.blobs.put(blob, () => Readable.from([bytes]), parts.signal);
    return {
      document,
      artifact: blob,
      local: localBlobs(parts.blobs, { sha256: blob.sha256, bytes }, (sha256) =>
        this.pulled.has(sha256) ? this.path(sha256) : undefined,
      ),
    };
  }

  /** The image for this host, of an index or alone. */
  private async choose(named: {
    bytes: Buffer;
    digest: string;
  }): Promise<{ manifest: ImageManifest; digest: string }> {
    const first = readManifest(named.bytes);
    if (first.kind === 'image') return { manifest: first, digest: named.digest };
    const chosen = chooseManifest(first, this.parts.architecture);
    const { bytes, digest } = await this.registry.manifest(chosen.digest);
    const second = readManifest(bytes);
    if (second.kind !== 'image')
      throw new ImageFailure('The image is an index in an index, which is not known here.');
    return { manifest: second, digest };
  }

  private checkSize(layers: readonly ImageLayer[]): void {
    const { compressedBytes } = this.parts.limits;
    const total = layers.reduce((sum, { bytes }) => sum + bytes, 0);
    if (total > compressedBytes)
      throw new ImageFailure(
        `The image has ${megabytes(total)} to pull, and ${megabytes(compressedBytes)} are the most that an image may have.`,
      );
  }

  private async fetch(layers: readonly Descriptor[]): Promise<void> {
    // The first failure ends the others; what is on its way must not write any more when this is settled.
    const stop = new AbortController();
    const signal = AbortSignal.any([stop.signal, this.parts.signal]);
    const places = new Places(pulledAtOnce);
    const unique = [...new Map(layers.map((layer) => [layer.digest, layer])).values()];
    const work = unique.map((layer, index) =>
      places
        .run(() => this.layer(layer, `layer ${index + 1} of ${unique.length}`, signal), signal)
        .catch((error: unknown) => {
          stop.abort(error);
          throw error;
        }),
    );
    await Promise.allSettled(work);
    this.parts.signal.throwIfAborted();
    if (stop.signal.aborted) throw stop.signal.reason;
  }

  private async layer(layer: Descriptor, shown: string, signal: AbortSignal): Promise<void> {
    const { blobs, say } = this.parts;
    const sha256 = layer.digest.slice('sha256:'.length);
    const short = sha256.slice(0, 12);
    if (this.source.known_layers.includes(sha256)) return say(`${shown}: ${short} is here already`);
    const began = Date.now();
    const path = this.path(sha256);
    const file = await open(path, 'w', 0o600);
    try {
      await this.registry.blob(layer, {
        begin: () => file.truncate(0),
        write: async (chunk) => {
          signal.throwIfAborted();
          await file.appendFile(chunk);
        },
      });
    } finally {
      await file.close();
    }
    await blobs.put({ sha256, bytes: layer.size }, () => createReadStream(path), signal);
    this.pulled.add(sha256);
    say(`${shown}: ${short}, ${megabytes(layer.size)} in ${((Date.now() - began) / 1000).toFixed(1)} s`);
  }

  private path(sha256: string): string {
    return join(this.parts.dir, `${sha256}.layer`);
  }

  /** Removes what is left on this host. */
  async clear(): Promise<void> {
    for (const sha256 of this.pulled) await rm(this.path(sha256), { force: true });
  }
}

/** As `12.3 MB`. */
export const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;
