import { join } from 'node:path';
import { artifactLimits, packFolder } from '@nebo/archive';
import { type BuildSpec } from '@nebo/contracts';
import { type AllowList } from '@nebo/safe-net';
import { type AgentLog } from '../agent-log.js';
import { BuildFailure, SourceTree } from '../builds/tree.js';
import { type BuildLimits } from '../drivers/create.js';
import { type BuildIo } from '../drivers/types.js';
import { ImageFailure, told } from '../images/image-failure.js';
import { type ImageIntake } from '../images/image-intake.js';
import { type ImageLimits } from '../images/image-limits.js';
import { type PulledImage } from '../images/image-pull.js';
import { architectureOf } from '../images/manifest.js';
import { pullBase } from './base-images.js';
import { EngineGone, EngineRefused } from './client.js';
import { readDockerfile } from './dockerfile.js';
import { type EngineInfo, engineInfo } from './engine-info.js';
import { type ContainerEngines, type Engine } from './engines.js';
import { IgnoreFile } from './ignore-file.js';
import { storeImageArchive } from './image-archive.js';
import { ProgressReader } from './progress.js';
import { type StepGroup, type StepGroups } from './step-groups.js';
import { StepWatch, unboundWords } from './step-watch.js';
import { BuildTraces } from './traces.js';

export interface ContainerBuildParts {
  engines: ContainerEngines;
  intake: ImageIntake;
  limits: BuildLimits;
  imageLimits: ImageLimits;
  allow: AllowList;
  groups: StepGroups;
  /** Folder for notes about what is in the engine. */
  dir: string;
  /** Of this agent. */
  tag: string;
  log: AgentLog;
}

/** One build by a Dockerfile. */
export interface ContainerOrder {
  /** Of the run, unique. */
  name: string;
  /** The app's folder on this host, which nothing writes any more. */
  context: string;
  spec: BuildSpec;
  io: BuildIo;
  /** Folder of the run. */
  dir: string;
  say(line: string): void;
  /** Takes what the engine tells, piece by piece. */
  output(chunk: Buffer): void;
  step<T>(name: string, work: () => Promise<T>): Promise<T>;
}

/** Builds Dockerfiles by a container engine and takes what comes out as an image: the engine runs nothing of the app. */
export class ContainerBuilds {
  private readonly active = new Set<string>();

  constructor(private readonly parts: ContainerBuildParts) {}

  /** Removes what an earlier agent left in the engine, as far as one answers. */
  async start(): Promise<void> {
    const engine = await this.parts.engines.look();
    if (engine) await this.sweep(engine);
  }

  /** Null: no engine answers, so no Dockerfile can be built. */
  answers(): Promise<Engine | null> {
    return this.parts.engines.look();
  }

  /** @throws BuildFailure with a sentence for the user; the signal's reason */
  async build(order: ContainerOrder): Promise<PulledImage> {
    const { limits, intake, engines } = this.parts;
    const engine = await engines.look();
    if (!engine) throw new BuildFailure(goneWords);
    const late = AbortSignal.timeout(limits.wallMs);
    const signal = AbortSignal.any([order.io.signal, late]);
    try {
      await intake.admit();
      await this.sweep(engine);
      const image = await this.made({ ...order, io: { ...order.io, signal } }, engine);
      intake.check(image.document, order.spec, order.say);
      await order.step('unpack', () => intake.unpack(image, { signal, log: order.io.log }));
      return image;
    } catch (error) {
      order.io.signal.throwIfAborted();
      if (late.aborted)
        throw new BuildFailure(`The build took longer than ${Math.round(limits.wallMs / 1000)} s.`);
      if (error instanceof ImageFailure) throw new BuildFailure(error.message);
      if (error instanceof EngineRefused)
        throw new BuildFailure(`The container engine refused: ${told(error.message)}`);
      if (!(error instanceof EngineGone)) throw error;
      this.parts.log.error({ error: error.message }, 'the container engine went in the middle of a build');
      throw new BuildFailure(goneWords);
    }
  }

  private async made(order: ContainerOrder, engine: Engine): Promise<PulledImage> {
    const { dir, tag } = this.parts;
    const traces = BuildTraces.begin(dir, tag, order.name);
    this.active.add(order.name);
    try {
      const info = await engineInfo(engine.client);
      const group = await this.parts.groups.open(info, order.name, this.parts.limits);
      await order.step('build', () => this.run(order, engine, traces, { info, group }));
      return await order.step('export', () => this.take(order, engine, traces));
    } finally {
      await this.clear(traces, engine);
      this.active.delete(order.name);
    }
  }

  /** Reads the Dockerfile, pulls what it stands on, packs the folder. */
  private async prepare(order: ContainerOrder, { client, words }: Engine) {
    const { allow, engines } = this.parts;
    const { spec, io, say } = order;
    const tree = new SourceTree(order.context);
    const text = await tree.read('Dockerfile');
    if (text === null) throw new BuildFailure('The Dockerfile cannot be read: it is larger than 2 MB.');
    const values = new Map(spec.env.map(({ name, value }) => [name, value]));
    const file = readDockerfile(text, values);
    say(`by ${words}, network of its steps: ${engines.settings.network}`);
    for (const image of file.images)
      await pullBase(image, { client, allow, signal: io.signal, output: order.output });
    // Only what the file asks for: values of others would stand in the engine's history for nothing.
    const args = Object.fromEntries([...values].filter(([name]) => file.args.has(name)));
    return { body: await this.context(order, tree), args };
  }

  private async run(
    order: ContainerOrder,
    engine: Engine,
    traces: BuildTraces,
    { info, group }: { info: EngineInfo; group: StepGroup | null },
  ): Promise<void> {
    const { io } = order;
    const { client } = engine;
    const { groups, limits, engines } = this.parts;
    const { named: lenient } = engines.settings;
    // Podman shows no container of a build, so there is nothing to hold on to.
    if (group === null && engine.kind === 'podman' && !lenient) throw new BuildFailure(unboundWords);
    const { body, args } = await this.prepare(order, engine);
    const failure = new AbortController();
    const signal = AbortSignal.any([io.signal, failure.signal]);
    const seen = { error: null as string | null, forks: false };
    const steps = { client, group, storage: info.layers, lenient };
    const watch = new StepWatch(
      {
        ...steps,
        bound: (...of) => groups.bound(...of),
        containers: () => traces.containers(client),
        wrote: (folder) => traces.wrote(folder),
      },
      limits,
    );
    const reader = new ProgressReader({
      text: (part) => {
        order.output(Buffer.from(part));
        seen.forks ||= forkRefused.test(part);
      },
      image: (id) => traces.made(id),
      step: () => watch.nudge(),
      error: (message) => (seen.error = message),
    });
    const watched = watch.run(signal);
    void watched.then((words) => words !== null && failure.abort(new BuildFailure(words)));
    try {
      const query = { ...this.query(order.name, engine, traces, args), cgroupparent: group?.path };
      const answer = await client.open('POST', '/build', { query, body, signal });
      for await (const chunk of client.bytes(answer, signal)) {
        reader.push(chunk);
        if (io.log.full) await io.log.drained();
      }
      reader.end();
    } finally {
      failure.abort();
      await watched;
    }
    if (seen.error === null) return;
    // The kernel counts refused forks in the container's own group, which is gone by now.
    const processes =
      seen.forks && watch.holds ? ` It may have started more than ${limits.processes} processes.` : '';
    throw new BuildFailure(`${this.errorWords(seen.error)}${processes}`);
  }

  /** The folder as the engine gets it; Dockerfile and .dockerignore go along whatever the latter says. */
  private async context({ context, say }: ContainerOrder, tree: SourceTree) {
    const rules = new IgnoreFile((await tree.read('.dockerignore')) ?? '');
    const always = new Set(['Dockerfile', '.dockerignore']);
    const packed = await packFolder(context, {
      ...{ ignoreRules: 'none', limits: artifactLimits, level: 1 },
      leaveOut: (path, directory) => !always.has(path) && rules.out(path, directory),
    });
    for (const { path, why } of packed.manifest.warnings.slice(0, 20))
      say(`warning: ${path} is left out, ${why}`);
    say(`context: ${packed.manifest.files} files, ${packed.manifest.bytes} bytes`);
    return packed.stream;
  }

  /** Nothing of the host: no bind mounts, no privileges, no host network are even words of this call. */
  private query(name: string, engine: Engine, traces: BuildTraces, args: Record<string, string>) {
    const { limits, tag, engines } = this.parts;
    return {
      ...{ t: traces.image, dockerfile: 'Dockerfile', rm: '1', forcerm: '1', q: '0' },
      // The engine's cache is shared by all that it builds: what one app's build left must not come into another's.
      nocache: '1',
      buildargs: JSON.stringify(args),
      labels: JSON.stringify({ 'nebo.agent': tag, 'nebo.build': name }),
      ...{ memory: String(limits.memoryBytes), memswap: String(limits.memoryBytes) },
      ...{ cpuperiod: '100000', cpuquota: String(Math.round(limits.cpus * 100_000)) },
      networkmode: engines.settings.network,
      ...inWordsOf(engine.kind, { fsize: limits.diskBytes, core: 0 }, traces.extraHost),
    };
  }

  private take({ io, dir, say }: ContainerOrder, { client }: Engine, traces: BuildTraces) {
    const { signal, blobs } = io;
    const { imageLimits: limits } = this.parts;
    const open = async function* () {
      const answer = await client.open('GET', `/images/${traces.image}/get`, { signal });
      yield* client.bytes(answer, signal);
    };
    const architecture = architectureOf(process.arch);
    return storeImageArchive(open(), { blobs, limits, dir: join(dir), architecture, signal, say });
  }

  private errorWords(message: string): string {
    const { memoryBytes, diskBytes } = this.parts.limits;
    const megabytes = (bytes: number) => `${Math.round(bytes / 2 ** 20)} MB`;
    const words = told(message);
    const code = /(?:non-zero code:|exit status|exit code:?) (\d+)/.exec(message)?.[1];
    // SIGKILL, and SIGXFSZ: what the limits of the steps look like from here.
    const limits: Record<string, string> = {
      137: ` It may have used more than ${megabytes(memoryBytes)} of memory.`,
      153: ` A file may have become larger than ${megabytes(diskBytes)}.`,
    };
    return `${words}${/[.!]$/.test(words) ? '' : '.'}${limits[code ?? ''] ?? ''}`;
  }

  private async sweep(engine: Engine): Promise<void> {
    for (const traces of BuildTraces.leftOver(this.parts.dir, this.active)) await this.clear(traces, engine);
  }

  /** An engine that went cannot be asked; what is left in it goes when it is back. */
  private async clear(traces: BuildTraces, engine: Engine): Promise<void> {
    try {
      await traces.remove(engine);
      // Behind the containers, which are in it.
      await this.parts.groups.remove(traces.name);
    } catch (error) {
      this.parts.log.warn({ image: traces.image, error: String(error) }, 'a build is left in the engine');
    }
  }
}

/**
 * What the two engines do not take in the same form; with the other's each answers 400 without a word.
 * @param ulimits of each step, by name
 * @param extraHost `name:address`
 */
function inWordsOf(kind: Engine['kind'], ulimits: Readonly<Record<string, number>>, extraHost: string) {
  const limits = Object.entries(ulimits);
  if (kind === 'docker')
    return {
      ulimits: JSON.stringify(limits.map(([Name, value]) => ({ Name, Soft: value, Hard: value }))),
      extrahosts: extraHost,
    };
  return {
    ulimits: JSON.stringify(limits.map(([name, value]) => `${name}=${value}:${value}`)),
    extrahosts: JSON.stringify([extraHost]),
    // No image for each step: `nocache` alone keeps them.
    layers: '0',
  };
}

/** What programs say then. */
const forkRefused = /can(?:'|no)t fork|(?:fork|thread).{0,40}resource temporarily unavailable/i;

const goneWords =
  'The container engine of this region does not answer any more. Deploy again; if it stays so, its operator has to look after it.';
