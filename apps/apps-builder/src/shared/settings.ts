import { Inject, Injectable } from '@nestjs/common';
import { archiveLimitsFromEnv, artifactLimits, type ArchiveLimits } from '@nebo/archive';
import { ConfigError, RUNTIME, type Runtime } from '@nebo/service-kit';

/** The service's settings, read once at start. Durations in milliseconds. */
@Injectable()
export class Settings {
  /** Suffix of default domains. */
  readonly appsDomain: string;
  /** Limits of an uploaded folder. */
  readonly sourceLimits: ArchiveLimits;
  /** Largest artifact that a region may store, bytes. */
  readonly artifactBytes: number;
  /** How long a replica may take until it answers; less than the deadline of a rollout's start (10 min). */
  readonly readyTimeoutMs: number;
  /** How long an on-demand replica runs without a request before it is put to sleep. */
  readonly idleTimeoutMs: number;
  /** How long replaced replicas go on for requests that still run, after the edge has stopped sending new ones. */
  readonly drainMs: number;
  /** Several changes within this time restart once (interfaces.md, 10). */
  readonly restartDelayMs: number;
  /** Pause between two comments on a silent stream. */
  readonly keepAliveMs: number;

  constructor(@Inject(RUNTIME) { config }: Runtime) {
    this.appsDomain = config
      .text('NEBO_APPS_DOMAIN', 'apps.localhost')
      .toLowerCase()
      .replace(/^\.+|\.+$/g, '');
    try {
      this.sourceLimits = archiveLimitsFromEnv(config.env);
    } catch (error) {
      throw new ConfigError((error as Error).message);
    }
    this.artifactBytes = config.int('NEBO_ARTIFACT_MAX', artifactLimits.compressedBytes, { min: 1 });
    this.readyTimeoutMs = config.int('NEBO_READY_TIMEOUT', 120, { min: 1, max: 480 }) * 1_000;
    this.idleTimeoutMs = config.int('NEBO_IDLE_TIMEOUT', 300, { min: 1, max: 86_400 }) * 1_000;
    this.drainMs = config.int('NEBO_DRAIN_MS', 10_000, { max: 3_600_000 });
    this.restartDelayMs = config.int('NEBO_RESTART_DELAY_MS', 2_000, { max: 60_000 });
    this.keepAliveMs = config.int('NEBO_KEEP_ALIVE_MS', 15_000, { min: 10 });
  }
}
