import { randomUUID } from 'node:crypto';
import { type NetworkDriver } from '../src/index.js';
import { floatingOf, natOf, portOf, specOf } from './network-kit.js';

/** A network driver under test. */
export interface NetworkStage {
  driver: NetworkDriver;
  end(): Promise<void>;
}

/** What every network driver owes, whatever its networks are made of. */
export function networkDriverSuite(
  name: string,
  make: () => Promise<NetworkStage>,
  lane: typeof describe = describe,
): void {
  lane(`networks by the driver ${name}`, () => {
    let stage: NetworkStage;
    let driver: NetworkDriver;
    beforeAll(async () => {
      stage = await make();
      driver = stage.driver;
      await driver.start();
    }, 60_000);
    afterAll(() => stage?.end(), 60_000);

    it('ensure makes it, again changes nothing, list shows it, remove takes it away, again too', async () => {
      const id = randomUUID();
      const spec = specOf();
      const made = await driver.ensure(id, 1, spec);
      const facts = { driver: driver.name, ports: 0, floating_ips: [], faults: {} };
      expect(made).toMatchObject({ id, generation: 1, state: 'active', reason: null, facts });
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
    }, 30_000);

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

    it('facts name the floating IPs and the gateway that work; one that cannot has a fault and harms no other', async () => {
      const id = randomUUID();
      const ports = [portOf('10.77.0.5', '05'), portOf('10.77.0.6', '06')] as const;
      const good = floatingOf('203.0.113.101', ports[0]);
      const nat = natOf('203.0.113.102');
      const bad: [string, ReturnType<typeof floatingOf>][] = [
        ['is not in this network', floatingOf('203.0.113.103', portOf('10.77.0.9', '09'))],
        ['has another floating IP', floatingOf('203.0.113.104', ports[0])],
        ['is not an address', floatingOf('203.0.113.105 ; accept', ports[1])],
        ['is not an address', floatingOf('127.0.0.1', ports[1])],
        ['is not an address', floatingOf('255.255.255.255', ports[1])],
        ['the range of its own network', floatingOf('10.77.0.200', ports[1])],
        ['used twice', floatingOf('203.0.113.101', ports[1])],
      ];
      const spec = {
        ...specOf('10.77.0.0/24', [...ports]),
        floating_ips: [good, ...bad.map(([, floating]) => floating)],
        nat,
      };
      const { state, facts } = await driver.ensure(id, 1, spec);
      expect({ state, works: facts.floating_ips }).toEqual({ state: 'active', works: [good.id, nat.id] });
      expect(Object.keys(facts.faults!).sort()).toEqual(bad.map(([, floating]) => floating.id).sort());
      for (const [words, floating] of bad) expect(facts.faults![floating.id]).toContain(words);
      // The bad ones gone, nothing of them is left.
      const next = await driver.ensure(id, 2, { ...spec, floating_ips: [good] });
      expect(next.facts).toMatchObject({ floating_ips: [good.id, nat.id], faults: {} });
      await driver.remove(id);
    }, 30_000);

    it('an address belongs to one network at a time, and is free with its end', async () => {
      const [one, two] = [randomUUID(), randomUUID()];
      const port = portOf('10.77.0.5', '05');
      const floating = floatingOf('203.0.113.111', port);
      const nat = natOf('203.0.113.112');
      const spec = { ...specOf('10.77.0.0/24', [port]), floating_ips: [floating], nat };
      await driver.ensure(one, 1, spec);
      const faults = {
        [floating.id]: 'another network of this region still has it',
        [nat.id]: 'another network of this region still has it',
      };
      expect((await driver.ensure(two, 1, spec)).facts).toMatchObject({ floating_ips: [], faults });
      await driver.ensure(one, 2, { ...spec, nat: null });
      expect((await driver.ensure(two, 1, spec)).facts).toMatchObject({
        floating_ips: [nat.id],
        faults: { [floating.id]: expect.any(String) },
      });
      await driver.remove(one);
      expect((await driver.ensure(two, 1, spec)).facts).toMatchObject({
        floating_ips: [floating.id, nat.id],
        faults: {},
      });
      await driver.remove(two);
    }, 30_000);

    it('stop leaves networks, clear takes them away', async () => {
      const id = randomUUID();
      await driver.ensure(id, 1, specOf());
      await driver.stop();
      expect(await driver.list()).toMatchObject([{ id, generation: 1 }]);
      await driver.clear();
      expect(await driver.list()).toEqual([]);
      await driver.start();
    });
  });
}
