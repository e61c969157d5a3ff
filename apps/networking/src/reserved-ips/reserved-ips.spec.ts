import { randomUUID } from 'node:crypto';
import type { PortInfo, V1Vpc } from '@nebo/contracts';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, FakeAgent } from '../../test/harness.js';

let bench: Bench;
let vpc: V1Vpc;
beforeAll(async () => {
  bench = await Bench.start();
});
beforeEach(async () => {
  vpc = await bench.vpc();
});
afterAll(async () => {
  await bench?.close();
  await (await sharedPostgres()).stop();
});

const host = (last: number) => vpc.subnet.replace(/0\/24$/, String(last));
const reserve = (more: Record<string, unknown> = {}, headers: Record<string, string> = {}) =>
  bench.api(
    'POST',
    `vpcs/${vpc.id}/reserved-ips`,
    { name: 'db', address: host(9), mac: '02:00:00:00:00:09', ...more },
    bench.key,
    headers,
  );

describe('reserved IPs', () => {
  it('201 with the record; listed; an occupied VPC is 409; 204 frees it, then 404', async () => {
    const made = await reserve({ mac: '02-AB-00-00-00-09' });
    expect(made).toMatchObject({ status: 201 });
    expect(made.body).toEqual({
      id: expect.any(String),
      name: 'db',
      address: host(9),
      mac: '02:ab:00:00:00:09',
      created_at: expect.stringMatching(/Z$/),
    });
    const second = (await reserve({ name: 'web', address: host(10), mac: '02:00:00:00:00:0a' })).body;
    expect((await bench.api('GET', `vpcs/${vpc.id}/reserved-ips`)).body).toEqual({
      data: [made.body, second],
      limit: 50,
      offset: 0,
      count: 2,
      total: 2,
    });
    expect((await bench.api('GET', `vpcs/${vpc.id}/reserved-ips?limit=1&offset=1`)).body).toMatchObject({
      data: [second],
      total: 2,
    });
    expect((await bench.api('DELETE', `vpcs/${vpc.id}`)).status).toBe(409);
    const path = `vpcs/${vpc.id}/reserved-ips/${made.body.id}`;
    expect((await bench.api('DELETE', path)).status).toBe(204);
    expect((await bench.api('DELETE', path)).status).toBe(404);
    expect((await reserve()).status).toBe(201);
  });

  it('is an address that no claim gets', async () => {
    await reserve({ address: host(2) });
    expect((await bench.claim({ vpc_id: vpc.id })).body.address).toBe(host(3));
  });

  it.each([
    ['an address of another range', { address: '192.168.200.9' }, 400, 'address_outside_subnet'],
    ['the network’s address', { address: 'network' }, 400, 'address_outside_subnet'],
    ['the gateway', { address: 'gateway' }, 409, 'address_in_use'],
    ['no address', { address: '10.1' }, 422, 'validation_error'],
    ['an address out of range', { address: '10.1.1.256' }, 422, 'validation_error'],
    ['no MAC', { mac: 'x' }, 422, 'validation_error'],
    ['a group MAC', { mac: '03:00:00:00:00:09' }, 422, 'validation_error'],
    ['a blank name', { name: ' ' }, 422, 'validation_error'],
  ])('refuses %s', async (_what, more, status, code) => {
    const named: Record<string, string> = { network: host(0), gateway: host(1) };
    const address = 'address' in more ? { address: named[more.address] ?? more.address } : {};
    expect(await reserve({ ...more, ...address })).toMatchObject({ status, body: { error: { code } } });
  });

  it('409 for an address in use and for a MAC twice, whoever has it', async () => {
    await reserve();
    const port = (await bench.claim({ vpc_id: vpc.id })).body;
    const replica = (await bench.claim({ vpc_id: vpc.id, kind: 'replica' })).body;
    const refusals = [
      [{ mac: '02:00:00:00:00:0b' }, 'address_in_use'],
      [{ address: host(11), mac: '02:00:00:00:00:09' }, 'mac_in_use'],
      [{ address: port.address, mac: '02:00:00:00:00:0c' }, 'address_in_use'],
      [{ address: host(12), mac: replica.mac }, 'mac_in_use'],
    ] as const;
    for (const [more, code] of refusals)
      expect(await reserve(more)).toMatchObject({ status: 409, body: { error: { code } } });
  });

  it('of two that want one address at once, one gets it; a repeat under one key answers the first', async () => {
    const answers = await Promise.all([reserve(), reserve({ mac: '02:00:00:00:00:0b' })]);
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 409]);
    const headers = { 'idempotency-key': randomUUID() };
    const again = { address: host(20), mac: '02:00:00:00:00:14' };
    const first = await reserve(again, headers);
    expect(await reserve(again, headers)).toMatchObject({ status: 201, text: first.text });
  });

  it('404 for another account’s VPC, for an address of another VPC and for a port that is none', async () => {
    const { body } = await reserve();
    const port = (await bench.claim({ vpc_id: vpc.id })).body;
    const other = await bench.vpc();
    for (const path of [
      `vpcs/${other.id}/reserved-ips/${body.id}`,
      `vpcs/${vpc.id}/reserved-ips/${port.id}`,
      `vpcs/${vpc.id}/reserved-ips/no-id`,
    ])
      expect((await bench.api('DELETE', path)).status).toBe(404);
    for (const method of ['GET', 'POST']) {
      const sent = method === 'POST' ? { name: 'x', address: host(30), mac: '02:00:00:00:00:1e' } : undefined;
      expect((await bench.api(method, `vpcs/${vpc.id}/reserved-ips`, sent, bench.stranger)).status).toBe(404);
    }
    expect(
      (await bench.api('DELETE', `vpcs/${vpc.id}/reserved-ips/${body.id}`, undefined, bench.stranger)).status,
    ).toBe(404);
  });
});

describe('on the MAC of a machine’s interface', () => {
  const wanted = async () => {
    const agent = new FakeAgent(bench);
    await agent.poll();
    return agent.wanted.get(vpc.id)!;
  };
  const portOf = async (id: string): Promise<PortInfo> =>
    (await bench.internal('POST', 'ports/addresses', { account_id: bench.account, ids: [id] })).body.ports[0];
  const nic = async (): Promise<PortInfo> => (await bench.claim({ vpc_id: vpc.id })).body;
  const release = (operation_id: string) =>
    bench.internal('POST', 'ports/release', { operation_id, account_id: bench.account });
  const refused = (code: string) => ({ status: 409, body: { error: { code } } });

  it('the interface has the reserved address, in the API and in what DHCP gives; its old one rests', async () => {
    const port = await nic();
    const before = (await wanted()).generation;
    const made = await reserve({ address: host(77), mac: port.mac.toUpperCase() });
    expect(made).toMatchObject({ status: 201, body: { address: host(77), mac: port.mac } });
    expect(await portOf(port.id)).toEqual({ ...port, address: host(77) });
    // A repeated claim answers the address of now.
    const again = await bench.claim({ operation_id: port.id, owner: port.owner, vpc_id: vpc.id });
    expect(again.body.address).toBe(host(77));
    const { generation, spec } = await wanted();
    expect(generation).toBeGreaterThan(before);
    expect(spec.ports).toEqual([{ id: port.id, mac: port.mac, address: host(77) }]);
    expect((await bench.api('GET', `vpcs/${vpc.id}/reserved-ips`)).body.data).toEqual([made.body]);
    // The guest may have the old address until its lease ends; then it is free.
    expect((await nic()).address).not.toBe(port.address);
    await bench.sql('update resting_address set until = now()');
    expect((await nic()).address).toBe(port.address);
  });

  it('its present address can be reserved; a MAC twice, an address in use and one outside are refused', async () => {
    const [port, other] = [await nic(), await nic()];
    expect(await reserve({ address: other.address, mac: port.mac })).toMatchObject(refused('address_in_use'));
    expect(await reserve({ address: host(1), mac: port.mac })).toMatchObject(refused('address_in_use'));
    expect(await reserve({ address: '192.168.200.9', mac: port.mac })).toMatchObject({
      status: 400,
      body: { error: { code: 'address_outside_subnet' } },
    });
    expect((await reserve({ address: port.address, mac: port.mac })).status).toBe(201);
    expect((await portOf(port.id)).address).toBe(port.address);
    expect(await reserve({ address: host(80), mac: port.mac })).toMatchObject(refused('mac_in_use'));
    expect(await reserve({ address: port.address, mac: other.mac })).toMatchObject(refused('address_in_use'));
    expect((await portOf(other.id)).address).toBe(other.address);
  });

  it('without the reservation the interface keeps the address; without the machine the reservation stays', async () => {
    const [port, other] = [await nic(), await nic()];
    const one = (await reserve({ address: host(77), mac: port.mac })).body;
    expect((await bench.api('DELETE', `vpcs/${vpc.id}/reserved-ips/${one.id}`)).status).toBe(204);
    expect((await portOf(port.id)).address).toBe(host(77));
    expect(await reserve({ address: host(77), mac: other.mac })).toMatchObject(refused('address_in_use'));

    const two = (await reserve({ address: host(78), mac: other.mac })).body;
    await release(other.id);
    expect((await bench.api('GET', `vpcs/${vpc.id}/reserved-ips`)).body.data).toEqual([two]);
    expect((await wanted()).spec.ports).toEqual([
      { id: port.id, mac: port.mac, address: host(77) },
      { id: two.id, mac: other.mac, address: host(78) },
    ]);
    expect(await reserve({ address: host(78), mac: '02:00:00:00:00:4e' })).toMatchObject(
      refused('address_in_use'),
    );
    await release(port.id);
    expect(await bench.api('DELETE', `vpcs/${vpc.id}`)).toMatchObject(refused('vpc_in_use'));
    expect((await bench.api('DELETE', `vpcs/${vpc.id}/reserved-ips/${two.id}`)).status).toBe(204);
    expect((await bench.api('DELETE', `vpcs/${vpc.id}`)).status).toBe(204);
  });

  it('two reservations of one MAC at once, a reservation and the end of its machine at once: nothing is half', async () => {
    for (let round = 0; round < 5; round += 1) {
      const port = await nic();
      const both = await Promise.all([
        reserve({ address: host(90), mac: port.mac }),
        reserve({ address: host(91), mac: port.mac }),
      ]);
      expect(both.map(({ status }) => status).sort()).toEqual([201, 409]);
      const { id } = both.find(({ status }) => status === 201)!.body;
      await release(port.id);
      await bench.api('DELETE', `vpcs/${vpc.id}/reserved-ips/${id}`);

      const gone = await nic();
      const [made] = await Promise.all([reserve({ address: host(92), mac: gone.mac }), release(gone.id)]);
      expect(made.status).toBe(201);
      expect((await wanted()).spec.ports).toEqual([{ id: made.body.id, mac: gone.mac, address: host(92) }]);
      await bench.api('DELETE', `vpcs/${vpc.id}/reserved-ips/${made.body.id}`);
    }
    expect((await wanted()).spec.ports).toEqual([]);
  });

  it('a floating IP of the interface follows its address', async () => {
    const [port, fip] = [await nic(), await bench.address()];
    await bench.api('POST', `floating-ips/${fip.id}/attach`, { vm_interface_id: port.id });
    await reserve({ address: host(77), mac: port.mac });
    expect((await bench.api('GET', `floating-ips/${fip.id}`)).body.internal_address).toBe(host(77));
    expect((await wanted()).spec.floating_ips).toMatchObject([{ id: fip.id, port_id: port.id }]);
  });
});
