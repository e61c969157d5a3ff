import { randomUUID } from 'node:crypto';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { doorOf } from '../src/drivers/local/vpc-rules.js';
import { eventually, later, localNetworksMissing } from './agent-kit.js';
import { portOf, specOf, Stand } from './network-kit.js';

const missing = await localNetworksMissing();
const onHost = missing ? describe.skip : describe;
const never = new AbortController().signal;

onHost(`doors of a network${missing ? ` (SKIPPED: ${missing})` : ''}`, () => {
  let stand: Stand;
  beforeAll(async () => {
    stand = await new Stand('isolated').start();
  }, 60_000);
  afterAll(async () => {
    expect(await stand.end()).toEqual([]);
  }, 60_000);

  const in_ = (host: string, ...argv: string[]) => stand.tool(['ip', 'netns', 'exec', host, ...argv]);

  it('hosts of one VPC reach each other; those of another VPC with the same range do not, nor the host or its neighbours', async () => {
    const { driver, hosts } = stand;
    const [one, two] = [randomUUID(), randomUUID()];
    const ports = [portOf('10.77.0.5', '05'), portOf('10.77.0.6', '06')] as const;
    const [third, same] = [portOf('10.77.0.7', '07'), portOf('10.77.0.6', '06')];
    await driver.ensure(one, 1, specOf('10.77.0.0/24', [...ports]));
    await driver.ensure(two, 1, specOf('10.77.0.0/24', [third, same]));
    const [a, b] = [await hosts.join(driver, one, ports[0]), await hosts.join(driver, one, ports[1])];
    const [c, d] = [await hosts.join(driver, two, third), await hosts.join(driver, two, same)];
    await Promise.all([a, b, c, d].map((host) => hosts.listen(host)));

    expect(await hosts.connect(a, '10.77.0.6')).toBe(`${b} 10.77.0.5`);
    expect(await hosts.connect(b, '10.77.0.5')).toBe(`${a} 10.77.0.6`);
    // The same address leads to the neighbour of one's own VPC.
    expect(await hosts.connect(c, '10.77.0.6')).toBe(`${d} 10.77.0.7`);
    expect(await hosts.unreachable(a, '10.77.0.7')).toBe(true);
    expect(await hosts.unreachable(c, '10.77.0.5')).toBe(true);
    const forbidden = ['198.51.100.2', '10.99.0.1', '169.254.169.254'];
    const answers = await Promise.all(forbidden.map((address) => hosts.unreachable(a, address)));
    expect(answers).toEqual(forbidden.map(() => true));
    await Promise.all([driver.remove(one), driver.remove(two)]);
  }, 60_000);

  it('a host that forges its address, its MAC or ARP, or speaks IPv6, is not heard', async () => {
    const { driver, hosts } = stand;
    const id = randomUUID();
    const ports = [portOf('10.77.0.5', '05'), portOf('10.77.0.6', '06'), portOf('10.77.0.7', '07')] as const;
    await driver.ensure(id, 1, specOf('10.77.0.0/24', [...ports]));
    const [a, b, c] = [
      await hosts.join(driver, id, ports[0]),
      await hosts.join(driver, id, ports[1]),
      await hosts.join(driver, id, ports[2]),
    ];
    await Promise.all([a, b, c].map((host) => hosts.listen(host)));
    expect(await hosts.connect(a, '10.77.0.6')).toBe(`${b} 10.77.0.5`);

    const ear = await hosts.hear(b);
    await hosts.say(a, '10.77.0.6', '10.77.0.5');
    await eventually(() => ear.from().includes('10.77.0.5'));
    // A free address, a neighbour's, the router's.
    for (const address of ['10.77.0.99', '10.77.0.7', '10.77.0.1']) {
      await in_(a, 'ip', 'addr', 'add', `${address}/32`, 'dev', 'eth0');
      await in_(b, 'ip', 'neigh', 'flush', 'all');
      // By ARP, with which it would take the place of that address in the other's memory.
      await in_(a, 'ip', 'neigh', 'flush', 'all');
      expect([address, await hosts.unreachable(a, '10.77.0.6', 8000, address)]).toEqual([address, true]);
      const known = await in_(b, 'ip', 'neigh', 'show', address);
      expect([address, known.includes(ports[0].mac)]).toEqual([address, false]);
      // And without.
      await in_(a, 'ip', 'neigh', 'replace', '10.77.0.6', 'lladdr', ports[1].mac, 'dev', 'eth0');
      await hosts.say(a, '10.77.0.6', address);
      if (address === '10.77.0.7') expect(await hosts.connect(b, address)).toBe(`${c} 10.77.0.6`);
      await in_(a, 'ip', 'addr', 'del', `${address}/32`, 'dev', 'eth0');
    }
    await in_(a, 'ip', 'neigh', 'flush', 'all');
    expect(await hosts.connect(a, '10.77.0.6')).toBe(`${b} 10.77.0.5`);

    const before = ear.from().length;
    for (const mac of ['02:00:00:00:00:99', ports[2].mac]) {
      await in_(a, 'ip', 'link', 'set', 'eth0', 'address', mac);
      await in_(a, 'ip', 'neigh', 'replace', '10.77.0.6', 'lladdr', ports[1].mac, 'dev', 'eth0');
      await hosts.say(a, '10.77.0.6', '10.77.0.5');
      await in_(a, 'ip', 'neigh', 'del', '10.77.0.6', 'dev', 'eth0');
      expect([mac, await hosts.unreachable(a, '10.77.0.6')]).toEqual([mac, true]);
      const known = await in_(b, 'ip', 'neigh', 'show', '10.77.0.5');
      expect([mac, known.includes(mac)]).toEqual([mac, false]);
    }
    expect(ear.from().length).toBe(before);
    expect(new Set(ear.from())).toEqual(new Set(['10.77.0.5']));
    await in_(a, 'ip', 'link', 'set', 'eth0', 'address', ports[0].mac);
    await in_(b, 'ip', 'neigh', 'flush', 'all');
    expect(await hosts.connect(a, '10.77.0.6')).toBe(`${b} 10.77.0.5`);

    for (const [host, address] of [
      [a, 'fd00::5'],
      [b, 'fd00::6'],
    ] as const)
      await in_(host, 'ip', 'addr', 'add', `${address}/64`, 'dev', 'eth0', 'nodad');
    expect(await hosts.unreachable(a, 'fd00::6')).toBe(true);
    await driver.remove(id);
  }, 90_000);

  it('nobody but the router answers DHCP', async () => {
    const { driver, hosts } = stand;
    const id = randomUUID();
    const ports = [portOf('10.77.0.5', '05'), portOf('10.77.0.6', '06'), portOf('10.77.0.7', '07')] as const;
    const spec = specOf('10.77.0.0/24', [...ports]);
    await driver.ensure(id, 1, spec);
    const rogue = await hosts.join(driver, id, ports[0]);
    const guest = await hosts.join(driver, id, ports[1], 'dhcp');
    await in_(
      rogue,
      ...['dnsmasq', '--conf-file=/dev/null', '--port=0', '--interface=eth0', '--bind-interfaces'],
      ...[
        '--dhcp-range=10.77.0.200,10.77.0.210',
        '--dhcp-authoritative',
        '--no-ping',
        '--leasefile-ro',
        '--pid-file',
      ],
    );
    expect(await hosts.lease(guest, ports[1].mac)).toBe('10.77.0.6');
    // Clients look at the port that a word comes to, not at the one that it comes from.
    const ear = await hosts.leave(
      await hosts.join(driver, id, ports[2]),
      `const s = require('node:dgram').createSocket('udp4'); s.on('message', () => console.log('heard'));
      s.bind(68, '0.0.0.0', () => console.log('up'));`,
    );
    await in_(
      rogue,
      process.execPath,
      '-e',
      `const s = require('node:dgram').createSocket('udp4'); s.bind(5000, '10.77.0.5', () => { s.setBroadcast(true);
      let left = 5; setInterval(() => { if (left-- === 0) process.exit(0);
      s.send('x', 68, '10.77.0.255', () => 0); }, 60); });`,
    );
    expect(ear.said()).toBe('up\n');
    // With the router's server gone, the other one is alone, and still not heard.
    const pid = Number(await readFile(join(stand.folderOf(id), 'dhcp.pid'), 'utf8'));
    process.kill(pid, 'SIGKILL');
    expect(await hosts.lease(guest, ports[1].mac)).toBe('none');
    await driver.ensure(id, 1, spec);
    expect(await hosts.lease(guest, ports[1].mac)).toBe('10.77.0.6');
    await driver.remove(id);
  }, 60_000);

  it('DHCP gives each port its address and a stranger none; a new port, another address and a passed-on one are known at once', async () => {
    const { driver, hosts } = stand;
    const id = randomUUID();
    const [port, other] = [portOf('10.77.0.50', '50'), portOf('10.77.0.99', '51')] as const;
    await driver.ensure(id, 1, specOf('10.77.0.0/24', [port]));
    const [known, later_] = [
      await hosts.join(driver, id, port, 'dhcp'),
      await hosts.join(driver, id, other, 'dhcp'),
    ];
    expect(await hosts.lease(known, port.mac, 'take')).toBe('10.77.0.50');
    expect(await hosts.lease(later_, other.mac)).toBe('none');
    const pid = await readFile(join(stand.folderOf(id), 'dhcp.pid'), 'utf8');
    await driver.ensure(id, 2, specOf('10.77.0.0/24', [port, other]));
    expect(await eventually(() => hosts.lease(later_, other.mac, 'take'))).toBe('10.77.0.99');

    const moved = { ...port, address: '10.77.0.60' };
    await driver.ensure(id, 3, specOf('10.77.0.0/24', [moved, other]));
    expect(await hosts.lease(known, port.mac, '10.77.0.50')).toBe('refused');
    expect(await hosts.lease(known, port.mac, 'take')).toBe('10.77.0.60');
    // All this by one server, which nobody had to wait for.
    expect(await readFile(join(stand.folderOf(id), 'dhcp.pid'), 'utf8')).toBe(pid);

    const heir = { ...other, address: '10.77.0.60' };
    await driver.ensure(id, 4, specOf('10.77.0.0/24', [{ ...port, address: '10.77.0.61' }, heir]));
    expect(await hosts.lease(later_, other.mac, 'take')).toBe('10.77.0.60');
    expect(await hosts.lease(known, port.mac, 'take')).toBe('10.77.0.61');
    await driver.remove(id);
  }, 60_000);

  it('DHCP names the resolvers that the agent knows; other ones after its restart are told to networks that there are', async () => {
    const { driver, hosts } = stand;
    const id = randomUUID();
    const port = portOf('10.77.0.50', '50');
    const spec = specOf('10.77.0.0/24', [port]);
    await driver.ensure(id, 1, spec);
    const guest = await hosts.join(driver, id, port, 'dhcp');
    expect(await hosts.lease(guest, port.mac, 'resolvers')).toBe('none');
    const next = stand.another({ resolvers: ['192.0.2.53', '198.51.100.53'] });
    await next.start();
    await next.ensure(id, 1, spec);
    expect(await hosts.lease(guest, port.mac, 'resolvers')).toBe('192.0.2.53,198.51.100.53');
    await next.remove(id);
  }, 60_000);

  it('who comes before its port neither says nor hears anything, and is let in with it', async () => {
    const { driver, hosts } = stand;
    const id = randomUUID();
    const [port, early] = [portOf('10.77.0.5', '05'), portOf('10.77.0.6', '06')] as const;
    await driver.ensure(id, 1, specOf('10.77.0.0/24', [port]));
    const [a, b] = [await hosts.join(driver, id, port), await hosts.join(driver, id, early)];
    await Promise.all([hosts.listen(a), hosts.listen(b)]);
    expect(await hosts.unreachable(b, '10.77.0.5')).toBe(true);
    const heard = async () =>
      Number((await in_(b, 'cat', '/sys/class/net/eth0/statistics/rx_packets')).trim());
    const before = await heard();
    expect(await hosts.unreachable(a, '10.77.0.6')).toBe(true);
    expect(await heard()).toBe(before);
    await driver.ensure(id, 2, specOf('10.77.0.0/24', [port, early]));
    expect(
      await eventually(async () => (await hosts.connect(b, '10.77.0.5')).replace('unreachable', '')),
    ).toBe(`${a} 10.77.0.6`);
    // The port goes, and its door with it.
    await driver.ensure(id, 3, specOf('10.77.0.0/24', [port]));
    const devices = await stand.tool(['ip', '-n', driver.namespaceOf(id), '-br', 'link']);
    expect([devices.includes(doorOf(port.id)), devices.includes(doorOf(early.id))]).toEqual([true, false]);
    await driver.remove(id);
  }, 60_000);

  it('a tap waits for its network, is the same again, outlives the agent, goes with its port or when it is dropped', async () => {
    const { driver } = stand;
    const id = randomUUID();
    const [port, other] = [portOf('10.77.0.5', '05'), portOf('10.77.0.6', '06')] as const;
    const early = driver.tap(id, port.id, never);
    let come = false;
    void early.then(() => (come = true));
    await later(200);
    expect(come).toBe(false);
    await driver.ensure(id, 1, specOf('10.77.0.0/24', [port, other]));
    const tap = await early;
    expect(tap).toEqual({ namespace: driver.namespaceOf(id), device: doorOf(port.id) });
    const show = async () => stand.tool(['ip', '-n', tap.namespace, '-d', 'link', 'show']);
    expect(await show()).toMatch(new RegExp(`${tap.device}: [^\\n]*master br0`));
    const index = (await show()).match(new RegExp(`(\\d+): ${tap.device}`))![1];

    const next = stand.another();
    await next.start();
    expect(await next.tap(id, port.id, never)).toEqual(tap);
    const second = await next.tap(id, other.id, never);
    await next.ensure(id, 1, specOf('10.77.0.0/24', [port, other]));
    expect((await show()).match(new RegExp(`(\\d+): ${tap.device}`))![1]).toBe(index);
    await next.drop(id, other.id);
    await next.drop(id, other.id);
    expect(await show()).not.toContain(second.device);
    await next.ensure(id, 2, specOf('10.77.0.0/24', [other]));
    expect(await show()).not.toContain(tap.device);

    const stop = new AbortController();
    const lost = next.tap(randomUUID(), port.id, stop.signal);
    stop.abort(new Error('not wanted any more'));
    await expect(lost).rejects.toThrow('not wanted any more');
    await expect(stand.another({ waitMs: 50 }).tap(randomUUID(), port.id, never)).rejects.toThrow(
      'has not come',
    );
    await expect(next.tap('../x', port.id, never)).rejects.toThrow('is none');
    await next.drop(randomUUID(), port.id);
    await next.remove(id);
    // The first driver stands for a killed agent.
    await driver.remove(id);
  }, 60_000);

  it('a killed agent’s network is adopted with its hosts, mended, and taken away by the next one', async () => {
    const { driver, hosts } = stand;
    const id = randomUUID();
    const ports = [portOf('10.77.0.5', '05'), portOf('10.77.0.6', '06')] as const;
    const spec = specOf('10.77.0.0/24', [...ports]);
    await driver.ensure(id, 4, spec);
    const [a, b] = [await hosts.join(driver, id, ports[0]), await hosts.join(driver, id, ports[1])];
    await hosts.listen(b);
    const servers = async () =>
      (await stand.tool(['ip', 'netns', 'pids', driver.namespaceOf(id)]))
        .split('\n')
        .filter((pid) => pid !== '');
    const [before] = await servers();

    const next = stand.another();
    await next.start();
    expect((await next.list()).find((item) => item.id === id)).toMatchObject({
      generation: 4,
      state: 'active',
    });
    expect((await next.ensure(id, 4, spec)).state).toBe('active');
    expect(await servers()).toEqual([before]);
    expect(await hosts.connect(a, '10.77.0.6')).toBe(`${b} 10.77.0.5`);

    // A DHCP server that died comes back with the next look.
    process.kill(Number(before), 'SIGKILL');
    await eventually(async () => (await servers()).length === 0);
    await next.ensure(id, 4, spec);
    expect(await servers()).toHaveLength(1);

    // Its name without the namespace, as after the container that it was mounted in.
    await stand.tool(['umount', `/run/netns/${next.namespaceOf(id)}`]);
    expect((await next.list()).find((item) => item.id === id)).toMatchObject({ state: 'error' });
    expect((await next.ensure(id, 4, spec)).state).toBe('active');
    expect(await servers()).toHaveLength(1);

    // Killed between two steps: a namespace without its folder.
    await rm(stand.folderOf(id), { recursive: true });
    expect((await next.list()).find((item) => item.id === id)).toMatchObject({ state: 'error' });
    await next.remove(id);
    expect((await next.list()).map((item) => item.id)).not.toContain(id);
  }, 60_000);
});
