import { randomBytes, randomUUID } from 'node:crypto';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import { type AddressInfo } from 'node:net';
import { networkInterfaces, tmpdir } from 'node:os';
import { join } from 'node:path';
import { tool } from '../src/drivers/local/exec.js';
import { LocalNetworkDriver } from '../src/drivers/local/vpcs.js';
import { SimulatedNetworkDriver } from '../src/drivers/simulated/networks.js';
import { type NetworkDriver } from '../src/index.js';
import { localNetworksMissing, startAgent } from './agent-kit.js';
import { FakeControlPlane } from './fake-control-plane.js';
import { Hosts, portOf, specOf } from './network-kit.js';

const missing = await localNetworksMissing();
const skipped = missing ? ` (SKIPPED: ${missing})` : '';
const onHost = missing ? describe.skip : describe;

const drivers = [
  ['simulated', describe, () => new SimulatedNetworkDriver()],
  ['local', onHost, (tag: string, root: string) => new LocalNetworkDriver(tag, root)],
] as const;

for (const [name, lane, make] of drivers) {
  lane(`network driver ${name}${name === 'local' ? skipped : ''}`, () => {
    let driver: NetworkDriver;
    let root: string;
    beforeAll(async () => {
      root = await mkdtemp(join(tmpdir(), 'nebo-networks-'));
      driver = make(randomBytes(3).toString('hex'), root);
      await driver.start();
    });
    afterAll(async () => {
      await driver.stop();
      await rm(root, { recursive: true, force: true });
    });

    it('ensure makes it, again changes nothing, list shows it, remove takes it away, again too', async () => {
      const id = randomUUID();
      const spec = specOf();
      const made = await driver.ensure(id, 1, spec);
      expect(made).toMatchObject({
        id,
        generation: 1,
        state: 'active',
        reason: null,
        facts: { driver: name },
      });
      expect(await driver.ensure(id, 1, spec)).toEqual(made);
      expect(await driver.list()).toMatchObject([{ id, generation: 1, state: 'active' }]);
      await driver.remove(id);
      await driver.remove(id);
      expect(await driver.list()).toEqual([]);
    });

    it('other ports and another subnet are taken over under the same id', async () => {
      const id = randomUUID();
      await driver.ensure(id, 1, specOf());
      const ports = [portOf('10.77.0.5', '05'), portOf('10.77.0.6', '06')];
      expect(await driver.ensure(id, 2, specOf('10.77.0.0/24', ports))).toMatchObject({
        state: 'active',
        generation: 2,
        facts: { ports: 2 },
      });
      expect((await driver.ensure(id, 3, specOf('192.168.5.0/24'))).state).toBe('active');
      expect(await driver.list()).toMatchObject([{ id, generation: 3 }]);
      await driver.remove(id);
    });

    it('many calls for many networks at once, two of one range among them', async () => {
      const ids = Array.from({ length: 4 }, () => randomUUID());
      const made = await Promise.all([...ids, ...ids].map((id) => driver.ensure(id, 1, specOf())));
      expect(made.map(({ state }) => state)).toEqual(Array(8).fill('active'));
      expect((await driver.list()).map(({ id }) => id).sort()).toEqual([...ids].sort());
      await Promise.all(ids.map((id) => driver.remove(id)));
      expect(await driver.list()).toEqual([]);
    });

    it.each([
      ['a subnet that is none', { subnet: '10.77.0.0/24; reboot' }, 'the subnet is not an IPv4 range'],
      ['a gateway outside', { gateway: '10.78.0.1' }, 'the gateway is not an address of the subnet'],
      ['a MAC that is none', { ports: [{ ...portOf('10.77.0.5', '05'), mac: '02,x' }] }, 'MAC that is none'],
      ['an address outside', { ports: [portOf('10.78.0.5', '05')] }, 'outside of the subnet'],
      [
        'one address twice',
        { ports: [portOf('10.77.0.5', '05'), portOf('10.77.0.5', '06')] },
        'two ports have the address',
      ],
      ['one MAC twice', { ports: [portOf('10.77.0.5', '05'), portOf('10.77.0.6', '05')] }, 'or the MAC'],
    ])('%s is an error with its reason, and can be removed', async (_what, more, reason) => {
      const id = randomUUID();
      expect(await driver.ensure(id, 1, { ...specOf(), ...more })).toMatchObject({
        state: 'error',
        reason: expect.stringContaining(reason),
      });
      await driver.remove(id);
      expect((await driver.list()).filter((item) => item.id === id)).toEqual([]);
    });
  });
}

onHost(`real packets${skipped}`, () => {
  const tag = randomBytes(3).toString('hex');
  const hosts = new Hosts();
  let root: string;
  let driver: LocalNetworkDriver;
  beforeAll(async () => {
    root = await mkdtemp(join(tmpdir(), 'nebo-networks-'));
    await tool(['chmod', '755', root]);
    driver = new LocalNetworkDriver(tag, root);
    await driver.start();
  });
  afterEach(() => hosts.remove());
  afterAll(async () => {
    await driver.stop();
    await rm(root, { recursive: true, force: true });
    const left = (await readdir('/run/netns')).filter((name) => name.includes(tag));
    expect(left).toEqual([]);
  });

  it('hosts of one VPC reach each other; those of another VPC with the same range do not, nor anything outside', async () => {
    const [one, two] = [randomUUID(), randomUUID()];
    const ports = [portOf('10.77.0.5', '05'), portOf('10.77.0.6', '06')];
    await driver.ensure(one, 1, specOf('10.77.0.0/24', ports));
    await driver.ensure(two, 1, specOf('10.77.0.0/24', ports));
    const a = await hosts.join(driver.namespaceOf(one), ports[0]!, '10.77.0.1');
    const b = await hosts.join(driver.namespaceOf(one), ports[1]!, '10.77.0.1');
    // In the other VPC, with the address of nobody in the first one.
    const c = await hosts.join(
      driver.namespaceOf(two),
      { mac: ports[0]!.mac, address: '10.77.0.7' },
      '10.77.0.1',
    );
    const d = await hosts.join(driver.namespaceOf(two), ports[1]!, '10.77.0.1');
    await Promise.all([a, b, c, d].map((host) => hosts.listen(host)));

    expect(await hosts.connect(a, '10.77.0.6')).toBe(b);
    expect(await hosts.connect(b, '10.77.0.5')).toBe(a);
    // The same address leads to the neighbour of one's own VPC.
    expect(await hosts.connect(c, '10.77.0.6')).toBe(d);
    expect(await hosts.connect(a, '10.77.0.7')).toBe('unreachable');
    expect(await hosts.connect(c, '10.77.0.5')).toBe('unreachable');

    // The host's own addresses, on a port that answers there.
    const canary = createServer((_request, response) => response.end('canary')).listen(0, '0.0.0.0');
    let visits = 0;
    canary.on('connection', () => (visits += 1));
    await new Promise((resolve) => canary.once('listening', resolve));
    const { port } = canary.address() as AddressInfo;
    const own = Object.values(networkInterfaces()).flatMap((all) => all?.map(({ address }) => address) ?? []);
    const outside = own.filter((address) => /^\d/.test(address) && !address.startsWith('127.')).slice(0, 2);
    for (const address of [...outside, '203.0.113.7']) {
      expect(await hosts.connect(a, address, port)).toBe('unreachable');
    }
    expect(visits).toBe(0);
    canary.close();
  }, 60_000);

  it('DHCP gives each port its address and a stranger none; a new port is known at once', async () => {
    const id = randomUUID();
    const ports = [portOf('10.77.0.50', '50')];
    await driver.ensure(id, 1, specOf('10.77.0.0/24', ports));
    const namespace = driver.namespaceOf(id);
    const known = await hosts.join(namespace, { mac: ports[0]!.mac, address: null }, '10.77.0.1');
    const later = await hosts.join(namespace, { mac: '02:00:00:00:00:51', address: null }, '10.77.0.1');
    expect(await hosts.lease(known, ports[0]!.mac)).toBe('10.77.0.50');
    expect(await hosts.lease(later, '02:00:00:00:00:51')).toBe('none');
    await driver.ensure(id, 2, specOf('10.77.0.0/24', [...ports, portOf('10.77.0.99', '51')]));
    expect(await hosts.lease(later, '02:00:00:00:00:51')).toBe('10.77.0.99');
    expect(await hosts.lease(known, ports[0]!.mac)).toBe('10.77.0.50');
  }, 60_000);

  it('a killed agent’s network is adopted with its hosts, mended, and taken away by the next one', async () => {
    const id = randomUUID();
    const ports = [portOf('10.77.0.5', '05'), portOf('10.77.0.6', '06')];
    await driver.ensure(id, 4, specOf('10.77.0.0/24', ports));
    const namespace = driver.namespaceOf(id);
    const a = await hosts.join(namespace, ports[0]!, '10.77.0.1');
    const b = await hosts.join(namespace, ports[1]!, '10.77.0.1');
    await hosts.listen(b);
    const servers = async () =>
      (await tool(['ip', 'netns', 'pids', namespace])).split('\n').filter((pid) => pid !== '');
    const [before] = await servers();

    const next = new LocalNetworkDriver(tag, root);
    await next.start();
    expect((await next.list()).find((item) => item.id === id)).toMatchObject({
      generation: 4,
      state: 'active',
    });
    expect((await next.ensure(id, 4, specOf('10.77.0.0/24', ports))).state).toBe('active');
    expect(await servers()).toEqual([before]);
    expect(await hosts.connect(a, '10.77.0.6')).toBe(b);

    // A DHCP server that died comes back with the next look.
    process.kill(Number(before), 'SIGKILL');
    for (let waited = 0; (await servers()).length > 0 && waited < 5_000; waited += 20)
      await new Promise((resolve) => setTimeout(resolve, 20));
    await next.ensure(id, 4, specOf('10.77.0.0/24', ports));
    expect(await servers()).toHaveLength(1);

    // Killed between two steps: a namespace without its folder.
    await rm(join(root, tag, id), { recursive: true });
    expect((await next.list()).find((item) => item.id === id)).toMatchObject({ state: 'error' });
    await next.remove(id);
    expect((await next.list()).map((item) => item.id)).not.toContain(id);
  }, 60_000);
});

describe.each(missing ? (['simulated'] as const) : (['simulated', 'local'] as const))(
  'the agent and VPCs, driver %s',
  (name) => {
    let plane: FakeControlPlane;
    let home: string;
    beforeEach(async () => {
      plane = await new FakeControlPlane().start();
      home = await mkdtemp(join(tmpdir(), 'nebo-agent-'));
    });
    afterEach(async () => {
      await plane.stop();
      await rm(home, { recursive: true, force: true });
    });

    it('makes what is wanted, reports it, takes away what is gone and what nobody knows any more', async () => {
      const agent = await startAgent(plane, home, 'simulated', {}, null, name);
      const [one, two] = [randomUUID(), randomUUID()];
      plane.want(one, 1, { kind: 'vpc', spec: specOf() });
      plane.want(two, 1, { kind: 'vpc', spec: specOf() });
      await plane.see(one, 'active');
      expect(await plane.see(two, 'active')).toMatchObject({ kind: 'vpc', generation: 1, reason: null });
      plane.want(one, 2, { kind: 'vpc', spec: { ...specOf(), gateway: '1.2.3.4' } });
      expect(await plane.see(one, 'error')).toMatchObject({ generation: 2, reason: expect.any(String) });
      plane.want(one, 3, { kind: 'vpc', spec: specOf() }, true);
      expect(await plane.see(one, 'gone')).toMatchObject({ generation: 3 });
      plane.forget('vpc', two);
      await plane.see(two, 'gone');
      await agent.stop();
      expect(plane.observed.filter(({ kind }) => kind !== 'vpc')).toEqual([]);
    }, 60_000);

    it('SIGTERM leaves no network behind', async () => {
      const agent = await startAgent(plane, home, 'simulated', {}, null, name);
      const id = randomUUID();
      plane.want(id, 1, { kind: 'vpc', spec: specOf() });
      await plane.see(id, 'active');
      await agent.stop();
      const left = (await readdir('/run/netns').catch(() => [])).filter((space) => space.includes(id));
      expect(left).toEqual([]);
    }, 60_000);
  },
);
