import { GenericContainer, Wait, type StartedTestContainer } from 'testcontainers';
import { askEngine, findEngine } from './engine.js';
import { brokerAnswers, type KafkaPart } from './kafka.js';
import { natsAnswers, type NatsPart } from './nats.js';
import { freePort, noteLive, waitFor } from './parts.js';
import { createDatabase, postgresSettings, type PostgresOptions, type PostgresPart } from './postgres.js';

/** Loaded only when an engine answered: testcontainers costs half a second and needs Node 22. */

/** Images that `npm run test:containers` also builds without a registry. */
export const images = { postgres: 'postgres:18', nats: 'nats:2', kafka: 'apache/kafka:3.9.1' };

/** A container whose main process can be killed and started again on the same host port. */
export interface ContainerPart {
  host: string;
  port: number;
  kill(): Promise<void>;
  restart(): Promise<void>;
  stop(): Promise<void>;
}

/**
 * Starts a container with one published port.
 * @param prepare environment, command, wait strategy
 * @param ready resolves when the part answers; asked after start and restart
 * @param wantedPort host port; a free one by default
 */
export async function startContainer(
  image: string,
  inner: number,
  prepare: (container: GenericContainer, port: number) => GenericContainer,
  ready: (host: string, port: number) => Promise<void>,
  wantedPort?: number,
): Promise<ContainerPart> {
  // A fixed host port: the engine would pick another one when the container starts again.
  const port = wantedPort ?? (await freePort());
  const wanted = new GenericContainer(image)
    .withExposedPorts({ container: inner, host: port })
    .withStartupTimeout(120_000);
  const lines: string[] = [];
  wanted.withLogConsumer((log) => {
    log
      .on('data', (line: Buffer | string) => lines.push(line.toString().trimEnd()))
      .on('error', () => undefined);
  });
  const container: StartedTestContainer = await prepare(wanted, port)
    .start()
    .catch((error: Error) => {
      throw new Error(`container ${image}: ${error.message}\n${lines.slice(-8).join('\n')}`, {
        cause: error,
      });
    });
  const host = container.getHost();
  const engine = (await findEngine()).found!.host;
  const verb = async (path: string) => {
    const { status, body } = await askEngine(
      engine,
      'POST',
      `/containers/${container.getId()}/${path}`,
      30_000,
    );
    if (status >= 400 && status !== 409) throw new Error(`engine: ${path}: ${status} ${body}`);
  };
  let stopped = false;
  const stop = async () => {
    if (stopped) return;
    stopped = true;
    forget();
    await container.stop({ timeout: 1 });
  };
  const forget = noteLive(stop);
  try {
    await ready(host, port);
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    host,
    port,
    kill: () => verb('kill?signal=KILL'),
    async restart() {
      await verb('stop?t=5');
      await verb('start');
      await ready(host, port);
    },
    stop,
  };
}

/** `startPostgres` as a container; same interface and settings. */
export async function startPostgresContainer(options: PostgresOptions): Promise<PostgresPart> {
  const flags = Object.entries(postgresSettings(options)).flatMap(([name, value]) => [
    '-c',
    `${name}=${value}`,
  ]);
  const part = await startContainer(
    images.postgres,
    5432,
    (container) =>
      container
        .withEnvironment({ POSTGRES_HOST_AUTH_METHOD: 'trust', POSTGRES_USER: 'postgres' })
        .withCommand(['postgres', ...flags])
        // The image starts a private server for initdb first, so the sentence comes twice.
        .withWaitStrategy(Wait.forLogMessage(/database system is ready to accept connections/, 2)),
    async (host, port) => {
      const { default: pg } = await import('pg');
      await waitFor(
        'postgres container',
        60_000,
        async () => {
          const client = new pg.Client({ host, port, user: 'postgres', database: 'postgres' });
          client.on('error', () => undefined);
          const answered = await client.connect().then(
            () => true,
            () => undefined,
          );
          await client.end().catch(() => undefined);
          return answered;
        },
        100,
      );
    },
  );
  const url = `postgres://postgres@${part.host}:${part.port}/postgres`;
  return {
    url,
    form: 'container',
    createDatabase: (name) => createDatabase(url, name),
    kill: part.kill,
    restart: part.restart,
    stop: part.stop,
  };
}

/** `startNats` as a container. */
export async function startNatsContainer(): Promise<NatsPart> {
  const start = (wantedPort?: number) =>
    startContainer(
      images.nats,
      4222,
      (container) =>
        container
          .withCommand(['-js', '-sd', '/tmp/store'])
          .withWaitStrategy(Wait.forLogMessage(/Server is ready/)),
      async (host, port) => void (await natsAnswers(host, port, 60_000)),
      wantedPort,
    );
  let part = await start();
  return {
    url: `nats://${part.host}:${part.port}`,
    form: 'container',
    kill: () => part.kill(),
    restart: () => part.restart(),
    async wipe() {
      // The store lives in the container: a new one on the same port has none.
      await part.stop();
      part = await start(part.port);
    },
    stop: () => part.stop(),
  };
}

/** `startKafka` as a container of the official image. */
export async function startKafkaContainer(): Promise<KafkaPart> {
  const part = await startContainer(
    images.kafka,
    9092,
    (container, port) =>
      container.withEnvironment({
        KAFKA_NODE_ID: '1',
        KAFKA_PROCESS_ROLES: 'broker,controller',
        KAFKA_LISTENERS: 'PLAINTEXT://:9092,CONTROLLER://:9093',
        KAFKA_ADVERTISED_LISTENERS: `PLAINTEXT://127.0.0.1:${port}`,
        KAFKA_CONTROLLER_LISTENER_NAMES: 'CONTROLLER',
        KAFKA_LISTENER_SECURITY_PROTOCOL_MAP: 'CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT',
        KAFKA_CONTROLLER_QUORUM_VOTERS: '1@localhost:9093',
        KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR: '1',
        KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR: '1',
        KAFKA_TRANSACTION_STATE_LOG_MIN_ISR: '1',
        KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS: '0',
      }),
    (host, port) =>
      waitFor(
        'kafka container',
        90_000,
        async () => (await brokerAnswers(`${host}:${port}`)) || undefined,
        200,
      ).then(() => undefined),
  );
  return {
    brokers: [`${part.host}:${part.port}`],
    form: 'container',
    kill: part.kill,
    restart: part.restart,
    stop: part.stop,
  };
}
