import { randomBytes, randomUUID } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { type VpcSpec } from '@nebo/contracts';
import { tool } from '../src/drivers/local/exec.js';

/** A spec in a range that another VPC may have too. */
export const specOf = (subnet = '10.77.0.0/24', ports: VpcSpec['ports'] = []): VpcSpec => ({
  account_id: randomUUID(),
  subnet,
  gateway: subnet.replace(/0\/\d+$/, '1'),
  ports,
});

/** A port; `02:00:00:00:00:<last>`. */
export const portOf = (address: string, last: string): VpcSpec['ports'][number] => ({
  id: randomUUID(),
  mac: `02:00:00:00:00:${last}`,
  address,
});

/** Network namespaces that stand for machines. */
export class Hosts {
  private readonly made: string[] = [];

  /** A host on a VPC's bridge. @param port its MAC, and its address unless DHCP shall give it */
  async join(
    vpcNamespace: string,
    port: { mac: string; address: string | null },
    gateway: string,
  ): Promise<string> {
    const name = `nebotest-${randomBytes(5).toString('hex')}`;
    const link = `vt${name.slice(-10)}`;
    await tool(['ip', 'netns', 'add', name]);
    this.made.push(name);
    await tool([
      ...['ip', '-n', vpcNamespace, 'link', 'add', link, 'type', 'veth'],
      ...['peer', 'name', 'eth0', 'address', port.mac, 'netns', name],
    ]);
    await tool(['ip', '-n', vpcNamespace, 'link', 'set', link, 'master', 'br0', 'up']);
    await tool(
      ['ip', '-n', name, '-batch', '-'],
      `link set lo up\nlink set eth0 up\n` +
        (port.address === null
          ? 'route add 255.255.255.255 dev eth0\n'
          : `addr add ${port.address}/24 dev eth0\nroute add default via ${gateway}\n`),
    );
    return name;
  }

  /** Leaves a TCP server that answers `name` on port 8000 of a host; ends with the host. */
  async listen(host: string): Promise<void> {
    const program = `require('node:net').createServer((s) => { s.on('error', () => 0); s.end('${host}'); }).listen(8000, '0.0.0.0', () => console.log('up'))`;
    const { spawn } = await import('node:child_process');
    const child = spawn('ip', ['netns', 'exec', host, process.execPath, '-e', program], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    await new Promise<void>((resolve, reject) => {
      child.stdout.once('data', () => resolve());
      child.once('exit', () => reject(new Error('the server of a host ended')));
    });
    child.stdout.resume();
  }

  /** What a connection from a host to an address says, or `unreachable`. */
  async connect(host: string, address: string, port = 8000): Promise<string> {
    const program = `const s = require('node:net').connect({ host: '${address}', port: ${port}, timeout: 2500 });
      s.on('data', (d) => { process.stdout.write(d); process.exit(0); });
      for (const e of ['error', 'timeout', 'end']) s.on(e, () => { process.stdout.write('unreachable'); process.exit(0); });`;
    return tool(['ip', 'netns', 'exec', host, process.execPath, '-e', program]);
  }

  /** The address that DHCP offers, or `none`. */
  lease(host: string, mac: string): Promise<string> {
    const client = fileURLToPath(new URL('dhcp-client.mjs', import.meta.url));
    return tool(['ip', 'netns', 'exec', host, process.execPath, client, mac]);
  }

  async remove(): Promise<void> {
    for (const name of this.made.splice(0)) {
      const pids = (await tool(['ip', 'netns', 'pids', name]).catch(() => '')).split('\n');
      for (const pid of pids.filter((text) => /^[1-9]\d*$/.test(text))) process.kill(Number(pid), 'SIGKILL');
      await tool(['ip', 'netns', 'del', name]).catch(() => undefined);
    }
  }
}
