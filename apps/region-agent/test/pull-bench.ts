import { createHash } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { type ImageSource, parseImageReference } from '@nebo/contracts';
import { createSafeClient, parseAllowList } from '@nebo/safe-net';
import { hostArchitecture, testImage, testLayer, type TestImageOptions } from '@nebo/test-kit';
import { type BlobAccess } from '../src/drivers/types.js';
import { ImageFailure } from '../src/images/image-failure.js';
import { defaultImageLimits, type ImageLimits } from '../src/images/image-limits.js';
import { ImagePull, type PulledImage } from '../src/images/image-pull.js';
import { registryPorts } from '../src/images/registry.js';

export const layerOf = (text: string) => testLayer([{ path: 'page', bytes: text }]);
export const imageOf = (text: string, more: Partial<TestImageOptions> = {}) =>
  testImage({ layers: [layerOf(text)], config: { Cmd: ['/page'] }, ...more });

/** What of a pull is other than usual. */
export interface PullHow extends Partial<ImageSource> {
  limits?: Partial<ImageLimits>;
  allow?: string;
  signal?: AbortSignal;
}

/** Pulls images into a blob store in memory. */
export class PullBench {
  readonly stored = new Map<string, Buffer>();
  readonly lines: string[] = [];
  /** For layers on their way; of one test. */
  dir = '';
  readonly blobs: BlobAccess = {
    get: (sha256) => Promise.resolve(Readable.from([this.stored.get(sha256)!])),
    put: async (blob, open) => {
      const bytes = await buffer(open());
      expect(createHash('sha256').update(bytes).digest('hex')).toBe(blob.sha256);
      expect(bytes.length).toBe(blob.bytes);
      this.stored.set(blob.sha256, bytes);
    },
  };

  /** @param allowed `host:port` of the registries, which are at private addresses */
  constructor(private readonly allowed: () => string[]) {}

  /** Empty, for another test. */
  async begin(): Promise<void> {
    this.dir = await mkdtemp(join(tmpdir(), 'nebo-pull-'));
    this.stored.clear();
    this.lines.length = 0;
  }

  end(): Promise<void> {
    return rm(this.dir, { recursive: true, force: true });
  }

  async pull(reference: string, { limits, allow, signal, ...source }: PullHow = {}): Promise<PulledImage> {
    const list = parseAllowList(allow ?? this.allowed().join(','));
    return new ImagePull(
      {
        ...{ reference, name: parseImageReference(reference) },
        ...{ digest: null, stored: null, known_layers: [] },
        ...source,
      },
      {
        ...{ blobs: this.blobs, dir: this.dir, allow: list, architecture: hostArchitecture, pauseMs: 5 },
        client: createSafeClient({ allow: list, ports: registryPorts, httpsOnly: true }),
        limits: { ...defaultImageLimits, ...limits },
        signal: signal ?? new AbortController().signal,
        say: (line) => this.lines.push(line),
      },
    ).run();
  }

  async refused(work: Promise<unknown>, why: RegExp): Promise<void> {
    await expect(work).rejects.toThrow(ImageFailure);
    await expect(work).rejects.toThrow(why);
    // What was refused is nowhere named by a document.
    const isDocument = (bytes: Buffer) => bytes.toString('latin1', 0, 12) === '{"version":1';
    expect([...this.stored.values()].some(isDocument)).toBe(false);
  }
}
