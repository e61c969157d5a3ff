import { type BlobRef } from '@nebo/contracts';
import { type BlobAccess } from '../drivers/types.js';
import { type ArtifactCache } from './artifact-cache.js';

/** What replicas and runs are started from, as their specs name it. */
export interface StartedFrom {
  artifact: BlobRef;
  image?: boolean;
}

/** Folders of built artifacts and unpacked images on this host. */
export class Artifacts {
  constructor(
    private readonly built: ArtifactCache,
    private readonly images: ArtifactCache,
  ) {}

  async start(): Promise<void> {
    await this.built.start();
    await this.images.start();
  }

  /** @throws when it cannot be fetched or its bytes have another hash */
  hold(of: StartedFrom, blobs: BlobAccess, signal: AbortSignal): Promise<string> {
    return this.cache(of).hold(of.artifact.sha256, blobs, signal);
  }

  release(of: StartedFrom): void {
    this.cache(of).release(of.artifact.sha256);
  }

  private cache({ image }: StartedFrom): ArtifactCache {
    return image ? this.images : this.built;
  }
}
