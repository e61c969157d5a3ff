import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { closeSync, existsSync, openSync, readdirSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { chooseForm, findEngine, wantedForm } from './engine.js';
import {
  cacheFolder,
  endProcess,
  findProgram,
  freePort,
  noteLive,
  notePid,
  tempFolder,
  waitFor,
  type Found,
} from './parts.js';

const run = promisify(execFile);
const version = '3.9.1';
const clusterId = 'bmVib3Rlc3RraXRrYWZrYQ';

/** A running KRaft broker (broker and controller in one). */
export interface KafkaPart {
  /** For kafkajs: `new Kafka({ brokers: [...part.brokers] })`. */
  readonly brokers: readonly string[];
  readonly form: 'local' | 'container';
  kill(): Promise<void>;
  /** Starts again on the same log and port. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

/** What a local broker needs. */
export interface KafkaParts {
  java: string;
  /** Folder of the jars; may have to be filled (`installKafka`) when `mvn` is set. */
  jars: string;
  /** null when the jars are there already. */
  mvn: string | null;
}

/** Looks for java and the jars in the cache, or mvn to fetch them (46 MB, under a minute, once). */
export function findKafka(): Found<KafkaParts> {
  const java = findProgram('java', ['/usr/bin', '/usr/local/bin']);
  if (java === null)
    return { found: null, reason: 'java is not installed (Debian package default-jre-headless)' };
  const jars = join(cacheFolder(), `kafka-${version}`);
  if (existsSync(jars)) return { found: { java, jars, mvn: null }, reason: null };
  const mvn = findProgram('mvn', ['/usr/bin', '/usr/local/bin']);
  if (mvn !== null) return { found: { java, jars, mvn }, reason: null };
  return {
    found: null,
    reason: `no Kafka jars in ${jars} and mvn is not installed (Debian package maven) to fetch them`,
  };
}

/** Can `startKafka` work here at all? For tests that name the skipped part and the reason. */
export async function canStartKafka(): Promise<Found<true>> {
  const { found, reason } = findKafka();
  if (found !== null && wantedForm('kafka') !== 'containers') return { found: true, reason: null };
  const engine = wantedForm('kafka') === 'local' ? null : (await findEngine()).found;
  return engine === null ? { found: null, reason } : { found: true, reason: null };
}

const pom = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>nebo</groupId><artifactId>test-kafka</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>${version}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
`;

/** Fetches the jars into the cache if they are not there. @throws Error with Maven's last words (no network, …) */
export async function installKafka(parts: KafkaParts): Promise<void> {
  if (existsSync(parts.jars) || parts.mvn === null) return;
  await mkdir(cacheFolder(), { recursive: true });
  const work = await mkdtemp(join(cacheFolder(), 'kafka-'));
  try {
    await writeFile(join(work, 'pom.xml'), pom);
    const goal = ['dependency:copy-dependencies', `-DoutputDirectory=${join(work, 'lib')}`];
    await run(parts.mvn, ['-q', '-B', ...goal], { cwd: work, timeout: 300_000, maxBuffer: 16 * 1024 * 1024 });
    // Complete or not there: the loser of a race keeps the winner's folder.
    await rename(join(work, 'lib'), parts.jars).catch((error: unknown) => {
      if (!existsSync(parts.jars)) throw error;
    });
  } catch (error) {
    const { stdout = '', message } = error as { stdout?: string; message: string };
    const words = stdout.split('\n').find((line) => line.includes('ERROR')) ?? message;
    throw new Error(`Maven could not fetch Kafka ${version}: ${words}`, { cause: error });
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/** Starts a Kafka broker: 5 to 20 s locally. @throws Error with `findKafka`'s reason when nothing can run it */
export async function startKafka(): Promise<KafkaPart> {
  return chooseForm(
    'kafka',
    async () => (await import('./containers.js')).startKafkaContainer(),
    startLocal,
    'KRaft broker on the local java, jars by Maven',
  );
}

/** The small heap needs a small cleaner buffer: with the default of 128 MB the broker dies of OutOfMemoryError. */
function properties(port: number, controller: number, logs: string): string {
  return [
    'process.roles=broker,controller',
    'node.id=1',
    `controller.quorum.voters=1@127.0.0.1:${controller}`,
    `listeners=PLAINTEXT://127.0.0.1:${port},CONTROLLER://127.0.0.1:${controller}`,
    `advertised.listeners=PLAINTEXT://127.0.0.1:${port}`,
    'controller.listener.names=CONTROLLER',
    'listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT',
    `log.dirs=${logs}`,
    'num.partitions=1',
    'offsets.topic.num.partitions=1',
    'offsets.topic.replication.factor=1',
    'transaction.state.log.num.partitions=1',
    'transaction.state.log.replication.factor=1',
    'transaction.state.log.min.isr=1',
    'group.initial.rebalance.delay.ms=0',
    'log.cleaner.dedupe.buffer.size=8388608',
    'num.network.threads=2',
    'num.io.threads=2',
    '',
  ].join('\n');
}

async function startLocal(): Promise<KafkaPart> {
  const { found, reason } = findKafka();
  if (found === null) throw new Error(reason!);
  await installKafka(found);
  const folder = await tempFolder('kafka');
  const [port, controller] = [await freePort(), await freePort()];
  const config = join(folder.path, 'server.properties');
  const log = join(folder.path, 'log');
  await writeFile(config, properties(port, controller, join(folder.path, 'data')));
  const classPath = readdirSync(found.jars)
    .map((name) => join(found.jars, name))
    .join(':');
  const java = ['-Xmx256m', '-Xms64m', '-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-cp', classPath];
  let child: ChildProcess | undefined;
  const start = async () => {
    const output = openSync(log, 'a');
    const started = spawn(found.java, [...java, 'kafka.Kafka', config], {
      stdio: ['ignore', output, output],
      detached: true,
      cwd: folder.path,
    });
    closeSync(output);
    child = started;
    if (started.pid !== undefined) notePid(started.pid);
    started.unref();
    await waitFor(
      'kafka',
      90_000,
      async () => {
        if (started.exitCode !== null || started.signalCode !== null) {
          throw new Error(`kafka ended at start:\n${(await readFile(log, 'utf8')).slice(-1500)}`);
        }
        return (await brokerAnswers(`127.0.0.1:${port}`)) || undefined;
      },
      100,
    );
  };
  const end = async (signal: NodeJS.Signals) => {
    if (child !== undefined) await endProcess(child, signal, 10_000);
    child = undefined;
  };
  const stop = async () => {
    forget();
    await end('SIGKILL');
    folder.remove();
  };
  const forget = noteLive(stop);
  try {
    await run(found.java, [...java, 'kafka.tools.StorageTool', 'format', '-t', clusterId, '-c', config], {
      timeout: 60_000,
    });
    await start();
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    brokers: [`127.0.0.1:${port}`],
    form: 'local',
    kill: () => end('SIGKILL'),
    async restart() {
      await end('SIGTERM');
      await start();
    },
    stop,
  };
}

/** Does the broker list itself as a member of its cluster? An open port alone comes seconds too early. */
export async function brokerAnswers(broker: string): Promise<boolean> {
  const { Kafka, logLevel } = await import('kafkajs');
  const kafka = new Kafka({
    brokers: [broker],
    logLevel: logLevel.NOTHING,
    connectionTimeout: 1_000,
    requestTimeout: 2_000,
    retry: { retries: 0 },
  });
  const admin = kafka.admin();
  try {
    await admin.connect();
    return (await admin.describeCluster()).brokers.length > 0;
  } catch {
    return false;
  } finally {
    await admin.disconnect().catch(() => undefined);
  }
}
