import { join } from 'node:path';
import { type BuildSpec, type ImageFacts } from '@nebo/contracts';
import { type BuildIo } from '../drivers/types.js';
import { type ArtifactCache } from '../replicas/artifact-cache.js';
import { type ImageDocument } from './image-document.js';
import { ImageFailure } from './image-failure.js';
import { portOf, userOf } from './image-plan.js';
import { megabytes, type PulledImage } from './image-pull.js';
import { ImageRoot } from './image-root.js';
import { unpackedImage } from './unpack-image.js';

/** What every image goes through before replicas are made of it, wherever it comes from. */
export class ImageIntake {
  constructor(
    private readonly parts: {
      /** Unpacked images, which replicas of this host are started from. */
      cache: ArtifactCache;
      /** Why no image can run on this host, as the end of a sentence; null: images run here. */
      fault(): Promise<string | null>;
    },
  ) {}

  /** @throws ImageFailure where no image can run */
  async admit(): Promise<void> {
    const fault = await this.parts.fault();
    if (fault !== null) throw new ImageFailure(`This region cannot run images: ${fault}.`);
  }

  /** What would keep every replica from starting is said now. @throws ImageFailure */
  check({ settings }: ImageDocument, spec: BuildSpec, say: (line: string) => void): void {
    if (!spec.start_command && settings.entrypoint.length + settings.cmd.length === 0)
      throw new ImageFailure(
        'The image starts nothing by itself (no ENTRYPOINT and no CMD); set start_command.',
      );
    const { port, from } = portOf(settings, spec.env);
    say(`the app is asked at port ${port} (${from}); it is in PORT`);
  }

  /** Unpacks it once for all replicas. @throws ImageFailure, the signal's reason */
  async unpack({ artifact, local, document }: PulledImage, io: Pick<BuildIo, 'signal' | 'log'>) {
    const began = Date.now();
    const folder = await this.parts.cache.hold(artifact.sha256, local, io.signal);
    try {
      // An unknown user would keep every replica from starting.
      userOf(document.settings, await new ImageRoot(join(folder, unpackedImage.root)).text('/etc/passwd'));
    } finally {
      this.parts.cache.release(artifact.sha256);
    }
    const total = document.layers.reduce((sum, { bytes }) => sum + bytes, 0);
    const seconds = ((Date.now() - began) / 1000).toFixed(1);
    io.log.line(`${document.layers.length} layers, ${megabytes(total)} packed, unpacked in ${seconds} s`);
  }
}

export const imageFacts = ({ digest, layers }: ImageDocument): ImageFacts => ({
  digest,
  layers: layers.map(({ sha256, bytes }) => ({ sha256, bytes })),
});
