import { execFile, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, open, readdir, readFile, rm, rmdir } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

/** Engines that a test can have. */
export type OwnEngineKind = 'docker' | 'podman';

interface Kind {
  programs: readonly string[];
  package: string;
  /** @param dir of its own @param group above those of its containers */
  argv(dir: string, socket: string, group: string): string[];
}

const kinds: Record<OwnEngineKind, Kind> = {
  docker: {
    programs: ['/usr/sbin/dockerd', '/usr/bin/containerd', '/usr/bin/unshare'],
    package: 'docker.io',
    argv: (dir, socket, group) => [
      ...['dockerd', '--data-root', join(dir, 'data'), '--exec-root', join(dir, 'exec')],
      ...['--pidfile', join(dir, 'pid'), '--bridge', 'none', '--iptables=false', '--ip6tables=false'],
      // Not among the groups of an engine that the machine has.
      ...['--cgroup-parent', group, '--host', `unix://${socket}`],
    ],
  },
  podman: {
    // crun, which it would take, refuses hosts that mount groups of both versions.
    programs: ['/usr/bin/podman', '/usr/sbin/runc', '/usr/bin/unshare'],
    package: 'podman, and runc',
    argv: (dir, socket) => [
      ...['podman', '--root', join(dir, 'data'), '--runroot', join(dir, 'run'), '--storage-driver', 'vfs'],
      ...['--cgroup-manager', 'cgroupfs', '--events-backend', 'none', '--runtime', '/usr/sbin/runc'],
      ...['system', 'service', '--time', '0', `unix://${socket}`],
    ],
  },
};
const startMs = 60_000;

/** Why no engine of a test's own can be started here, or null. */
export function ownEngineMissing(kind: OwnEngineKind = 'docker'): string | null {
  if (process.getuid?.() !== 0) return 'only root can start an engine';
  const missing = kinds[kind].programs.find((path) => !existsSync(path));
  return missing === undefined ? null : `${missing} is not here (package ${kinds[kind].package})`;
}

/**
 * An engine's daemon in namespaces of its own: neither the machine's network nor an engine that it has is touched. Its containers have no
 * network.
 */
export class OwnEngine {
  private constructor(
    readonly socket: string,
    private readonly end: () => Promise<void>,
  ) {}

  /** @throws Error with the daemon's last words when it does not come up */
  static async start(kind: OwnEngineKind = 'docker'): Promise<OwnEngine> {
    const dir = await mkdtemp(join(tmpdir(), 'nebo-engine-'));
    const socket = join(dir, 'docker.sock');
    const log = await open(join(dir, 'log'), 'a');
    // --kill-child: whatever ends this process ends the daemon, its containers and their mounts with the namespaces.
    const flags = ['--net', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc'];
    const group = `/${basename(dir)}`;
    const argv = kinds[kind].argv(dir, socket, group);
    const daemon = spawn('unshare', [...flags, ...argv], { stdio: ['ignore', log.fd, log.fd] });
    const exited = new Promise<void>((resolve) => daemon.once('exit', () => resolve()));
    await log.close();
    const engine = new OwnEngine(socket, async () => {
      daemon.kill('SIGKILL');
      await exited;
      for (const controller of await readdir('/sys/fs/cgroup'))
        await rmdir(join('/sys/fs/cgroup', controller, group)).catch(() => undefined);
      await rmdir(join('/sys/fs/cgroup', group)).catch(() => undefined);
      await rm(dir, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
    });
    for (const until = Date.now() + startMs; ; await sleep(100)) {
      if ((await engine.call('GET', '/_ping')).status === 200) return engine;
      if (daemon.exitCode === null && Date.now() < until) continue;
      const words = await readFile(join(dir, 'log'), 'utf8');
      await engine.stop();
      throw new Error(`${kind} did not start: ${words.split('\n').slice(-6).join('\n')}`);
    }
  }

  stop(): Promise<void> {
    return this.end();
  }

  /** One request to its API; status 0 when nobody answers. */
  call(method: string, path: string, body?: Buffer): Promise<{ status: number; text: string }> {
    return new Promise((resolve) => {
      const none = () => resolve({ status: 0, text: '' });
      const headers = body ? { 'content-type': 'application/x-tar' } : {};
      const ask = request({ socketPath: this.socket, method, path, headers, agent: false }, (answer) => {
        let text = '';
        answer.setEncoding('utf8').on('data', (part: string) => (text += part));
        answer.on('end', () => resolve({ status: answer.statusCode ?? 0, text }));
        answer.on('error', none);
      });
      ask.on('error', none).end(body);
    });
  }

  /**
   * Makes an image of a folder's files.
   * @param change one instruction, such as `ENV PATH=/bin`
   */
  async import(name: string, dir: string, change: string): Promise<void> {
    const options = { encoding: 'buffer', maxBuffer: 64 * 1024 * 1024 } as const;
    const { stdout } = await promisify(execFile)('tar', ['-C', dir, '--numeric-owner', '-c', '.'], options);
    // Podman takes the tag with the name only.
    const query = new URLSearchParams({ fromSrc: '-', repo: name, changes: change });
    const { status, text } = await this.call('POST', `/images/create?${query}`, stdout);
    if (status !== 200 || text.includes('"error"'))
      throw new Error(`${name} was not made: ${status} ${text}`);
  }

  /** Ids of all containers and images, for comparisons. */
  async things(): Promise<string[]> {
    const list = async (path: string) =>
      (JSON.parse((await this.call('GET', path)).text) as { Id: string }[]).map(({ Id }) => Id);
    return [...(await list('/containers/json?all=1')), ...(await list('/images/json?all=1'))].sort();
  }
}
