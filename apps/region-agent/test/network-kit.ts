import { spawn } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type VpcSpec } from '@nebo/contracts';
import { tool } from '../src/drivers/local/exec.js';
import { uplinkSettings } from '../src/drivers/local/uplink-mode.js';
import { LocalNetworkDriver } from '../src/drivers/local/vpcs.js';

/** A spec in a range that another VPC may have too. */
export const specOf = (subnet = '10.77.0.0/24', ports: VpcSpec['ports'] = []): VpcSpec => ({
  account_id: randomUUID(),
  subnet,
  gateway: subnet.replace(/0\/\d+$/, '1'),
  ports,
  floating_ips: [],
  nat: null,
});

export type Port = VpcSpec['ports'][number];

/** A port; `02:00:00:00:00:<last>`. */
export const portOf = (address: string, last: string): Port => ({
  id: randomUUID(),
  mac: `02:00:00:00:00:${last}`,
  address,
});

export const floatingOf = (address: string, port: Port): VpcSpec['floating_ips'][number] => ({
  id: randomUUID(),
  address,
  port_id: port.id,
});

export const natOf = (address: string): NonNullable<VpcSpec['nat']> => ({ id: randomUUID(), address });

const never = new AbortController().signal;

/** Network namespaces that stand for machines and for what is outside. */
export class Hosts {
  private readonly made: string[] = [];

  async space(): Promise<string> {
    const name = `nebotest-${randomBytes(5).toString('hex')}`;
    await tool(['ip', 'netns', 'add', name]);
    this.made.push(name);
    await tool(['ip', '-n', name, 'link', 'set', 'lo', 'up']);
    return name;
  }

  /** A host behind a port of a VPC. @param how `dhcp`: with the MAC, without an address */
  async join(
    driver: LocalNetworkDriver,
    vpc: string,
    port: Port,
    how: 'dhcp' | 'static' = 'static',
  ): Promise<string> {
    const name = await this.space();
    await driver.plug(vpc, port.id, { namespace: name, device: 'eth0', mac: port.mac }, never);
    const gateway = port.address.replace(/\d+$/, '1');
    await tool(
      ['ip', '-n', name, '-batch', '-'],
      `link set eth0 up\n${
        how === 'dhcp'
          ? 'route add 255.255.255.255 dev eth0\n'
          : `addr add ${port.address}/24 dev eth0\nroute add default via ${gateway}\n`
      }`,
    );
    return name;
  }

  /** Leaves a TCP server that says `<host> <who asks>` and then echoes, on a port of a host; ends with the host. */
  async listen(host: string, port = 8000, address = '::'): Promise<void> {
    const program = `require('node:net').createServer((s) => { s.on('error', () => 0);
      s.write('${host} ' + s.remoteAddress.replace('::ffff:', '')); s.pipe(s); }).listen(${port}, '${address}', () => console.log('up'))`;
    await this.leave(host, program);
  }

  /** Leaves a program in a host until the host goes. It has begun once it says something. */
  async leave(host: string, program: string): Promise<{ said(): string }> {
    const child = spawn('ip', ['netns', 'exec', host, process.execPath, '-e', program], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let said = '';
    await new Promise<void>((resolve, reject) => {
      child.stdout.on('data', (chunk: Buffer) => {
        said += chunk.toString();
        resolve();
      });
      child.once('exit', () => reject(new Error('a program of a host ended')));
      setTimeout(() => reject(new Error('a program of a host says nothing')), 20_000).unref();
    });
    return { said: () => said };
  }

  /** Leaves an ear for single packets (UDP, port 9000), which need no way back to be heard: from whom they came. */
  async hear(host: string): Promise<{ from(): string[] }> {
    const program = `const s = require('node:dgram').createSocket('udp4'); console.log('up');
      s.on('message', (_, { address }) => console.log(address)); s.bind(9000);`;
    const { said } = await this.leave(host, program);
    return { from: () => said().split('\n').slice(1).filter(Boolean) };
  }

  /** Sends single packets to an address's ear. @param from the source */
  async say(host: string, address: string, from: string): Promise<void> {
    const program = `const s = require('node:dgram').createSocket('udp4');
      s.bind(0, '${from}', () => { let left = 5; setInterval(() => { if (left-- === 0) process.exit(0);
        s.send('x', 9000, '${address}', () => 0); }, 60); });`;
    await tool(['ip', 'netns', 'exec', host, process.execPath, '-e', program]);
  }

  /** A connection that goes on: its answers are counted. */
  async chat(host: string, address: string): Promise<{ answers(): number }> {
    const program = `const s = require('node:net').connect({ host: '${address}', port: 8000 });
      s.on('error', () => 0); s.on('data', () => process.stdout.write('.'));
      setInterval(() => { s.write('x'); }, 100); setInterval(() => 0, 1000);`;
    const { said } = await this.leave(host, program);
    return { answers: () => said().length };
  }

  /**
   * Who answers on an address and whom it sees (`<host> <source>`), or `unreachable`.
   * @param from another source than the host's own
   */
  async connect(host: string, address: string, port = 8000, from?: string, ms = 5_000): Promise<string> {
    const source = from === undefined ? '' : `localAddress: '${from}', `;
    const program = `const s = require('node:net').connect({ ${source}host: '${address}', port: ${port}, timeout: ${ms} });
      s.on('data', (d) => { process.stdout.write(d); process.exit(0); });
      for (const e of ['error', 'timeout', 'end']) s.on(e, () => { process.stdout.write('unreachable'); process.exit(0); });`;
    return tool(['ip', 'netns', 'exec', host, process.execPath, '-e', program]);
  }

  /** Whether nobody answers there. */
  async unreachable(host: string, address: string, port = 8000, from?: string): Promise<boolean> {
    return (await this.connect(host, address, port, from, 1_200)) === 'unreachable';
  }

  /**
   * The address that DHCP offers, or `none`.
   * @param want `take` it too; an address: ask to keep it, `refused` when that is not possible
   */
  lease(host: string, mac: string, want = 'look'): Promise<string> {
    const client = fileURLToPath(new URL('dhcp-client.mjs', import.meta.url));
    return tool(['ip', 'netns', 'exec', host, process.execPath, client, mac, want]);
  }

  async remove(): Promise<void> {
    for (const name of this.made.splice(0)) {
      const pids = (await tool(['ip', 'netns', 'pids', name]).catch(() => '')).split('\n');
      for (const pid of pids.filter((text) => /^[1-9]\d*$/.test(text))) process.kill(Number(pid), 'SIGKILL');
      await tool(['ip', 'netns', 'del', name]).catch(() => undefined);
    }
  }
}

/** What the world outside is reached at: not in the range of the host's own link to it. */
export const world = '192.0.2.53';

/**
 * A driver with a host of its own to stand on: a namespace that plays the host, with services, private and link-local
 * addresses, and behind it another one that plays the world (server on port 8000 at `world`).
 */
export class Stand {
  readonly hosts = new Hosts();
  readonly tag = randomBytes(3).toString('hex');
  host = '';
  outside = '';
  driver!: LocalNetworkDriver;
  private root = '';

  constructor(private readonly uplink: string = 'masquerade') {}

  async start(): Promise<this> {
    this.root = await mkdtemp(join(tmpdir(), 'nebo-networks-'));
    await tool(['chmod', '755', this.root]);
    [this.host, this.outside] = [await this.hosts.space(), await this.hosts.space()];
    await tool(
      ['ip', '-n', this.host, '-batch', '-'],
      `link add wan0 type veth peer name eth0 netns ${this.outside}\naddr add 198.51.100.2/24 dev wan0\nlink set wan0 up\n` +
        'addr add 10.99.0.1/24 dev lo\naddr add 169.254.169.254/32 dev lo\n',
    );
    await tool(
      ['ip', '-n', this.outside, '-batch', '-'],
      `addr add 198.51.100.1/24 dev eth0\nlink set eth0 up\naddr add ${world}/32 dev lo\n` +
        'route add 203.0.113.0/24 via 198.51.100.2\nroute add 192.0.2.99/32 via 198.51.100.2\n',
    );
    await tool(['ip', '-n', this.host, 'route', 'add', 'default', 'via', '198.51.100.1']);
    await Promise.all([this.hosts.listen(this.outside), this.hosts.listen(this.host)]);
    this.driver = this.another();
    await this.driver.start();
    return this;
  }

  /** A driver of the same home: what comes after a killed agent. */
  another(more: { waitMs?: number; resolvers?: string[] } = {}): LocalNetworkDriver {
    const uplink = uplinkSettings({ NEBO_UPLINK: this.uplink });
    return new LocalNetworkDriver({ tag: this.tag, root: this.root, uplink, host: this.host, ...more });
  }

  /** Runs a tool of the host. */
  tool(argv: readonly string[], input?: string): Promise<string> {
    return tool(argv, input);
  }

  /** The driver of another agent of this host. */
  stranger(uplink = this.uplink): LocalNetworkDriver {
    const tag = randomBytes(3).toString('hex');
    const settings = uplinkSettings({ NEBO_UPLINK: uplink });
    return new LocalNetworkDriver({ tag, root: this.root, uplink: settings, host: this.host });
  }

  /** Folder of what the driver keeps of a VPC. */
  folderOf(vpc: string): string {
    return join(this.root, this.tag, vpc);
  }

  /** Ends everything. @returns what the driver left on this machine, which should be nothing */
  async end(): Promise<string[]> {
    await this.driver.clear();
    const devices = await tool(['ip', '-n', this.host, '-br', 'link']);
    const rules = await tool(['ip', 'netns', 'exec', this.host, 'nft', 'list', 'tables']);
    const spaces = (await readdir('/run/netns')).filter((name) => name.includes(this.tag));
    const kept = await readdir(join(this.root, 'transfers')).catch(() => []);
    await this.hosts.remove();
    await rm(this.root, { recursive: true, force: true });
    return [
      ...spaces,
      ...kept,
      ...[devices, rules].flatMap((text) => text.split('\n')).filter((line) => line.includes(this.tag)),
    ];
  }
}
