import { isIP } from 'node:net';
import { Inject, Injectable } from '@nestjs/common';
import { archiveLimitsFromEnv, artifactLimits, type ArchiveLimits } from '@nebo/archive';
import { ConfigError, RUNTIME, type Runtime } from '@nebo/service-kit';
import { type AccountBinding, bindingOf } from '../certificates/acme/binding.js';

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
  /** An edge that was heard of within this time is waited for when routes change; more than one of its long polls takes (30 s). */
  readonly edgeSeenMs: number;
  /** Where git hosts reach this installation, without a slash at the end. */
  readonly publicUrl: string;
  /** A tick of a job that is due for longer is not begun any more, but missed. */
  readonly jobLateMs: number;
  /** Largest delivery of a git host, bytes. */
  readonly hookBytes: number;
  /** Where visitors of apps come in: what address records say. */
  readonly edgeAddresses: readonly string[];
  /** Where they come in over TLS, as addresses of apps say it. */
  readonly visitorPort: number;
  /** The one of them that people are told. */
  readonly targetIp: string;
  /** First pause between two checks of a domain; it doubles up to an hour. */
  readonly domainCheckMs: number;
  /** How often an owner's proof is looked at again. */
  readonly domainAgainMs: number;
  /** Address of the certificate authority; null: the edge's own CA. */
  readonly acmeDirectory: string | null;
  /** Whom the authority writes to. */
  readonly acmeEmail: string | null;
  /** File with the certificates that the authority's own address is trusted by; null: the usual ones. */
  readonly acmeCaFile: string | null;
  /** What makes an account there that of a customer; null: the authority takes anybody. */
  readonly acmeBinding: AccountBinding | null;
  /** First pause after an order that failed; it doubles up to a day. */
  readonly acmeRetryMs: number;

  /** Length of the hours in which usage is counted and charged; the regions' agents must have the same. */
  readonly usageBucketMs: number;
  /** So long after its end an hour may be reported; then its processor time is free. */
  readonly usageLateMs: number;

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
    this.edgeSeenMs = config.int('NEBO_EDGE_SEEN_MS', 45_000, { min: 35_000, max: 600_000 });
    this.keepAliveMs = config.int('NEBO_KEEP_ALIVE_MS', 15_000, { min: 10 });
    const port = config.int('NEBO_API_PORT', 4000, { max: 65_535 });
    const publicUrl = config.url('NEBO_PUBLIC_URL', `http://127.0.0.1:${port}`, ['https:', 'http:']);
    this.publicUrl = publicUrl.replace(/\/+$/, '');
    this.jobLateMs = config.int('NEBO_JOB_LATE_MS', 60_000, { min: 1_000, max: 3_600_000 });
    this.hookBytes = config.int('NEBO_HOOK_MAX', 8 * 1024 * 1024, { min: 1 });
    const addresses = config.list('NEBO_EDGE_ADDRESSES').map((text) => text.toLowerCase());
    this.edgeAddresses = addresses.length > 0 ? addresses : ['127.0.0.1'];
    const odd = this.edgeAddresses.find((text) => isIP(text) === 0);
    if (odd !== undefined) throw new ConfigError(`NEBO_EDGE_ADDRESSES must be IP addresses, not "${odd}"`);
    const tlsPort = config.int('NEBO_EDGE_TLS_PORT', 8443, { max: 65_535 });
    this.visitorPort = config.int('NEBO_EDGE_VISITOR_PORT', tlsPort, { min: 1, max: 65_535 });
    this.targetIp = this.edgeAddresses.find((text) => isIP(text) === 4) ?? this.edgeAddresses[0]!;
    this.domainCheckMs = config.int('NEBO_DOMAIN_CHECK_MS', 5_000, { min: 10, max: 3_600_000 });
    this.domainAgainMs = config.int('NEBO_DOMAIN_AGAIN_MS', 6 * 3_600_000, { min: 10, max: 86_400_000 });
    this.acmeDirectory = config.optional('NEBO_ACME_DIRECTORY')
      ? config.url('NEBO_ACME_DIRECTORY', undefined, ['https:'])
      : null;
    this.acmeEmail = config.optional('NEBO_ACME_EMAIL') ?? null;
    this.acmeCaFile = config.optional('NEBO_ACME_CA_FILE') ?? null;
    this.acmeBinding = bindingOf(config);
    const bucket = config.int('NEBO_USAGE_BUCKET', 3_600, { min: 5, max: 3_600 });
    if (3_600 % bucket !== 0) throw new ConfigError('NEBO_USAGE_BUCKET must be seconds that divide 3600');
    this.usageBucketMs = bucket * 1_000;
    this.usageLateMs = config.int('NEBO_USAGE_LATE', 21_600, { min: 1, max: 2_592_000 }) * 1_000;
    this.acmeRetryMs = config.int('NEBO_ACME_RETRY_MS', 60_000, { min: 10, max: 3_600_000 });
  }
}
