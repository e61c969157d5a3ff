import { createReadStream, createWriteStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { archiveLimitsFromEnv, artifactLimits, extractArchive, packFolder } from '@nebo/archive';
import { type ArtifactFacts, type BlobRef, type BuildSpec, type EnvEntry } from '@nebo/contracts';
import { type BuildSandbox } from '../drivers/sandbox.js';
import { type BuildIo } from '../drivers/types.js';
import { type ContainerBuilds } from '../engine/container-builds.js';
import { imageFacts } from '../images/image-intake.js';
import { LineSplitter } from '../log/lines.js';
import { Redactor } from '../log/redact.js';
import { type Toolchain } from '../system/toolchain.js';
import { type BuildCache, type Kept } from './cache/build-cache.js';
import { BuildWork } from './cache/build-work.js';
import { detect } from './detect.js';
import { directScript } from './node/direct-script.js';
import { fetchCommit } from './git-source.js';
import { askedNode, nodeWords } from './node-version.js';
import { type BuildOutput, type BuildPlan } from './plan.js';
import { readRouting } from './routing-file.js';
import { BuildFailure, SourceTree } from './tree.js';

/** What the steps of one build work with. */
export interface StepParts {
  spec: BuildSpec;
  io: BuildIo;
  sandbox: BuildSandbox;
  tools: Toolchain;
  cache: BuildCache;
  /** Null: there is no way to ask an engine. */
  containers: ContainerBuilds | null;
  /** Of the run. */
  name: string;
  /** Folder of the run, which the build itself cannot reach. */
  dir: string;
  /** Told of what went wrong inside although the build goes on. */
  fault(error: unknown): void;
}

/** A variable of the user's that has a build begin without what earlier builds left. */
const cacheSwitch = 'NEBO_BUILD_CACHE';

/** Characters of output that are kept of one build. */
const logCap = 32 * 1024 * 1024;

/** A command as it may stand in a sentence. */
function short(command: string): string {
  const first = command.trim().split(/[\r\n]/, 1)[0]!;
  return first.length < command.trim().length || first.length > 120 ? `${first.slice(0, 120)} …` : first;
}

const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;

function cacheWords({ bytes, parts, dropped }: Kept): string {
  const sizes = Object.entries(parts).map(([name, size]) => `${name} ${megabytes(size)}`);
  const without =
    dropped.length > 0 ? `; larger than the app's quota, so not kept: ${dropped.join(', ')}` : '';
  return `cache for the next build: ${megabytes(bytes)}${sizes.length > 0 ? ` (${sizes.join(', ')})` : ''}${without}`;
}

/** One build from its source to its artifact. */
export class Steps {
  present = 'fetch';
  readonly redactor: Redactor;
  /** What was fetched from git and stored, for the report. */
  fetched: Pick<ArtifactFacts, 'source'> = {};
  private logged = 0;
  private readonly tree: SourceTree;
  private readonly sourceFile: string;
  private plan: BuildPlan | null = null;
  private work: BuildWork | null = null;

  constructor(private readonly parts: StepParts) {
    const { spec, sandbox, dir } = parts;
    const secrets = spec.env.filter((entry) => entry.secret).map((entry) => entry.value);
    this.redactor = new Redactor([...secrets, ...(spec.git?.password ? [spec.git.password] : [])]);
    this.tree = new SourceTree(sandbox.tree);
    this.sourceFile = join(dir, 'source.tgz');
  }

  async all(): Promise<Omit<ArtifactFacts, 'duration_ms'>> {
    await this.step('fetch', () => this.fetch());
    const plan = await this.step('detect', () => this.detect());
    // Before anything is built: a mistake in it is said at once.
    const routing = await this.step('rules', () =>
      readRouting(this.tree, plan.appDir, (line) => this.say(line)),
    );
    if (plan.container) return this.container(plan, routing);
    const work = await this.takeCache(plan);
    if (plan.install !== null)
      await this.step('install', async () => {
        if (work?.installed) this.say('nothing to do: what is installed is what the lock file asks for');
        else await this.run(plan.install!, plan.installDir);
      });
    if (plan.build !== null) await this.step('build', () => this.runBuild(plan.build!, plan.appDir));
    if (plan.after !== null) await this.run(plan.after, plan.appDir, true);
    const { made, artifact } = await this.step('package', async () => {
      await work?.clearTree();
      const result = await plan.output();
      return { made: result, artifact: await this.package(result) };
    });
    const cached = work ? await this.keepCache(work) : 0;
    return {
      artifact,
      artifact_kind: made.kind,
      start_command: made.kind === 'server' ? made.start : null,
      stack: plan.stack,
      routing,
      cache_bytes: cached,
    };
  }

  /** Whether what earlier builds left is in this one: a reason to look there when it fails. */
  get usesCache(): boolean {
    return this.work?.used ?? false;
  }

  private async detect(): Promise<BuildPlan> {
    const { spec, tools } = this.parts;
    const engine = async () => (await this.parts.containers?.answers()) != null;
    const plan = await detect(this.tree, spec, tools, engine);
    this.plan = plan;
    const commands = [plan.install, plan.build].filter((command) => command !== null);
    const where = plan.appDir === '.' ? '' : ` in ${plan.appDir}`;
    this.say(
      `${plan.stack}${where}: ${commands.map(short).join(', then ') || (plan.container ? 'by its Dockerfile' : 'nothing to run')}`,
    );
    if (plan.node || spec.nodejs_version !== null) {
      const asked = await askedNode({ tree: this.tree, appDir: plan.appDir }, spec);
      this.say(nodeWords(asked, process.versions.node));
    }
    for (const note of plan.notes) this.say(note);
    return plan;
  }

  /** By a container engine: what comes out is an image, and what follows is what all images go through. */
  private async container(
    plan: BuildPlan,
    routing: ArtifactFacts['routing'],
  ): Promise<Omit<ArtifactFacts, 'duration_ms'>> {
    const { spec, io, dir, name } = this.parts;
    const lines = new LineSplitter(this.redactor, (line) => this.output(line));
    const { artifact, document } = await this.parts.containers!.build({
      ...{ name, spec, io, dir, context: await this.tree.real(plan.appDir) },
      say: (line) => this.say(line),
      output: (chunk) => lines.push(chunk),
      step: (step, work) =>
        this.step(step, async () => {
          try {
            return await work();
          } finally {
            lines.end();
          }
        }),
    });
    return {
      ...{ artifact, artifact_kind: 'server', stack: plan.stack, image: imageFacts(document) },
      ...{ start_command: spec.start_command, ...(routing === undefined ? {} : { routing }) },
    };
  }

  /** Null: this build has nothing to keep. */
  private async takeCache(plan: BuildPlan): Promise<BuildWork | null> {
    const { spec, sandbox, cache, dir } = this.parts;
    const { tools, tree, installed } = plan.caches;
    if (tools.length + tree.length === 0 && installed === null) return null;
    const work = new BuildWork(plan, {
      ...{ cache, owner: spec, tree: this.tree, dir: sandbox.cache.dir, user: sandbox.owner },
      staging: join(dir, 'kept'),
      fresh: spec.env.some(({ name, value }) => name === cacheSwitch && value === 'off'),
      say: (line) => this.say(line),
    });
    this.work = work;
    await this.step('cache', () => work.take());
    return work;
  }

  /** A cache that cannot be kept is no reason to fail: the artifact is there. */
  private async keepCache(work: BuildWork): Promise<number> {
    this.parts.io.signal.throwIfAborted();
    try {
      const kept = await work.put();
      if (kept) this.say(cacheWords(kept));
      return kept?.bytes ?? 0;
    } catch (error) {
      this.parts.fault(error);
      this.say('the cache could not be kept: the next build begins with the last one that was');
      return 0;
    }
  }

  private say(line: string): void {
    for (const part of line.split(/\r\n|\n|\r/)) this.parts.io.log.line(this.redactor.redact(part));
  }

  private async step<T>(name: string, work: () => Promise<T>): Promise<T> {
    this.parts.io.signal.throwIfAborted();
    this.present = name;
    const began = Date.now();
    this.say(`\u001b[1m==> ${name}\u001b[0m`);
    try {
      return await work();
    } finally {
      this.say(`\u001b[2m==> ${name} took ${((Date.now() - began) / 1000).toFixed(1)} s\u001b[0m`);
    }
  }

  private async fetch(): Promise<void> {
    const source = this.parts.spec.source ?? (await this.fetchCommit());
    const bytes =
      this.parts.spec.source === null
        ? createReadStream(this.sourceFile)
        : await this.parts.io.blobs.get(source.sha256, this.parts.io.signal);
    const options = { limits: archiveLimitsFromEnv(), signal: this.parts.io.signal };
    const { owner, tree } = this.parts.sandbox;
    // A refused source is not read to its end: its connection is given up.
    bytes.on('error', () => undefined);
    const summary = await extractArchive(bytes, tree, owner ? { ...options, owner } : options).finally(() =>
      bytes.destroy(),
    );
    if (summary.sha256 !== source.sha256)
      throw new Error(`source ${source.sha256} came as ${summary.sha256}`);
    this.say(
      `source ${summary.sha256.slice(0, 12)}: ${summary.files.files} files, ${summary.expandedBytes} bytes`,
    );
  }

  /** The commit as an archive, stored so that a rebuild uses the same bytes. */
  private async fetchCommit(): Promise<BlobRef> {
    const { sourceFile } = this;
    const { spec, io, sandbox } = this.parts;
    if (!spec.git) throw new Error('a build with neither bytes nor a commit');
    const say = (line: string) => this.say(line);
    const blob = await fetchCommit(spec.git, { sandbox, signal: io.signal, file: sourceFile, say });
    await io.blobs.put(blob, () => createReadStream(sourceFile), io.signal);
    this.fetched = { source: blob };
    return blob;
  }

  private env(): EnvEntry[] {
    const { sandbox, spec } = this.parts;
    const plain = { CI: '1', FORCE_COLOR: '1', ...this.plan?.env };
    const fixed = Object.entries(plain).map(([name, value]) => ({ name, value, secret: false }));
    const caches = this.work?.variables(sandbox.cache.inside) ?? [];
    const led = caches.map((entry) => ({ ...entry, secret: false }));
    return [...sandbox.env, ...fixed, ...led, ...spec.env];
  }

  /** A line of a command; a build that floods its log goes on without one. */
  private output(line: string): void {
    if (this.logged > logCap) return;
    this.logged += line.length + 1;
    if (this.logged <= logCap) this.parts.io.log.line(line);
    else this.say(`nebo: the log is longer than ${logCap / 2 ** 20} MB, the rest of it is not kept`);
  }

  /** A script of package.json is run itself, its words in the log as npm would say them. */
  private async runBuild(command: string, cwd: string): Promise<void> {
    const direct = await directScript(this.tree, cwd, command);
    if (direct === null) return this.run(command, cwd);
    this.say(`$ ${command}`);
    this.say(`> ${direct.script}`);
    await this.run(direct.command, cwd, true, command);
  }

  /**
   * @param quiet not worth a line of its own
   * @param shown what sentences call it
   */
  private async run(command: string, cwd: string, quiet = false, shown = command): Promise<void> {
    if (!quiet) this.say(`$ ${command}`);
    const { log, signal } = this.parts.io;
    const lines = new LineSplitter(this.redactor, (line) => this.output(line));
    const child = await this.parts.sandbox.run({
      command,
      cwd,
      env: this.env(),
      onOutput: (chunk) => lines.push(chunk),
      paused: () => (log.full ? log.drained() : null),
    });
    const stop = () => void child.stop(0);
    signal.addEventListener('abort', stop, { once: true });
    if (signal.aborted) stop();
    try {
      const exit = await child.exited;
      lines.end();
      signal.throwIfAborted();
      if (exit.limit) throw new BuildFailure(`"${short(shown)}" was ended because it ${exit.limit}.`);
      if (exit.code !== 0) throw new BuildFailure(`"${short(shown)}" exited with code ${exit.code}.`);
    } finally {
      signal.removeEventListener('abort', stop);
    }
  }

  private async package(made: BuildOutput): Promise<BlobRef> {
    const { io, dir: home } = this.parts;
    const file = join(home, 'artifact.tgz');
    const dir = await this.tree.real(made.dir);
    // A site that is the source itself must not publish what never belongs to a site.
    const ignoreRules = made.kind === 'static' && dir === (await this.tree.real('.')) ? 'source' : 'none';
    const packed = await packFolder(dir, {
      ...{ ignoreRules, gitignore: false, limits: artifactLimits },
      // Unpacked soon, and by us: time counts more than size.
      level: 1,
    });
    if (packed.manifest.files === 0) throw new BuildFailure(`"${made.dir}" holds no files.`);
    for (const { path, why } of packed.manifest.warnings.slice(0, 20))
      this.say(`warning: ${path} is left out, ${why}`);
    await pipeline(packed.stream, createWriteStream(file, { mode: 0o600 }), { signal: io.signal });
    const blob = await packed.digest;
    await io.blobs.put(blob, () => createReadStream(file), io.signal);
    const { size } = await stat(file);
    this.say(
      `${made.kind} artifact ${blob.sha256.slice(0, 12)}: ${packed.manifest.files} files, ${size} bytes`,
    );
    return blob;
  }
}
