import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
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
  /** Path of the list of all its containers, those of builds too. */
  containers: string;
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
    containers: '/containers/json?all=1',
  },
  podman: {
    // crun, which it would take, refuses hosts that mount groups of both versions.
    programs: ['/usr/bin/podman', '/usr/sbin/runc', '/usr/bin/unshare'],
    package: 'podman, and runc',
    argv: (dir, socket) => [
      ...[
        'podman',
        '--root',
        join(dir, 'data'),
        '--runroot',
        join(dir, 'run'),
        '--storage-driver',
        'overlay',
      ],
      ...['--cgroup-manager', 'cgroupfs', '--events-backend', 'none', '--runtime', '/usr/sbin/runc'],
      ...['system', 'service', '--time', '0', `unix://${socket}`],
    ],
    containers: '/v4.0.0/libpod/containers/json?all=true&external=true',
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
  readonly socket: string;
  private readonly group: string;
  private daemon: ChildProcess | null = null;

  private constructor(
    private readonly kind: OwnEngineKind,
    private readonly dir: string,
  ) {
    this.socket = join(dir, 'docker.sock');
    this.group = `/${basename(dir)}`;
  }

  /** @throws Error with the daemon's last words when it does not come up */
  static async start(kind: OwnEngineKind = 'docker'): Promise<OwnEngine> {
    const engine = new OwnEngine(kind, await mkdtemp(join(tmpdir(), 'nebo-engine-')));
    await engine.up();
    return engine;
  }

  /** Starts the daemon, also again after `kill`. */
  async up(): Promise<void> {
    const { dir, kind, socket, group } = this;
    const log = await open(join(dir, 'log'), 'a');
    // --kill-child: whatever ends this process ends the daemon, its containers and their mounts with the namespaces.
    const flags = ['--net', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc'];
    const argv = kinds[kind].argv(dir, socket, group);
    const daemon = spawn('unshare', [...flags, ...argv], { stdio: ['ignore', log.fd, log.fd] });
    this.daemon = daemon;
    await log.close();
    for (const until = Date.now() + startMs; ; await sleep(100)) {
      if ((await this.call('GET', '/_ping')).status === 200) return;
      if (daemon.exitCode === null && Date.now() < until) continue;
      const words = await readFile(join(dir, 'log'), 'utf8');
      await this.stop();
      throw new Error(`${kind} did not start: ${words.split('\n').slice(-6).join('\n')}`);
    }
  }

  /** As when the machine loses power, for the engine: what it stored stays. */
  async kill(): Promise<void> {
    const { daemon } = this;
    this.daemon = null;
    if (!daemon || daemon.exitCode !== null || daemon.signalCode !== null) return;
    const exited = once(daemon, 'exit');
    daemon.kill('SIGKILL');
    await exited;
    // What it wrote of itself would keep the next one from starting.
    for (const path of [join(this.dir, 'pid'), this.socket]) await rm(path, { force: true });
  }

  /** Ends it and removes all of it. */
  async stop(): Promise<void> {
    await this.kill();
    for (const controller of await readdir('/sys/fs/cgroup'))
      await rmdir(join('/sys/fs/cgroup', controller, this.group)).catch(() => undefined);
    await rmdir(join('/sys/fs/cgroup', this.group)).catch(() => undefined);
    await rm(this.dir, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
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
    return [...(await list(kinds[this.kind].containers)), ...(await list('/images/json?all=1'))].sort();
  }
}
