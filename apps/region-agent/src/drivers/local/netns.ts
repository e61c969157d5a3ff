import { rm, stat, statfs } from 'node:fs/promises';
import { signal } from '../../system/processes.js';
import { tool } from './exec.js';

/** What a mounted namespace is, see statfs(2). */
const namespaceFilesystem = 0x6e736673;

/** One network namespace of this host, or the one that the agent itself is in. */
export class NetworkSpace {
  /** @param name null: the agent's own */
  constructor(readonly name: string | null) {}

  /** Runs a tool inside. @throws Error with what it said */
  run(argv: readonly string[], input?: string): Promise<string> {
    return tool(this.name === null ? argv : ['ip', 'netns', 'exec', this.name, ...argv], input);
  }

  /** Lines of `ip -batch`, in order; the first that fails ends it. @throws Error with what it said */
  async ip(lines: readonly string[]): Promise<void> {
    if (lines.length === 0) return;
    await tool(['ip', ...this.named(), '-batch', '-'], `${lines.join('\n')}\n`);
  }

  /** What `ip -json` shows. @throws Error with what it said */
  async show<T>(...words: string[]): Promise<T[]> {
    const text = await tool(['ip', '-json', '-details', ...this.named(), ...words]);
    return text.trim() === '' ? [] : (JSON.parse(text) as T[]);
  }

  /**
   * Writes one value into several switches of `/proc/sys/net`, which shows each namespace its own.
   * @throws Error when one is not there or cannot be written
   */
  async set(value: string, switches: readonly string[]): Promise<void> {
    await this.run(['tee', ...switches.map((name) => `/proc/sys/net/${name}`)], value);
  }

  /** The same for switches that not every kernel has. */
  async trySet(value: string, switches: readonly string[]): Promise<void> {
    await this.set(value, switches).catch(() => undefined);
  }

  /**
   * Ends connections that the kernel keeps for an address.
   * @param sides where in a connection it stands, in words of `conntrack`
   */
  async forget(address: string, sides: readonly ('orig-src' | 'orig-dst' | 'reply-dst')[]): Promise<void> {
    for (const side of sides)
      await this.run(['conntrack', '-D', `--${side}`, address]).catch((error: Error) => {
        // It fails when there was none.
        if (!error.message.includes('0 flow entries')) throw error;
      });
  }

  async create(): Promise<void> {
    await this.removeName();
    await tool(['ip', 'netns', 'add', this.name!]);
  }

  /** A file of that name is not enough: it stays when a container that had the namespace mounted on it was replaced. */
  exists(): Promise<boolean> {
    if (this.name === null) return Promise.resolve(true);
    return statfs(`/run/netns/${this.name}`).then(
      ({ type }) => type === namespaceFilesystem,
      () => false,
    );
  }

  /** Whether a process is inside. */
  async holds(pid: number): Promise<boolean> {
    const [own, its] = await Promise.all(
      [`/run/netns/${this.name!}`, `/proc/${pid}/ns/net`].map((path) => stat(path).catch(() => null)),
    );
    return own !== null && its !== null && own!.ino === its!.ino;
  }

  /** Takes the namespace away, with what runs in it: a process that is left would keep it alive. */
  async remove(): Promise<void> {
    if (this.name === null) return;
    if (!(await this.exists())) return this.removeName();
    const pids = await tool(['ip', 'netns', 'pids', this.name]).catch(() => '');
    for (const pid of pids.split('\n')) if (/^[1-9]\d*$/.test(pid)) signal(Number(pid), 'SIGKILL');
    await tool(['ip', 'netns', 'del', this.name]);
  }

  /** Of a namespace that is not there. */
  private async removeName(): Promise<void> {
    if (!(await this.exists())) await rm(`/run/netns/${this.name!}`, { force: true });
  }

  private named(): string[] {
    return this.name === null ? [] : ['-netns', this.name];
  }
}

/** What `ip -json address show` says of a device, as far as it is read here. */
export interface Device {
  ifname: string;
  flags: string[];
  address?: string;
  master?: string;
  linkinfo?: { info_kind?: string };
  addr_info?: { family: string; local: string; prefixlen: number }[];
}

/** What `ip -json route show` says of a route. */
export interface Route {
  dst: string;
  dev?: string;
  gateway?: string;
}
