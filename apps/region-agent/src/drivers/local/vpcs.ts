import { createHash } from 'node:crypto';
import { access, mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type VpcSpec } from '@nebo/contracts';
import { signal } from '../../system/processes.js';
import { addressBookFault } from '../address-book.js';
import { type NetworkDriver, type VpcObservation } from '../types.js';
import { tool } from './exec.js';

/** What is kept of a VPC beside its namespace, so that the next agent knows what it found. */
interface Kept {
  generation: number;
  /** Of subnet and gateway: another one needs another namespace. */
  range: string;
}

/**
 * Rules of a VPC's namespace. Hosts meet on the bridge; of the namespace itself they reach DHCP and an echo, and nothing is
 * forwarded past the bridge. With no link to the host there is no way out anyway: the rules hold when a gateway adds one.
 */
const rules = `table inet nebo {
  chain input {
    type filter hook input priority 0; policy drop;
    iifname "lo" accept
    iifname "br0" udp dport 67 accept
    iifname "br0" icmp type echo-request accept
    ct state established,related accept
  }
  chain forward {
    type filter hook forward priority 0; policy drop;
    iifname "br0" oifname "br0" accept
  }
  chain output {
    type filter hook output priority 0; policy drop;
    oifname { "lo", "br0" } accept
  }
}
`;

/**
 * One network namespace per VPC with a bridge, rules and a DHCP server that knows the ports and nobody else. A host joins
 * by a link whose other end is enslaved to the bridge. Names come from the tag of the agent's home and the VPC's id, so
 * that a killed agent's networks are found again.
 */
export class LocalNetworkDriver implements NetworkDriver {
  readonly name = 'local';
  readonly isolated = true;
  /** One change of an id after the other. */
  private readonly turns = new Map<string, Promise<unknown>>();

  /**
   * @param tag six hex digits of the agent's home
   * @param root folder of configurations; readable by the DHCP server, which is not root
   */
  constructor(
    private readonly tag: string,
    private readonly root = '/run/nebo-networks',
  ) {}

  /** What an earlier agent left stays: it is adopted by `ensure`, or removed when it is not wanted. */
  async start(): Promise<void> {
    await mkdir(join(this.root, this.tag), { recursive: true, mode: 0o755 });
  }

  /** Name of a VPC's namespace, for what joins it. */
  namespaceOf(id: string): string {
    return `nebovpc-${this.tag}-${id}`;
  }

  ensure(id: string, generation: number, spec: VpcSpec): Promise<VpcObservation> {
    return this.inTurn(id, async () => {
      const facts = { driver: this.name, real: true, ports: spec.ports.length };
      const fault = checkedId(id) ?? addressBookFault(spec);
      if (fault !== null) return { id, generation, state: 'error', reason: fault, facts };
      const range = createHash('sha256').update(`${rules}|${spec.subnet}|${spec.gateway}`).digest('hex');
      const kept = await this.kept(id);
      if (kept?.range !== range || !(await exists(`/run/netns/${this.namespaceOf(id)}`))) {
        await this.tearDown(id);
        await this.build(id, spec);
      }
      await this.serve(id, spec);
      await this.write(id, 'state.json', JSON.stringify({ generation, range } satisfies Kept));
      return { id, generation, state: 'active', reason: null, facts };
    });
  }

  remove(id: string): Promise<void> {
    return this.inTurn(id, async () => {
      if (checkedId(id) === null) await this.tearDown(id);
    });
  }

  /** What is on this host, whoever made it: a namespace without its folder and a folder without its namespace too. */
  async list(): Promise<VpcObservation[]> {
    const prefix = this.namespaceOf('');
    const spaces = (await readdir('/run/netns').catch(() => []))
      .filter((name) => name.startsWith(prefix))
      .map((name) => name.slice(prefix.length));
    const folders = await readdir(join(this.root, this.tag)).catch(() => []);
    const ids = [...new Set([...spaces, ...folders])].filter((id) => checkedId(id) === null);
    return Promise.all(
      ids.map(async (id) => {
        const kept = await this.kept(id);
        const whole = kept !== null && spaces.includes(id);
        return {
          id,
          generation: kept?.generation ?? 0,
          state: whole ? ('active' as const) : ('error' as const),
          reason: whole ? null : 'it was left half made',
          facts: { driver: this.name, real: true },
        };
      }),
    );
  }

  /** Takes every network of this agent away, its processes included. */
  async stop(): Promise<void> {
    await Promise.all((await this.list()).map(({ id }) => this.remove(id)));
    await rm(join(this.root, this.tag), { recursive: true, force: true });
  }

  private async build(id: string, { subnet, gateway }: VpcSpec): Promise<void> {
    const namespace = this.namespaceOf(id);
    const bits = subnet.split('/')[1]!;
    try {
      await tool(['ip', 'netns', 'add', namespace]);
      await tool(
        ['ip', '-n', namespace, '-batch', '-'],
        `link set lo up\nlink add br0 type bridge\naddr add ${gateway}/${bits} dev br0\nlink set br0 up\n`,
      );
      await tool(['ip', 'netns', 'exec', namespace, 'nft', '-f', '-'], rules);
    } catch (error) {
      await this.tearDown(id);
      throw error;
    }
  }

  /** Has DHCP give exactly the ports' addresses; a server that runs reads them anew. */
  private async serve(id: string, { subnet, gateway, ports }: VpcSpec): Promise<void> {
    const hosts = ports.map(({ mac, address }) => `${mac},${address}\n`).join('');
    const changed = await this.write(id, 'hosts', hosts);
    const running = await this.server(id);
    if (running !== null) {
      if (changed) signal(running, 'SIGHUP');
      return;
    }
    const [network] = subnet.split('/');
    const dir = this.dir(id);
    await tool([
      ...['ip', 'netns', 'exec', this.namespaceOf(id), 'dnsmasq', '--conf-file=/dev/null', '--user=nobody'],
      ...['--port=0', '--interface=br0', '--except-interface=lo', '--bind-interfaces', '--no-ping'],
      ...['--dhcp-authoritative', `--dhcp-range=${network},static,${maskOf(subnet)},1h`],
      ...[`--dhcp-hostsfile=${join(dir, 'hosts')}`, `--dhcp-leasefile=${join(dir, 'leases')}`],
      ...[`--dhcp-option=option:router,${gateway}`, `--pid-file=${join(dir, 'dhcp.pid')}`],
    ]);
  }

  /** The pid of the VPC's DHCP server, null when it does not run: a number in a file alone may be somebody else's by now. */
  private async server(id: string): Promise<number | null> {
    const pid = Number(await readFile(join(this.dir(id), 'dhcp.pid'), 'utf8').catch(() => ''));
    if (!Number.isInteger(pid) || pid < 2) return null;
    const command = await readFile(`/proc/${pid}/cmdline`, 'latin1').catch(() => '');
    return command.includes(`--pid-file=${join(this.dir(id), 'dhcp.pid')}\0`) ? pid : null;
  }

  private async tearDown(id: string): Promise<void> {
    const namespace = this.namespaceOf(id);
    const pids = await tool(['ip', 'netns', 'pids', namespace]).catch(() => '');
    // A process that is left would keep the old namespace alive.
    for (const pid of pids.split('\n')) if (/^[1-9]\d*$/.test(pid)) signal(Number(pid), 'SIGKILL');
    if (await exists(`/run/netns/${namespace}`)) await tool(['ip', 'netns', 'del', namespace]);
    await rm(this.dir(id), { recursive: true, force: true });
  }

  private dir(id: string): string {
    return join(this.root, this.tag, id);
  }

  private async kept(id: string): Promise<Kept | null> {
    try {
      return JSON.parse(await readFile(join(this.dir(id), 'state.json'), 'utf8')) as Kept;
    } catch {
      // None, or half a file: made anew.
      return null;
    }
  }

  /** @returns whether the file was not so before */
  private async write(id: string, name: string, text: string): Promise<boolean> {
    const file = join(this.dir(id), name);
    if ((await readFile(file, 'utf8').catch(() => null)) === text) return false;
    await mkdir(this.dir(id), { recursive: true, mode: 0o755 });
    await writeFile(`${file}.new`, text, { mode: 0o644 });
    await rename(`${file}.new`, file);
    return true;
  }

  private inTurn<T>(id: string, work: () => Promise<T>): Promise<T> {
    const turn = (this.turns.get(id) ?? Promise.resolve()).then(work);
    const settled = turn.catch(() => undefined);
    this.turns.set(id, settled);
    void settled.then(() => {
      if (this.turns.get(id) === settled) this.turns.delete(id);
    });
    return turn;
  }
}

/** Ids become names on this host: anything but an id is refused. */
const checkedId = (id: string): string | null =>
  /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(id) ? null : 'the id is none';

const exists = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  );

/** Netmask of a range in CIDR form. */
const maskOf = (subnet: string): string => {
  const bits = (0xffffffff << (32 - Number(subnet.split('/')[1]))) >>> 0;
  return [24, 16, 8, 0].map((shift) => (bits >>> shift) & 255).join('.');
};
