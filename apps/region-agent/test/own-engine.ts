import { execFile, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { EngineClient } from '../src/engine/client.js';
import { eventually } from './agent-kit.js';

const programs = ['/usr/sbin/dockerd', '/usr/bin/containerd', '/usr/bin/unshare'];

/** Why no real engine can be started here, or null. */
export function engineMissing(): string | null {
  if (process.getuid?.() !== 0) return 'only root can start dockerd';
  const missing = programs.find((path) => !existsSync(path));
  return missing === undefined ? null : `${missing} is not here (package docker.io)`;
}

/** Docker's daemon in namespaces of its own: neither the machine's network nor its own engine is touched. */
export class OwnEngine {
  private constructor(
    readonly socket: string,
    readonly client: EngineClient,
    private readonly end: () => Promise<void>,
  ) {}

  static async start(): Promise<OwnEngine> {
    const dir = await mkdtemp(join(tmpdir(), 'nebo-engine-'));
    const socket = join(dir, 'docker.sock');
    const log = await open(join(dir, 'log'), 'a');
    // --kill-child: whatever ends this process ends the daemon, its containers and their mounts with the namespaces.
    const flags = ['--net', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc'];
    const options = [
      ...['--data-root', join(dir, 'data'), '--exec-root', join(dir, 'exec'), '--pidfile', join(dir, 'pid')],
      // Steps have no network in these tests.
      ...['--bridge', 'none', '--iptables=false', '--ip6tables=false', '--host', `unix://${socket}`],
    ];
    const daemon = spawn('unshare', [...flags, 'dockerd', ...options], { stdio: ['ignore', log.fd, log.fd] });
    const exited = new Promise<void>((resolve) => daemon.once('exit', () => resolve()));
    await log.close();
    const client = new EngineClient(socket);
    const end = async () => {
      daemon.kill('SIGKILL');
      await exited;
      await rm(dir, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
    };
    try {
      await eventually(async () => {
        if (daemon.exitCode !== null) throw new Error('it ended');
        return (await client.open('GET', '/_ping').catch(() => null))?.resume();
      }, 60_000);
    } catch (error) {
      const words = await readFile(join(dir, 'log'), 'utf8');
      await end();
      throw new Error(`dockerd did not start: ${words.split('\n').slice(-6).join('\n')}`, { cause: error });
    }
    return new OwnEngine(socket, client, end);
  }

  stop(): Promise<void> {
    return this.end();
  }

  /** Makes an image of a folder's files, as `docker import` does. */
  async import(name: string, dir: string, changes: readonly string[]): Promise<void> {
    const { stdout } = await promisify(execFile)('tar', ['-C', dir, '--numeric-owner', '-c', '.'], {
      ...{ encoding: 'buffer', maxBuffer: 64 * 1024 * 1024 },
    });
    const { Readable } = await import('node:stream');
    const [repo = name, tag = 'latest'] = name.split(':');
    const query = { fromSrc: '-', repo, tag, ...(changes[0] ? { changes: changes[0] } : {}) };
    const answer = await this.client.open('POST', '/images/create', { query, body: Readable.from([stdout]) });
    let said = '';
    for await (const part of answer as AsyncIterable<Buffer>) said += part.toString();
    if (said.includes('"error"')) throw new Error(said);
  }

  /** All that there is: `kind id` of containers and images, for comparisons. */
  async things(): Promise<string[]> {
    const list = async (path: string) =>
      (await this.client.json<{ Id: string }[]>('GET', path, { query: { all: '1' } })) ?? [];
    return [...(await list('/containers/json')), ...(await list('/images/json'))].map(({ Id }) => Id).sort();
  }
}
