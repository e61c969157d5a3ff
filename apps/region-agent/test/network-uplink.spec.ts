import { randomUUID } from 'node:crypto';
import { vpcResolvers } from '../src/drivers/local/resolvers.js';
import { uplinkSettings, withoutOverlaps } from '../src/drivers/local/uplink-mode.js';
import { eventually, localNetworksMissing } from './agent-kit.js';
import { floatingOf, natOf, portOf, specOf, Stand, world } from './network-kit.js';

const missing = await localNetworksMissing();
const onHost = missing ? describe.skip : describe;

describe('settings of the uplink', () => {
  it('are a word or an interface, and ranges that are denied', () => {
    expect(uplinkSettings({}).mode).toBe('host');
    expect(uplinkSettings({ NEBO_UPLINK: 'masquerade' }).mode).toBe('masquerade');
    expect(uplinkSettings({ NEBO_UPLINK: 'eth0.100' }).mode).toEqual({ through: 'eth0.100' });
    const { denied } = uplinkSettings({ NEBO_UPLINK_DENY: '192.0.2.0/24, 198.51.100.7' });
    expect(denied).toEqual(
      expect.arrayContaining(['10.0.0.0/8', '169.254.0.0/16', '192.0.2.0/24', '198.51.100.7/32']),
    );
    expect(() => uplinkSettings({ NEBO_UPLINK: 'eth0"; accept' })).toThrow('the name of an interface');
    expect(() => uplinkSettings({ NEBO_UPLINK_DENY: '10.0.0.0/33' })).toThrow('not an IPv4 address or range');
    expect(() => uplinkSettings({ NEBO_UPLINK_DENY: 'example.org' })).toThrow('not an IPv4 address or range');
  });

  it('machines learn the resolvers of the setting, otherwise those of the host that they can reach', () => {
    const host = (file: string) =>
      file.startsWith('/run')
        ? 'nameserver 192.0.2.53\nnameserver 10.0.0.53\nnameserver 192.0.2.53\n'
        : '# a stub\nnameserver 127.0.0.53\nnameserver fe80::1%eth0\noptions edns0\n';
    expect(vpcResolvers({}, host)).toEqual(['192.0.2.53']);
    expect(vpcResolvers({}, () => '')).toEqual([]);
    expect(vpcResolvers({ NEBO_VPC_RESOLVERS: 'off' }, host)).toEqual([]);
    expect(vpcResolvers({ NEBO_VPC_RESOLVERS: '192.0.2.1, 198.51.100.1' }, host)).toEqual([
      '192.0.2.1',
      '198.51.100.1',
    ]);
    for (const wrong of ['10.0.0.53', 'example.org', '::1', '192.0.2.1,'])
      expect(() => vpcResolvers({ NEBO_VPC_RESOLVERS: wrong }, host)).toThrow('that machines can reach');
    const four = '192.0.2.1,192.0.2.2,192.0.2.3,192.0.2.4';
    expect(() => vpcResolvers({ NEBO_VPC_RESOLVERS: four }, host)).toThrow('at most 3');
  });

  it('ranges in others are left out, so that they can stand in one set', () => {
    expect(
      withoutOverlaps(['10.1.2.3/16', '10.0.0.0/8', '192.0.2.2/24', '192.0.2.9/32', '198.51.100.7/32']),
    ).toEqual(['10.0.0.0/8', '192.0.2.0/24', '198.51.100.7']);
    expect(withoutOverlaps(['0.0.0.0/0', '10.0.0.0/8'])).toEqual(['0.0.0.0/0']);
  });
});

/** What machines never reach through the uplink: addresses of the host, and what lies beside it. */
const forbidden = ['198.51.100.2', '198.51.100.1', '10.99.0.1', '169.254.169.254'];

onHost.each(['host', 'masquerade', 'wan0', 'isolated'])(
  `the uplink in mode %s${missing ? ` (SKIPPED: ${missing})` : ''}`,
  (mode) => {
    let stand: Stand;
    beforeAll(async () => {
      stand = await new Stand(mode).start();
    }, 60_000);
    afterAll(async () => {
      expect(await stand.end()).toEqual([]);
    }, 60_000);

    it('reaches what it says, in and out, and nothing of the host', async () => {
      const { driver, hosts, host, outside } = stand;
      const id = randomUUID();
      const ports = [portOf('10.77.0.5', '05'), portOf('10.77.0.6', '06')] as const;
      const floating = [floatingOf('203.0.113.5', ports[0]), floatingOf('203.0.113.6', ports[1])];
      const { facts } = await driver.ensure(id, 1, {
        ...specOf('10.77.0.0/24', [...ports]),
        floating_ips: floating,
      });
      expect(facts.faults).toEqual({});
      const [a, b] = [await hosts.join(driver, id, ports[0]), await hosts.join(driver, id, ports[1])];
      await Promise.all([a, b].map((machine) => hosts.listen(machine)));
      // All at once: what does not answer takes its time.
      const [out, inward, fromHost, neighbour] = await Promise.all([
        hosts.connect(a, world),
        hosts.connect(outside, '203.0.113.5'),
        hosts.connect(host, '203.0.113.5'),
        hosts.connect(a, '203.0.113.6'),
      ]);
      const none = 'unreachable';
      expect([out, inward, fromHost.replace(/ 100\.6[4-7]\..*/, ' transfer'), neighbour]).toEqual([
        { wan0: `${outside} 203.0.113.5`, masquerade: `${outside} 198.51.100.2` }[mode] ?? none,
        mode === 'wan0' ? `${a} 198.51.100.1` : none,
        mode === 'isolated' ? none : `${a} transfer`,
        `${b} 203.0.113.5`,
      ]);
      // The host's end of the link is no address that others have.
      const transfer = /inet (100\.6[4-7]\.[0-9.]+)/.exec(
        await stand.tool(['ip', '-n', host, 'addr', 'show']),
      )?.[1];
      expect(transfer === undefined).toBe(mode === 'isolated');
      const tried = [...forbidden, ...(transfer ? [transfer] : [])].map(async (address) => [
        address,
        await hosts.unreachable(a, address),
      ]);
      for (const [address, closed] of await Promise.all(tried))
        expect([address, closed]).toEqual([address, true]);
      // Nor one that the host got after the rules were made.
      await stand.tool(['ip', '-n', host, 'addr', 'add', '192.0.2.99/32', 'dev', 'lo']);
      expect(await hosts.connect(outside, '192.0.2.99')).toBe(`${host} 198.51.100.1`);
      expect(await hosts.unreachable(a, '192.0.2.99')).toBe(true);
      await driver.remove(id);
      const routes = await stand.tool(['ip', '-n', host, 'route']);
      expect(routes).not.toContain('203.0.113.');
    }, 90_000);

    it('a host that routes for others lets nothing more through', async () => {
      if (mode === 'isolated') return;
      const { driver, hosts, host, outside } = stand;
      await stand.tool(['ip', 'netns', 'exec', host, 'tee', '/proc/sys/net/ipv4/ip_forward'], '1');
      const id = randomUUID();
      const port = portOf('10.77.0.5', '05');
      await driver.ensure(id, 1, {
        ...specOf('10.77.0.0/24', [port]),
        floating_ips: [floatingOf('203.0.113.15', port)],
      });
      const a = await hosts.join(driver, id, port);
      await hosts.listen(a);
      expect(await hosts.connect(outside, '203.0.113.15')).toBe(
        mode === 'wan0' ? `${a} 198.51.100.1` : 'unreachable',
      );
      // Single packets need no way back.
      const ear = await hosts.hear(outside);
      await hosts.say(a, world, '10.77.0.5');
      if (mode === 'host') expect(ear.from()).toEqual([]);
      else await eventually(() => ear.from().length > 0);
      await driver.remove(id);
    }, 60_000);
  },
);

onHost(`agents of one host${missing ? ` (SKIPPED: ${missing})` : ''}`, () => {
  let stand: Stand;
  beforeAll(async () => {
    stand = await new Stand('masquerade').start();
  }, 60_000);
  afterAll(async () => {
    expect(await stand.end()).toEqual([]);
  }, 60_000);

  it('two have links of their own, and the second one an address of the first in vain', async () => {
    const { driver, hosts, host, outside } = stand;
    const other = stand.stranger();
    await other.start();
    const [one, two] = [randomUUID(), randomUUID()];
    const port = portOf('10.77.0.5', '05');
    const spec = specOf('10.77.0.0/24', [port]);
    const floating = floatingOf('203.0.113.5', port);
    const [first, second] = [
      await driver.ensure(one, 1, { ...spec, floating_ips: [floating] }),
      await other.ensure(two, 1, { ...spec, floating_ips: [floating], nat: natOf('203.0.113.8') }),
    ];
    expect(first.facts.faults).toEqual({});
    expect(second.facts.faults).toEqual({
      [floating.id]: 'the host of this region uses it for something else',
    });
    const [a, b] = [await hosts.join(driver, one, port), await hosts.join(other, two, port)];
    await Promise.all([hosts.listen(a), hosts.listen(b)]);
    expect(await hosts.connect(host, '203.0.113.5')).toContain(a);
    expect(await hosts.connect(a, world)).toBe(`${outside} 198.51.100.2`);
    const transfers = (await stand.tool(['ip', '-n', host, 'addr'])).match(/inet 100\.6[4-7]\.[0-9.]+/g)!;
    expect(new Set(transfers).size).toBe(2);

    await driver.remove(one);
    const free = await other.ensure(two, 2, { ...spec, floating_ips: [floating] });
    expect(free.facts.faults).toEqual({});
    expect(await hosts.connect(host, '203.0.113.5')).toContain(b);
    await other.clear();
    expect(await stand.tool(['ip', '-n', host, 'route'])).not.toContain('203.0.113.');
  }, 60_000);

  it('an interface that the host does not have is a fault of the addresses, not of the network', async () => {
    const { hosts } = stand;
    const lost = stand.stranger('nosuch0');
    await lost.start();
    const id = randomUUID();
    const ports = [portOf('10.77.0.5', '05'), portOf('10.77.0.6', '06')] as const;
    const floating = floatingOf('203.0.113.5', ports[0]);
    const made = await lost.ensure(id, 1, {
      ...specOf('10.77.0.0/24', [...ports]),
      floating_ips: [floating],
    });
    expect(made).toMatchObject({
      state: 'active',
      facts: {
        floating_ips: [],
        faults: { [floating.id]: 'the way out of this region does not work at the moment' },
      },
    });
    const [a, b] = [await hosts.join(lost, id, ports[0]), await hosts.join(lost, id, ports[1])];
    await hosts.listen(b);
    expect(await hosts.connect(a, '10.77.0.6')).toBe(`${b} 10.77.0.5`);
    await lost.clear();
  }, 60_000);
});
