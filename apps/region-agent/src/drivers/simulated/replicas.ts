import { createServer } from 'node:net';
import { type AddressInfo } from 'node:net';
import { type ReplicaSpec } from '@nebo/contracts';
import { type Run } from '../../system/runs.js';
import { type Toolchain } from '../../system/toolchain.js';
import { artifactEnv } from '../artifact-env.js';
import { proxyEnv } from '../egress-env.js';
import { type ReplicaHost, type ReplicaProcess } from '../sandbox.js';
import { type Egress } from '../types.js';
import { plainEnv, startPlain } from './process.js';

/** A port that nobody holds right now. */
async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', resolve);
  });
  const { port } = server.address() as AddressInfo;
  await new Promise<void>((resolve) => server.close(() => resolve()));
  return port;
}

/**
 * Replicas as plain child processes on 127.0.0.1: for laptops and tests. Not isolated, marked so. HOST is the loopback
 * address here, since 0.0.0.0 would open the app to the laptop's network.
 */
export class SimulatedReplicaHost implements ReplicaHost {
  readonly isolated = false;
  readonly joins = false;

  constructor(private readonly options: { tools: Toolchain; egress: Egress | null }) {}

  async cleanUp(): Promise<void> {
    // Processes and folders are found by their records, which the agent has cleaned up before.
  }

  async launch(
    run: Run,
    artifactDir: string,
    spec: ReplicaSpec,
    onOutput: (chunk: Buffer) => void,
  ): Promise<ReplicaProcess> {
    if (spec.image) throw new Error('images run in the sandbox of the local driver only');
    const port = await freePort();
    const { tools, egress } = this.options;
    const plain = plainEnv(run, tools);
    const path = plain.find(({ name }) => name === 'PATH')!.value;
    const env = [
      ...plain,
      ...artifactEnv(artifactDir, artifactDir, path),
      ...(egress ? proxyEnv(egress.proxyUrl) : []),
      { name: 'NODE_ENV', value: 'production', secret: false },
      ...spec.env,
      { name: 'PORT', value: String(port), secret: false },
      { name: 'HOST', value: '127.0.0.1', secret: false },
    ];
    const child = await startPlain(run, spec.start_command, artifactDir, env, { onOutput });
    return { exited: child.exited, stop: (graceMs) => child.stop(graceMs), host: '127.0.0.1', port };
  }
}
