import { type EnvEntry, type ReplicaSpec } from '@nebo/contracts';
import { type Run } from '../../system/runs.js';
import { artifactEnv } from '../artifact-env.js';
import { pastProxy } from '../address-book.js';
import { proxyEnv } from '../egress-env.js';
import { type ReplicaHost, type ReplicaProcess, type SandboxProcess } from '../sandbox.js';
import { startEnclosed } from './bwrap.js';
import { type Group } from './cgroups.js';
import { type LocalParts } from './create.js';
import { languagesInside } from './languages.js';
import { startImage } from './image-enclosure.js';
import { type RunNetwork } from './networks.js';

/** The port of every replica in its own network. */
const port = 8080;
const processes = 512;
const memoryOf = ({ memory_mb }: Pick<ReplicaSpec, 'memory_mb'>): number =>
  Math.max(16, memory_mb) * 1024 * 1024;
const tmpOf = (memoryBytes: number): number => Math.min(memoryBytes, 512 * 1024 * 1024);

/** Replicas in a sandbox with a network of their own: read-only system and artifact, nothing of the host in sight. */
export class LocalReplicaHost implements ReplicaHost {
  readonly isolated = true;

  get joins(): boolean {
    return this.parts.networks.areReal;
  }

  constructor(
    private readonly parts: LocalParts,
    readonly cleanUp: () => Promise<void>,
  ) {}

  async leftOverCpu(name: string): Promise<number | null> {
    return (await this.parts.cgroups?.cpuMicroseconds(name)) ?? null;
  }

  async close(): Promise<void> {
    await this.parts.ready.close();
    await this.parts.cgroups?.removeBase();
  }

  async launch(
    run: Run,
    artifactDir: string,
    spec: ReplicaSpec,
    onOutput: (chunk: Buffer) => void,
    signal: AbortSignal,
  ): Promise<ReplicaProcess> {
    const { networks, ready, cgroups, tools } = this.parts;
    const memoryBytes = memoryOf(spec);
    let network: RunNetwork | null = null;
    let group: Group | null = null;
    /** The counter as it was when its group was removed. */
    let last: number | null = null;
    let released = false;
    const release = async () => {
      last = (await group?.cpuMicroseconds()) ?? null;
      released = true;
      await group?.remove();
      await network?.close();
    };
    try {
      network = spec.port ? await networks.open(run.name, spec.port, signal) : await ready.take(run.name);
      group = (await cgroups?.create(run.name, { memoryBytes, cpus: spec.vcpu, processes })) ?? null;
      const languages = languagesInside(tools, 'replica');
      const image = spec.image ? await this.image(run, artifactDir, spec, network, group, onOutput) : null;
      const child =
        image?.child ??
        (await startEnclosed({
          run,
          tools,
          uid: network.slot.uid,
          network: network.namespace,
          group,
          binds: [{ from: artifactDir, to: '/app', writable: false }, ...languages.binds],
          cwd: '/app',
          env: [
            { name: 'HOME', value: '/tmp', secret: false },
            { name: 'NODE_ENV', value: 'production', secret: false },
            ...languages.env,
            ...artifactEnv(artifactDir, '/app', languages.path),
            ...this.around(network, spec),
            ...spec.env,
            { name: 'PORT', value: String(port), secret: false },
            { name: 'HOST', value: '0.0.0.0', secret: false },
          ],
          command: spec.start_command,
          limits: { processes, fileBytes: memoryBytes, tmpBytes: tmpOf(memoryBytes) },
          onOutput,
        }));
      const memory = `used more than its ${spec.memory_mb} MB of memory`;
      const exited = child.exited
        .then((exit) => (exit.limit ? { ...exit, limit: memory } : exit))
        .finally(release);
      return {
        host: network.slot.address,
        port: image?.port ?? port,
        exited,
        ...(group ? { cpu: async () => (released ? last : ((await group?.cpuMicroseconds()) ?? last)) } : {}),
        stop: (graceMs) =>
          child
            .stop(graceMs)
            .then(() => exited)
            .then(() => undefined),
      };
    } catch (error) {
      await release();
      throw error;
    }
  }

  /** Variables that say where it is: the way out, and its own address in its private network. */
  private around({ proxyUrl }: RunNetwork, { port }: ReplicaSpec): EnvEntry[] {
    const address = port && this.joins ? port.address : null;
    return [
      ...(proxyUrl ? proxyEnv(proxyUrl, port ? pastProxy(port) : []) : []),
      ...(address === null ? [] : [{ name: 'NEBO_PRIVATE_ADDRESS', value: address, secret: false }]),
    ];
  }

  /** The same around an image: its root file system in place of the host's. */
  private async image(
    run: Run,
    folder: string,
    spec: ReplicaSpec,
    network: RunNetwork,
    group: Group | null,
    onOutput: (chunk: Buffer) => void,
  ): Promise<{ child: SandboxProcess; port: number }> {
    const bytes = memoryOf(spec);
    return startImage({
      ...{ run, network: network.namespace, group, onOutput, uid: network.slot.uid, folder, spec },
      region: this.around(network, spec),
      toolchain: this.parts.tools,
      tools: await this.parts.imageTools(),
      // What it writes is in memory too: a full disk is to be met before the end of all memory.
      limits: { processes, fileBytes: bytes, tmpBytes: tmpOf(Math.floor(bytes / 2)) },
    });
  }
}
