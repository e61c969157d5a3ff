import { type ReplicaSpec } from '@nebo/contracts';
import { type Run } from '../../system/runs.js';
import { artifactEnv } from '../artifact-env.js';
import { proxyEnv } from '../egress-env.js';
import { type ReplicaHost, type ReplicaProcess } from '../sandbox.js';
import { startEnclosed } from './bwrap.js';
import { type Group } from './cgroups.js';
import { type LocalParts } from './create.js';
import { languagesInside } from './languages.js';
import { type RunNetwork } from './networks.js';

/** The port of every replica in its own network. */
const port = 8080;
const processes = 512;

/** Replicas in a sandbox with a network of their own: read-only system and artifact, nothing of the host in sight. */
export class LocalReplicaHost implements ReplicaHost {
  readonly isolated = true;

  constructor(
    private readonly parts: LocalParts,
    readonly cleanUp: () => Promise<void>,
  ) {}

  async close(): Promise<void> {
    await this.parts.cgroups?.removeBase();
  }

  async launch(
    run: Run,
    artifactDir: string,
    spec: ReplicaSpec,
    onOutput: (chunk: Buffer) => void,
  ): Promise<ReplicaProcess> {
    const { networks, cgroups, tools } = this.parts;
    const memoryBytes = Math.max(16, spec.memory_mb) * 1024 * 1024;
    let network: RunNetwork | null = null;
    let group: Group | null = null;
    const release = async () => {
      await group?.remove();
      await network?.close();
    };
    try {
      network = await networks.open(run.name);
      group = (await cgroups?.create(run.name, { memoryBytes, cpus: spec.vcpu, processes })) ?? null;
      const languages = languagesInside(tools, 'replica');
      const child = await startEnclosed({
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
          ...(network.proxyUrl ? proxyEnv(network.proxyUrl) : []),
          ...spec.env,
          { name: 'PORT', value: String(port), secret: false },
          { name: 'HOST', value: '0.0.0.0', secret: false },
        ],
        command: spec.start_command,
        limits: { processes, fileBytes: memoryBytes, tmpBytes: Math.min(memoryBytes, 512 * 1024 * 1024) },
        onOutput,
      });
      const memory = `used more than its ${spec.memory_mb} MB of memory`;
      const exited = child.exited
        .then((exit) => (exit.limit ? { ...exit, limit: memory } : exit))
        .finally(release);
      return {
        host: network.slot.address,
        port,
        exited,
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
}
