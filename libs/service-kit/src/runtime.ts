import type { EventBus } from '@nebo/bus';
import type { BlobStore } from '@nebo/persistence';
import type { Figures } from '@nebo/telemetry';
import type { Logger } from 'pino';
import type { IdentitySigner } from '@nebo/contracts';
import type { Config } from './config.js';
import type { MasterKey } from './secrets.js';
import type { ServiceTarget } from './target.js';

/** Names of the services, as in folders, subjects and settings. */
export const serviceNames = [
  'identity-billing',
  'compute',
  'networking',
  'dns',
  'apps-builder',
  'inference-router',
] as const;
export type ServiceName = (typeof serviceNames)[number];

/** The schema of a service in PostgreSQL. */
export const schemaOf = (service: string): string => service.replaceAll('-', '_');

/** The setting that names a service's address in the split form: `NEBO_APPS_BUILDER_URL`. */
export const urlSettingOf = (service: string): string => `NEBO_${schemaOf(service).toUpperCase()}_URL`;

/**
 * The setting of the port that a service listens on in the split form: `NEBO_APPS_BUILDER_PORT`. That of dns is
 * `NEBO_DNS_HTTP_PORT`, since `NEBO_DNS_PORT` is the name server's.
 */
export const portSettingOf = (service: string): string =>
  urlSettingOf(service).replace(/_URL$/, service === 'dns' ? '_HTTP_PORT' : '_PORT');

/** What the services of one process share. Made once per process and handed to each service's module. */
export interface Runtime {
  config: Config;
  /** Data folder of the installation. */
  home: string;
  log: Logger;
  masterKey: MasterKey;
  signer: IdentitySigner;
  bus: EventBus;
  /** Figures of all services of the process, for `/metrics`. */
  figures: Figures;
  blobs: BlobStore;
  /** A blob store of a service's own: what one service collects can never be another's. */
  blobsOf(service: string): BlobStore;
  /** Where each service answers. */
  targets: Targets;
  /** Connection string of a service's own database role. */
  databaseUrl(schema: string): string;
}

/** Addresses of services; one in this process replaces its address. */
export class Targets {
  private readonly byName = new Map<string, ServiceTarget>();

  set(service: string, target: ServiceTarget): void {
    this.byName.set(service, target);
  }

  /** @throws Error when the process was started without an address for the service */
  get(service: string): ServiceTarget {
    const target = this.byName.get(service);
    if (!target)
      throw new Error(`${urlSettingOf(service)} is not set and ${service} does not run in this process`);
    return target;
  }

  has(service: string): boolean {
    return this.byName.has(service);
  }

  names(): string[] {
    return [...this.byName.keys()];
  }

  async close(): Promise<void> {
    await Promise.all([...this.byName.values()].map((target) => target.close()));
  }
}

/** Injection token of the `Runtime`. */
export const RUNTIME = Symbol('nebo:runtime');

/** Injection token of the service's own `Metrics` of `@nebo/telemetry`; they show with those of its process. */
export const METRICS = Symbol('nebo:metrics');
