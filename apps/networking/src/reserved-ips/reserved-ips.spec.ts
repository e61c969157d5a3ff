import { randomUUID } from 'node:crypto';
import type { V1Vpc } from '@nebo/contracts';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench } from '../../test/harness.js';

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
    const refusals = [
      [{ mac: '02:00:00:00:00:0b' }, 'address_in_use'],
      [{ address: host(11), mac: '02:00:00:00:00:09' }, 'mac_in_use'],
      [{ address: port.address, mac: '02:00:00:00:00:0c' }, 'address_in_use'],
      [{ address: host(12), mac: port.mac }, 'mac_in_use'],
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
