import { mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { EmbeddedBus, type EventBus, NatsBus } from '@nebo/bus';
import { IdentitySigner } from '@nebo/contracts';
import { commonMigrations, FolderBlobStore, migrate, roleUrl } from '@nebo/persistence';
import { Figures, startTelemetry } from '@nebo/telemetry';
import type { Logger } from 'pino';
import { bootService, type RunningService, type ServiceDefinition } from './boot.js';
import { Config, ConfigError } from './config.js';
import { createLog } from './log.js';
import { portSettingOf, type Runtime, schemaOf, serviceNames, Targets, urlSettingOf } from './runtime.js';
import { MasterKey } from './secrets.js';
import { RemoteTarget } from './target.js';

/** What `createRuntime` needs that is decided before. */
export interface RuntimeOptions {
  config: Config;
  log: Logger;
  /** Connection string of the role that may create schemas and roles. */
  adminUrl: string;
  bus: EventBus;
}

/** Data folder of the installation: `NEBO_HOME`, or `.nebo` where the process was started. */
export const homeOf = (config: Config): string => resolve(config.text('NEBO_HOME', '.nebo'));

/** The installation's master key; made in the data folder on first use. */
export const masterKeyOf = (config: Config): MasterKey =>
  MasterKey.fromFile(resolve(config.text('NEBO_MASTER_KEY_FILE', `${homeOf(config)}/master.key`)));

/** Puts together what the services of a process share. Services with an address in the environment are remote. */
export function createRuntime({ config, log, adminUrl, bus }: RuntimeOptions): Runtime {
  const home = homeOf(config);
  mkdirSync(home, { recursive: true, mode: 0o711 });
  const masterKey = masterKeyOf(config);
  const blobFolder = config.text('NEBO_BLOB_FOLDER', `${home}/blobs`);
  const targets = new Targets();
  for (const service of serviceNames) {
    if (config.optional(urlSettingOf(service))) {
      targets.set(service, new RemoteTarget(config.url(urlSettingOf(service), undefined, ['http:'])));
    }
  }
  return {
    config,
    home,
    log,
    masterKey,
    signer: new IdentitySigner(masterKey.derive('identity')),
    bus,
    figures: new Figures(),
    blobs: new FolderBlobStore(blobFolder),
    blobsOf: (service) => new FolderBlobStore(join(blobFolder, service)),
    targets,
    databaseUrl: (schema) => roleUrl(adminUrl, schema, masterKey.rolePassword(schema)),
  };
}

/** The bus that the environment asks for: NATS JetStream with `NATS_URL`, otherwise inside this process. */
export async function busFrom(config: Config, log: Logger): Promise<EventBus> {
  const url = config.optional('NATS_URL');
  const onError = (err: Error, about: string) => log.warn({ err, about }, 'bus');
  return url ? new NatsBus({ servers: url, onError }) : new EmbeddedBus({ onError });
}

/** Makes schemas, roles and missing migrations of services; several processes may do it at once. */
export async function migrateServices(
  adminUrl: string,
  masterKey: MasterKey,
  definitions: readonly ServiceDefinition[],
): Promise<string[]> {
  return migrate(
    adminUrl,
    definitions.map(({ name, migrations }) => ({
      schema: schemaOf(name),
      migrations: [commonMigrations, migrations],
      password: masterKey.rolePassword(schemaOf(name)),
    })),
  );
}

/** Port of a service in the split form: `NEBO_APPS_BUILDER_PORT`, or its default. */
export function servicePort(config: Config, service: string): number {
  return config.port(portSettingOf(service), 4100 + serviceNames.indexOf(service as never));
}

/**
 * Runs one service as a process of its own (`src/main.ts`): needs `DATABASE_URL`, takes `NATS_URL` and the addresses of
 * the services that it calls. SIGTERM and SIGINT stop it within 10 s.
 */
export async function runAlone(definition: ServiceDefinition): Promise<void> {
  await runProcess(definition.name, async (config, log) => {
    const adminUrl = config.url('DATABASE_URL', undefined, ['postgres:', 'postgresql:']);
    const bus = await busFrom(config, log);
    const runtime = createRuntime({ config, log, adminUrl, bus });
    if (config.text('NEBO_MIGRATE', 'on') !== 'off')
      await migrateServices(adminUrl, runtime.masterKey, [definition]);
    const service: RunningService = await bootService(definition, runtime);
    const port = await service.listen(
      servicePort(config, definition.name),
      config.text('NEBO_BIND', '127.0.0.1'),
    );
    log.info({ port }, `${definition.name} is ready`);
    return async () => {
      await service.close();
      await bus.close();
      await runtime.targets.close();
    };
  });
}

/**
 * Starts the export of traces where the environment names a collector (`OTEL_EXPORTER_OTLP_ENDPOINT`); otherwise nothing is
 * loaded. A collector that is away never fails the process.
 * @returns sends what is waiting, at most 5 s, and stops
 */
export async function telemetryOf(name: string, config: Config, log: Logger): Promise<() => Promise<void>> {
  const onError = (err: Error) => log.warn({ err }, 'traces cannot be sent');
  const telemetry = await startTelemetry({ service: name, env: config.env, onError });
  return () => telemetry.shutdown();
}

/** Starts something that runs until a signal; a wrong setting is one line and exit code 1. */
export async function runProcess(
  name: string,
  start: (config: Config, log: Logger) => Promise<() => Promise<void>>,
): Promise<void> {
  outliveReaders();
  const config = new Config();
  try {
    const log = createLog(config, name);
    const stopTelemetry = await telemetryOf(name, config, log);
    const stop = await start(config, log);
    stopOnSignal(() => stop().finally(stopTelemetry));
  } catch (error) {
    const plain = error instanceof ConfigError;
    process.stderr.write(`${name}: ${plain ? error.message : ((error as Error).stack ?? String(error))}\n`);
    process.exit(1);
  }
}

/**
 * Lets this process go on when what it says can no longer be written: its terminal was closed, the `tee` behind it ended by the
 * same Ctrl-C, the disk is full. Without this the next word ends it in the middle of whatever it does, a stop among it.
 */
export function outliveReaders(): void {
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => undefined);
}

/**
 * Runs `stop` once at the first SIGINT, SIGTERM or SIGHUP and exits; a further SIGINT or SIGTERM, or 9 s, ends the process at once. A
 * closed terminal tells all of its processes, and those then tell each other: SIGHUP never counts as a second wish.
 */
export function stopOnSignal(stop: () => Promise<void>): void {
  let stopping = false;
  const begin = () => {
    stopping = true;
    setTimeout(() => process.exit(1), 9_000).unref();
    stop().then(
      () => process.exit(0),
      (error: unknown) => {
        process.stderr.write(`stopping failed: ${String(error)}\n`);
        process.exit(1);
      },
    );
  };
  const onSignal = () => {
    if (stopping) process.exit(130);
    begin();
  };
  process.on('SIGINT', onSignal);
  process.on('SIGTERM', onSignal);
  process.on('SIGHUP', () => stopping || begin());
}
