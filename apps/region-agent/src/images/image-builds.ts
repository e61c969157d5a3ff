import { type BuildSpec, type ImageSource } from '@nebo/contracts';
import { type SafeClient, type AllowList } from '@nebo/safe-net';
import { type AgentLog } from '../agent-log.js';
import { type BuildDriver, type BuildIo, type BuildOutcome, type DriverName } from '../drivers/types.js';
import { type Runs } from '../system/runs.js';
import { readDocument } from './image-document.js';
import { ImageFailure } from './image-failure.js';
import { type ImageLimits } from './image-limits.js';
import { imageFacts, type ImageIntake } from './image-intake.js';
import { ImagePull, type PulledImage } from './image-pull.js';
import { architectureOf } from './manifest.js';
import { documentBytes } from './unpack-image.js';

export interface ImageBuildParts {
  client: SafeClient;
  allow: AllowList;
  limits: ImageLimits;
  intake: ImageIntake;
  runs: Runs;
  log: AgentLog;
  /** A pull with all that belongs to it, milliseconds. */
  wallMs: number;
}

/** Builds of image apps: the image is pulled, checked, stored and unpacked. All other builds are another driver's. */
export class ImageBuildDriver implements BuildDriver {
  constructor(
    private readonly others: BuildDriver,
    private readonly parts: ImageBuildParts,
  ) {}

  get name(): DriverName {
    return this.others.name;
  }

  get isolated(): boolean {
    return this.others.isolated;
  }

  get caches(): BuildDriver['caches'] {
    return this.others.caches;
  }

  start(): Promise<void> {
    return this.others.start();
  }

  build(id: string, spec: BuildSpec, io: BuildIo): Promise<BuildOutcome> {
    return spec.image ? this.pull(id, spec, spec.image, io) : this.others.build(id, spec, io);
  }

  private async pull(id: string, spec: BuildSpec, source: ImageSource, io: BuildIo): Promise<BuildOutcome> {
    const began = Date.now();
    const run = this.parts.runs.create('build', id);
    const late = AbortSignal.timeout(this.parts.wallMs);
    const signal = AbortSignal.any([io.signal, late]);
    const step = { name: 'pull' };
    try {
      await this.parts.intake.admit();
      const image = await this.image(source, { ...io, signal }, run.dir, step);
      this.parts.intake.check(image.document, spec, (line) => io.log.line(line));
      step.name = 'unpack';
      io.log.line('\u001b[1m==> unpack\u001b[0m');
      await this.parts.intake.unpack(image, { ...io, signal });
      return {
        state: 'success',
        facts: {
          artifact: image.artifact,
          artifact_kind: 'server',
          start_command: spec.start_command,
          stack: 'image',
          duration_ms: Date.now() - began,
          image: imageFacts(image.document),
        },
      };
    } catch (error) {
      io.signal.throwIfAborted();
      const reason = late.aborted
        ? `${step.name}: The image took longer than ${Math.round(this.parts.wallMs / 60_000)} minutes.`
        : this.reason(id, step.name, error);
      io.log.line(`\u001b[31m${reason}\u001b[0m`);
      return { state: 'error', reason };
    } finally {
      await run.forget();
    }
  }

  private reason(id: string, step: string, error: unknown): string {
    if (error instanceof ImageFailure) return `${step}: ${error.message}`;
    const text = String((error as Error)?.stack ?? error);
    this.parts.log.error({ build: id, step, error: text }, 'build step failed inside');
    return `${step}: the region could not finish this step. Deploy again; the operator's log has the cause.`;
  }

  /** From the registry, or the bytes of an earlier build. */
  private async image(
    source: ImageSource,
    io: BuildIo,
    dir: string,
    step: { name: string },
  ): Promise<PulledImage> {
    const say = (line: string) => io.log.line(line);
    if (source.stored !== null) {
      step.name = 'fetch';
      say('\u001b[1m==> fetch\u001b[0m');
      const document = readDocument(await documentBytes(source.stored.sha256, io.blobs, io.signal));
      say(`${source.reference} as it was stored: ${document.digest}`);
      return { document, artifact: source.stored, local: io.blobs };
    }
    say('\u001b[1m==> pull\u001b[0m');
    const { client, allow, limits } = this.parts;
    const architecture = architectureOf(process.arch);
    const parts = { client, allow, limits, blobs: io.blobs, dir, architecture, signal: io.signal, say };
    return new ImagePull(source, parts).run();
  }
}
