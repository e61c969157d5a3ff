import { createReadStream, createWriteStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import {
  archiveLimitsFromEnv,
  ArchiveRefused,
  artifactLimits,
  extractArchive,
  packFolder,
} from '@nebo/archive';
import { type ArtifactFacts, type BlobRef, type BuildSpec, type EnvEntry } from '@nebo/contracts';
import { type AgentLog } from '../agent-log.js';
import { type BuildHost, type BuildSandbox } from '../drivers/sandbox.js';
import { type BuildDriver, type BuildIo, type BuildOutcome, type DriverName } from '../drivers/types.js';
import { LineSplitter } from '../log/lines.js';
import { Redactor } from '../log/redact.js';
import { type Runs } from '../system/runs.js';
import { detect, output, type BuildOutput } from './detect.js';
import { fetchCommit } from './git-source.js';
import { readRouting } from './routing-file.js';
import { BuildFailure, SourceTree } from './tree.js';

export interface BuildDriverParts {
  host: BuildHost;
  runs: Runs;
  log: AgentLog;
}

/** Fetch, detect, install, build, package, over any way of enclosing the commands. */
export class HostBuildDriver implements BuildDriver {
  constructor(
    readonly name: DriverName,
    private readonly parts: BuildDriverParts,
  ) {}

  get isolated(): boolean {
    return this.parts.host.isolated;
  }

  start(): Promise<void> {
    return this.parts.host.cleanUp();
  }

  async build(id: string, spec: BuildSpec, io: BuildIo): Promise<BuildOutcome> {
    const began = Date.now();
    const run = this.parts.runs.create('build', id);
    let sandbox: BuildSandbox;
    try {
      sandbox = await this.parts.host.open(run);
    } catch (error) {
      await run.forget();
      throw error;
    }
    const steps = new Steps(spec, io, sandbox, join(run.dir, 'source.tgz'));
    try {
      const facts = await steps.all(join(run.dir, 'artifact.tgz'));
      return { state: 'success', facts: { ...facts, ...steps.fetched, duration_ms: Date.now() - began } };
    } catch (error) {
      io.signal.throwIfAborted();
      const reason = steps.redactor.redact(this.reason(id, steps.present, error));
      io.log.line(`\u001b[31m${reason}\u001b[0m`);
      return { state: 'error', reason, facts: steps.fetched };
    } finally {
      await sandbox.close();
      await run.forget();
    }
  }

  private reason(id: string, step: string, error: unknown): string {
    if (error instanceof BuildFailure || error instanceof ArchiveRefused) return `${step}: ${error.message}`;
    // Paths and addresses of the host are nothing for users.
    this.parts.log.error(
      { build: id, step, error: String((error as Error)?.stack ?? error) },
      'build step failed inside',
    );
    return `${step}: the region could not finish this step. Deploy again; the operator's log has the cause.`;
  }
}

/** Characters of output that are kept of one build. */
const logCap = 32 * 1024 * 1024;

/** A command as it may stand in a sentence. */
function short(command: string): string {
  const first = command.trim().split(/[\r\n]/, 1)[0]!;
  return first.length < command.trim().length || first.length > 120 ? `${first.slice(0, 120)} …` : first;
}

class Steps {
  present = 'fetch';
  readonly redactor: Redactor;
  /** What was fetched from git and stored, for the report. */
  fetched: Pick<ArtifactFacts, 'source'> = {};
  private logged = 0;
  private readonly tree: SourceTree;

  constructor(
    private readonly spec: BuildSpec,
    private readonly io: BuildIo,
    private readonly sandbox: BuildSandbox,
    private readonly sourceFile: string,
  ) {
    const secrets = spec.env.filter((entry) => entry.secret).map((entry) => entry.value);
    this.redactor = new Redactor([...secrets, ...(spec.git?.password ? [spec.git.password] : [])]);
    this.tree = new SourceTree(sandbox.tree);
  }

  async all(artifactFile: string): Promise<Omit<ArtifactFacts, 'duration_ms'>> {
    const { spec } = this;
    await this.step('fetch', () => this.fetch());
    const plan = await this.step('detect', async () => {
      const found = await detect(this.tree, spec);
      const commands = [found.install, found.build].filter((command) => command !== null);
      this.say(
        `${found.stack}${found.appDir === '.' ? '' : ` in ${found.appDir}`}: ${commands.map(short).join(', then ') || 'nothing to run'}`,
      );
      this.versionNote(found.pkg?.nodeEngine ?? null);
      return found;
    });
    // Before anything is built: a mistake in it is said at once.
    const routing = await this.step('rules', () =>
      readRouting(this.tree, plan.appDir, (line) => this.say(line)),
    );
    if (plan.install !== null) await this.step('install', () => this.run(plan.install!, plan.installDir));
    if (plan.build !== null) await this.step('build', () => this.run(plan.build!, plan.appDir));
    const { made, artifact } = await this.step('package', async () => {
      const result = await output(this.tree, spec, plan);
      return { made: result, artifact: await this.package(result, artifactFile) };
    });
    return {
      artifact,
      artifact_kind: made.kind,
      start_command: made.kind === 'server' ? made.start : null,
      stack: made.kind === 'server' ? 'node' : plan.stack,
      routing,
    };
  }

  private say(line: string): void {
    for (const part of line.split(/\r\n|\n|\r/)) this.io.log.line(this.redactor.redact(part));
  }

  private async step<T>(name: string, work: () => Promise<T>): Promise<T> {
    this.io.signal.throwIfAborted();
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
    const source = this.spec.source ?? (await this.fetchCommit());
    const bytes =
      this.spec.source === null
        ? createReadStream(this.sourceFile)
        : await this.io.blobs.get(source.sha256, this.io.signal);
    const options = { limits: archiveLimitsFromEnv(), signal: this.io.signal };
    const { owner, tree } = this.sandbox;
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
    const { spec, io, sandbox, sourceFile } = this;
    if (!spec.git) throw new Error('a build with neither bytes nor a commit');
    const say = (line: string) => this.say(line);
    const blob = await fetchCommit(spec.git, { sandbox, signal: io.signal, file: sourceFile, say });
    await io.blobs.put(blob, createReadStream(sourceFile), io.signal);
    this.fetched = { source: blob };
    return blob;
  }

  private versionNote(engine: string | null): void {
    const asked = this.spec.nodejs_version ?? engine;
    const major = Number(process.versions.node.split('.')[0]);
    // "20", "20.x", "^20.1", but not ">=18": a lower bound is met.
    const wanted = /^[\^~v=\s]*(\d+)[\d.x*\s]*$/.exec(asked ?? '');
    if (wanted && Number(wanted[1]) !== major)
      this.say(`note: Node ${asked} was asked for; this region builds with Node ${process.versions.node}`);
  }

  private env(): EnvEntry[] {
    const plain = { CI: '1', FORCE_COLOR: '1', NEXT_TELEMETRY_DISABLED: '1' };
    const fixed = Object.entries(plain).map(([name, value]) => ({ name, value, secret: false }));
    return [...this.sandbox.env, ...fixed, ...this.spec.env];
  }

  /** A line of a command; a build that floods its log goes on without one. */
  private output(line: string): void {
    if (this.logged > logCap) return;
    this.logged += line.length + 1;
    if (this.logged <= logCap) this.io.log.line(line);
    else this.say(`nebo: the log is longer than ${logCap / 2 ** 20} MB, the rest of it is not kept`);
  }

  private async run(command: string, cwd: string): Promise<void> {
    this.say(`$ ${command}`);
    const { log, signal } = this.io;
    const lines = new LineSplitter(this.redactor, (line) => this.output(line));
    const child = await this.sandbox.run({
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
      if (exit.limit) throw new BuildFailure(`"${short(command)}" was ended because it ${exit.limit}.`);
      if (exit.code !== 0) throw new BuildFailure(`"${short(command)}" exited with code ${exit.code}.`);
    } finally {
      signal.removeEventListener('abort', stop);
    }
  }

  private async package(made: BuildOutput, file: string): Promise<BlobRef> {
    const dir = await this.tree.real(made.dir);
    // A site that is the source itself must not publish what never belongs to a site.
    const ignoreRules = made.kind === 'static' && dir === (await this.tree.real('.')) ? 'source' : 'none';
    const packed = await packFolder(dir, { ignoreRules, gitignore: false, limits: artifactLimits });
    if (packed.manifest.files === 0) throw new BuildFailure(`"${made.dir}" holds no files.`);
    for (const { path, why } of packed.manifest.warnings.slice(0, 20))
      this.say(`warning: ${path} is left out, ${why}`);
    await pipeline(packed.stream, createWriteStream(file, { mode: 0o600 }), { signal: this.io.signal });
    const blob = await packed.digest;
    await this.io.blobs.put(blob, createReadStream(file), this.io.signal);
    const { size } = await stat(file);
    this.say(
      `${made.kind} artifact ${blob.sha256.slice(0, 12)}: ${packed.manifest.files} files, ${size} bytes`,
    );
    return blob;
  }
}
