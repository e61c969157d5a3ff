import { randomUUID } from 'node:crypto';
import { eventually, later, localNetworksMissing } from './agent-kit.js';
import { floatingOf, natOf, portOf, specOf, Stand, world } from './network-kit.js';

const missing = await localNetworksMissing();
const onHost = missing ? describe.skip : describe;

onHost(`real packets in and out${missing ? ` (SKIPPED: ${missing})` : ''}`, () => {
  let stand: Stand;
  beforeAll(async () => {
    // The world routes 203.0.113.0/24 to the host's wan0, so that it sees the addresses themselves.
    stand = await new Stand('wan0').start();
  }, 60_000);
  afterAll(async () => {
    expect(await stand.end()).toEqual([]);
  }, 60_000);

  it('no way out before the gateway, one after it with its address, none after it', async () => {
    const { driver, hosts, outside } = stand;
    const id = randomUUID();
    const port = portOf('10.77.0.5', '05');
    const spec = specOf('10.77.0.0/24', [port]);
    const { facts } = await driver.ensure(id, 1, spec);
    expect(facts).toMatchObject({ floating_ips: [], faults: {} });
    const a = await hosts.join(driver, id, port);
    expect(await hosts.unreachable(a, world)).toBe(true);

    const nat = natOf('203.0.113.9');
    const made = await driver.ensure(id, 2, { ...spec, nat });
    expect(made.facts).toMatchObject({ floating_ips: [nat.id], faults: {} });
    expect(await hosts.connect(a, world)).toBe(`${outside} 203.0.113.9`);
    // It leads out, not in.
    await hosts.listen(a);
    expect(await hosts.unreachable(outside, '203.0.113.9')).toBe(true);

    const chat = await hosts.chat(a, world);
    await eventually(() => chat.answers() > 3);
    await driver.ensure(id, 3, spec);
    expect(await hosts.unreachable(a, world)).toBe(true);
    const before = chat.answers();
    await later(1_000);
    expect(chat.answers()).toBe(before);
    await driver.remove(id);
  }, 60_000);

  it('a floating IP leads in to its port and out from it, and only while attached; others of the network use the gateway', async () => {
    const { driver, hosts, outside } = stand;
    const id = randomUUID();
    const ports = [portOf('10.77.0.5', '05'), portOf('10.77.0.6', '06')] as const;
    const floating = floatingOf('203.0.113.21', ports[0]);
    const spec = specOf('10.77.0.0/24', [...ports]);
    await driver.ensure(id, 1, spec);
    const [a, b] = [await hosts.join(driver, id, ports[0]), await hosts.join(driver, id, ports[1])];
    await Promise.all([hosts.listen(a), hosts.listen(b)]);
    expect(await hosts.unreachable(outside, '203.0.113.21')).toBe(true);

    const both = { ...spec, floating_ips: [floating], nat: natOf('203.0.113.22') };
    const { facts } = await driver.ensure(id, 2, both);
    expect(facts).toMatchObject({ floating_ips: [floating.id, both.nat.id], faults: {} });
    // The source is the world's own: whom a machine hears is not changed.
    expect(await hosts.connect(outside, '203.0.113.21')).toBe(`${a} 198.51.100.1`);
    expect(await hosts.connect(a, world)).toBe(`${outside} 203.0.113.21`);
    expect(await hosts.connect(b, world)).toBe(`${outside} 203.0.113.22`);

    const inward = await hosts.chat(outside, '203.0.113.21');
    const outward = await hosts.chat(a, world);
    await eventually(() => inward.answers() > 3 && outward.answers() > 3);
    // To another port: what went to the first one ends, what comes reaches the second.
    const moved = { ...floating, port_id: ports[1].id };
    await driver.ensure(id, 3, { ...both, floating_ips: [moved] });
    expect(await hosts.connect(outside, '203.0.113.21')).toBe(`${b} 198.51.100.1`);
    expect(await hosts.connect(a, world)).toBe(`${outside} 203.0.113.22`);
    expect(await hosts.connect(b, world)).toBe(`${outside} 203.0.113.21`);
    const before = [inward.answers(), outward.answers()];
    await later(1_000);
    expect([inward.answers(), outward.answers()]).toEqual(before);

    await driver.ensure(id, 4, spec);
    expect(await hosts.unreachable(outside, '203.0.113.21')).toBe(true);
    expect(await hosts.unreachable(b, world)).toBe(true);
    await driver.remove(id);
  }, 60_000);

  it('other ports and addresses of a network leave a connection alone', async () => {
    const { driver, hosts, outside } = stand;
    const id = randomUUID();
    const port = portOf('10.77.0.5', '05');
    const floating = floatingOf('203.0.113.31', port);
    const spec = { ...specOf('10.77.0.0/24', [port]), floating_ips: [floating] };
    const { facts } = await driver.ensure(id, 1, spec);
    expect(facts).toMatchObject({ floating_ips: [floating.id], faults: {} });
    const a = await hosts.join(driver, id, port);
    await hosts.listen(a);
    const chat = await hosts.chat(outside, '203.0.113.31');
    await eventually(() => chat.answers() > 3);
    const more = portOf('10.77.0.8', '08');
    const next = { ...spec, ports: [port, more], floating_ips: [floating, floatingOf('203.0.113.32', more)] };
    await driver.ensure(id, 2, next);
    await driver.ensure(id, 3, { ...next, nat: natOf('203.0.113.33') });
    await driver.ensure(id, 4, spec);
    const before = chat.answers();
    await eventually(() => chat.answers() > before + 3);
    await driver.remove(id);
  }, 60_000);

  it('a neighbour answers under its floating IP too, and so does a machine of another network', async () => {
    const { driver, hosts } = stand;
    const [one, two] = [randomUUID(), randomUUID()];
    const ports = [portOf('10.77.0.5', '05'), portOf('10.77.0.6', '06'), portOf('10.77.0.7', '07')] as const;
    const far = portOf('10.77.0.5', '05');
    const floating = [floatingOf('203.0.113.41', ports[0]), floatingOf('203.0.113.42', ports[1])];
    await driver.ensure(one, 1, { ...specOf('10.77.0.0/24', [...ports]), floating_ips: floating });
    await driver.ensure(two, 1, {
      ...specOf('10.77.0.0/24', [far]),
      floating_ips: [floatingOf('203.0.113.43', far)],
    });
    const [a, b, plain] = [
      await hosts.join(driver, one, ports[0]),
      await hosts.join(driver, one, ports[1]),
      await hosts.join(driver, one, ports[2]),
    ];
    const other = await hosts.join(driver, two, far);
    await Promise.all([a, b, plain, other].map((host) => hosts.listen(host)));

    expect(await hosts.connect(a, '203.0.113.42')).toBe(`${b} 203.0.113.41`);
    expect(await hosts.connect(a, '203.0.113.41')).toBe(`${a} 203.0.113.41`);
    // One without an address of its own comes from the router.
    expect(await hosts.connect(plain, '203.0.113.42')).toBe(`${b} 10.77.0.1`);
    expect(await hosts.connect(a, '203.0.113.43')).toBe(`${other} 203.0.113.41`);
    expect(await hosts.connect(other, '203.0.113.42')).toBe(`${b} 203.0.113.43`);
    expect(await hosts.unreachable(plain, '203.0.113.43')).toBe(true);
    // The networks themselves stay apart, whatever a host makes of its routes.
    expect(await hosts.unreachable(other, '10.77.0.6')).toBe(true);
    await Promise.all([driver.remove(one), driver.remove(two)]);
  }, 60_000);

  it('an address goes from one network to another; until it is free its fault says so', async () => {
    const { driver, hosts, outside } = stand;
    const [one, two] = [randomUUID(), randomUUID()];
    const port = portOf('10.77.0.5', '05');
    const spec = specOf('10.77.0.0/24', [port]);
    const floating = floatingOf('203.0.113.51', port);
    const attached = { ...spec, floating_ips: [floating] };
    await driver.ensure(one, 1, attached);
    const refused = await driver.ensure(two, 1, attached);
    expect(refused).toMatchObject({
      state: 'active',
      facts: { floating_ips: [], faults: { [floating.id]: 'another network of this region still has it' } },
    });
    const [a, b] = [await hosts.join(driver, one, port), await hosts.join(driver, two, port)];
    await Promise.all([hosts.listen(a), hosts.listen(b)]);
    expect(await hosts.connect(outside, '203.0.113.51')).toBe(`${a} 198.51.100.1`);
    await driver.ensure(one, 2, spec);
    expect((await driver.ensure(two, 1, attached)).facts).toMatchObject({
      floating_ips: [floating.id],
      faults: {},
    });
    expect(await hosts.connect(outside, '203.0.113.51')).toBe(`${b} 198.51.100.1`);
    expect(await hosts.connect(b, world)).toBe(`${outside} 203.0.113.51`);
    await Promise.all([driver.remove(one), driver.remove(two)]);
    expect(await hosts.unreachable(outside, '203.0.113.51')).toBe(true);
  }, 60_000);

  it('after a killed agent everything goes on, and what was changed behind its back is mended', async () => {
    const { driver, hosts, outside, tag } = stand;
    const id = randomUUID();
    const ports = [portOf('10.77.0.5', '05'), portOf('10.77.0.6', '06')] as const;
    const floating = floatingOf('203.0.113.61', ports[0]);
    const spec = {
      ...specOf('10.77.0.0/24', [...ports]),
      floating_ips: [floating],
      nat: natOf('203.0.113.62'),
    };
    await driver.ensure(id, 1, spec);
    const [a, b] = [await hosts.join(driver, id, ports[0]), await hosts.join(driver, id, ports[1])];
    await hosts.listen(a);
    const chat = await hosts.chat(outside, '203.0.113.61');
    await eventually(() => chat.answers() > 3);

    const next = stand.another();
    await next.start();
    await next.ensure(id, 1, spec);
    const before = chat.answers();
    await eventually(() => chat.answers() > before + 3);

    const inside = ['ip', '-n', next.namespaceOf(id)];
    const rules = ['ip', 'netns', 'exec', next.namespaceOf(id), 'nft'];
    const uplink = ['ip', 'netns', 'exec', `neboup-${tag}`, 'nft'];
    const damages: [string, string[]][] = [
      ['an added rule', [...rules, 'insert rule inet nebo forward accept']],
      ['a lost map', [...rules, 'flush map inet nebo fip_in']],
      ['all rules gone', [...rules, 'flush ruleset']],
      ['a bridge without address', [...inside, 'addr', 'flush', 'dev', 'br0']],
      ['a bridge that is down', [...inside, 'link', 'set', 'br0', 'down']],
      ['the link gone', [...inside, 'link', 'del', 'up0']],
      ['a rule of the uplink', [...uplink, 'insert rule inet nebo forward accept']],
      ['the host’s link gone', ['ip', '-n', stand.host, 'link', 'del', `nbup${tag}`]],
      ['the uplink gone', ['ip', 'netns', 'del', `neboup-${tag}`]],
    ];
    for (const [what, argv] of damages) {
      await stand.tool(argv);
      const mender = stand.another();
      await mender.start();
      const { facts } = await eventually(() => mender.ensure(id, 1, spec).catch(() => null));
      expect([what, facts.faults]).toEqual([what, {}]);
      expect([what, await hosts.connect(outside, '203.0.113.61')]).toEqual([what, `${a} 198.51.100.1`]);
      const [forward, chains] = [
        await stand.tool([...rules, 'list chain inet nebo forward']),
        await stand.tool([...uplink, 'list ruleset']),
      ];
      expect([what, /\taccept\n/.test(forward), /\taccept\n/.test(chains)]).toEqual([what, false, false]);
    }
    expect(await hosts.connect(b, world)).toBe(`${outside} 203.0.113.62`);
    stand.driver = next;
    await next.clear();
    await next.start();
  }, 120_000);

  it('an agent that finds an address detached while it was away ends its connections', async () => {
    const { driver, hosts, outside } = stand;
    const id = randomUUID();
    const port = portOf('10.77.0.5', '05');
    const spec = specOf('10.77.0.0/24', [port]);
    await driver.ensure(id, 1, { ...spec, floating_ips: [floatingOf('203.0.113.71', port)] });
    const a = await hosts.join(driver, id, port);
    await hosts.listen(a);
    const chat = await hosts.chat(outside, '203.0.113.71');
    await eventually(() => chat.answers() > 3);
    const next = stand.another();
    await next.start();
    await next.ensure(id, 2, spec);
    const before = chat.answers();
    await later(1_000);
    expect(chat.answers()).toBe(before);
    expect(await hosts.unreachable(outside, '203.0.113.71')).toBe(true);
    await next.remove(id);
    stand.driver = next;
  }, 60_000);
});
