import { randomUUID } from 'node:crypto';
import type { PortInfo } from '@nebo/contracts';
import { sharedPostgres } from '@nebo/test-kit';
import { AddressKit } from '../../test/address-kit.js';
import { Bench, eventually, FakeAgent, otherRegion } from '../../test/harness.js';

let bench: Bench;
let agent: FakeAgent;
let kit: AddressKit;
beforeAll(async () => {
  bench = await Bench.start();
  agent = new FakeAgent(bench);
  kit = new AddressKit(bench, agent);
});
beforeEach(() => kit.renew());
afterAll(async () => {
  await bench?.close();
  await (await sharedPostgres()).stop();
});

describe('two at once', () => {
  it('attaches of one address to two interfaces, of two addresses to one: one of them', async () => {
    for (let round = 0; round < 5; round += 1) {
      const [fip, one, two] = [await bench.address(), await kit.nic(), await kit.nic()];
      const answers = await Promise.all([kit.attach(fip.id, one.id), kit.attach(fip.id, two.id)]);
      expect(answers.map(({ status }) => status).sort()).toEqual([200, 409]);
      const [other, port] = [await bench.address(), await kit.nic()];
      const third = await bench.address();
      const both = await Promise.all([kit.attach(other.id, port.id), kit.attach(third.id, port.id)]);
      expect(both.map(({ status }) => status).sort()).toEqual([200, 409]);
    }
    expect(await kit.wanted()).toHaveLength(10);
  });

  it('attach and release, detach and release, attach and the end of its interface: never both, never half', async () => {
    for (let round = 0; round < 5; round += 1) {
      const [fip, port] = [await bench.address(), await kit.nic()];
      const [a, r] = await Promise.all([kit.attach(fip.id, port.id), kit.release(fip.id)]);
      expect(['200 409', '404 204']).toContain(`${a.status} ${r.status}`);

      const { fip: bound, port: its } = await kit.attached();
      const [d, s] = await Promise.all([kit.detach(bound.id), kit.release(bound.id)]);
      expect(['200 204', '200 409']).toContain(`${d.status} ${s.status}`);

      const [next, gone] = [await bench.address(), await kit.nic()];
      const [t] = await Promise.all([kit.attach(next.id, gone.id), kit.freePort(gone.id)]);
      expect([200, 404]).toContain(t.status);
      await kit.freePort(its.id);
      await agent.answer(kit.vpc.id, 'active');
      expect((await kit.reach(next.id, 'available')).status).toBe('available');
    }
  });

  it('a region that answers while addresses come and go: nothing is left on its way', async () => {
    const stop = agent.obey();
    const ports = await Promise.all(Array.from({ length: 4 }, () => kit.nic()));
    const fips = await Promise.all(Array.from({ length: 4 }, () => bench.address()));
    for (let round = 0; round < 6; round += 1)
      await Promise.all(
        fips.flatMap((fip, index) => [
          kit.attach(fip.id, ports[(index + round) % 4]!.id),
          ...(round % 2 ? [kit.detach(fip.id)] : []),
        ]),
      );
    await Promise.all(fips.map((fip) => kit.detach(fip.id)));
    for (const fip of fips) expect((await kit.reach(fip.id, 'available')).status).toBe('available');
    await stop();
    expect(await kit.wanted()).toEqual([]);
  });
});

describe('the end of a machine', () => {
  it('an address that was attached by hand is available again', async () => {
    const { fip, port } = await kit.attached();
    expect((await kit.freePort(port.id)).status).toBe(200);
    expect((await bench.api('GET', `floating-ips/${fip.id}`)).body).toMatchObject({
      status: 'detaching',
      vm_interface_id: null,
    });
    await agent.answer(kit.vpc.id, 'active');
    expect(await kit.reach(fip.id, 'available')).toMatchObject({ status: 'available', vpc_id: null });
    expect(await bench.said(fip.id)).toContain('service networking_detach_floating_ip');
  });

  it('a death between the steps: an ordered address is released once, its charge ended, whatever died', async () => {
    const port = await kit.nic();
    const id = randomUUID();
    const body = { operation_id: id, account_id: bench.account, port_id: port.id, project_id: randomUUID() };
    expect((await bench.internal('POST', 'floating-ips/order', body)).status).toBe(200);
    // A worker took the life and died with it: its lease runs out, another one goes on.
    await bench.sql(
      `update lifecycle set lease_owner = 'dead', lease_until = now() + interval '2 seconds', fence = fence + 1 where id = $1`,
      [id],
    );
    expect((await kit.freePort(port.id)).status).toBe(200);
    await agent.answer(kit.vpc.id, 'active');
    await eventually('back in the pool', async () => !(await kit.held(id)), 30_000);
    expect(await bench.sql('select 1 from floating_ip where id = $1', [id])).toEqual([]);
    await eventually('the charge has ended', async () => bench.billing.spanOf(`floating_ip:${id}`)?.closed);
    await eventually('no span is left', async () => {
      return (await bench.sql('select 1 from span where fip_id = $1', [id])).length === 0;
    });
    expect(await kit.portOf(port.id)).toBeUndefined();
  });
});

describe('POST /internal/v1/floating-ips/order', () => {
  const order = (more: Record<string, unknown>, account: string | null = null) =>
    bench.internal(
      'POST',
      'floating-ips/order',
      { operation_id: randomUUID(), account_id: bench.account, project_id: randomUUID(), ...more },
      account,
    );

  it('ordered, paid and attached in one; repeats order nothing more, also at once; released with its port', async () => {
    const port = (await bench.claim({ vpc_id: kit.vpc.id })).body as PortInfo;
    const body = { operation_id: randomUUID(), port_id: port.id, project_id: randomUUID() };
    const answers = await Promise.all([order(body), order(body), order(body)]);
    for (const answer of answers) {
      expect(answer).toMatchObject({ status: 200, text: answers[0]!.text });
      expect(answer.body).toEqual({
        ...port,
        floating_ip: { id: body.operation_id, address: expect.any(String), status: 'attaching' },
      });
    }
    await agent.answer(kit.vpc.id, 'active');
    expect(await kit.reach(body.operation_id, 'attached')).toMatchObject({
      auto_release: true,
      vm_interface_id: port.id,
      vm_project_id: body.project_id,
      monthly_price: '180.00',
    });
    await eventually('its span is open', async () =>
      bench.billing.spanOf(`floating_ip:${body.operation_id}`),
    );
    expect(bench.billing.spans.size).toBeGreaterThan(0);
    expect(
      [...bench.billing.spans.values()].filter(
        ({ open }) => open['resource'] === `floating_ip:${body.operation_id}`,
      ),
    ).toHaveLength(1);

    expect((await kit.freePort(port.id)).status).toBe(200);
    expect((await bench.api('GET', `floating-ips/${body.operation_id}`)).status).toBe(404);
    expect(await kit.held(body.operation_id)).toBe(true);
    await agent.answer(kit.vpc.id, 'active');
    await eventually('back in the pool', async () => !(await kit.held(body.operation_id)));
    expect(await order(body)).toMatchObject({ status: 409, body: { error: { code: 'already_released' } } });
    expect(await bench.said(body.operation_id)).toEqual([
      'service networking_create_floating_ip',
      'nebo.networking.floating_ip.attached.v1',
      'service networking_delete_floating_ip',
      'nebo.networking.floating_ip.released.v1',
    ]);
  });

  it('detached by hand it stays its owner’s; the order does not come back', async () => {
    const port = await kit.nic();
    const body = { operation_id: randomUUID(), port_id: port.id };
    await order(body);
    expect((await kit.detach(body.operation_id)).body).toMatchObject({
      auto_release: false,
      status: 'detaching',
    });
    expect(await order(body)).toMatchObject({ status: 409, body: { error: { code: 'already_released' } } });
    await kit.freePort(port.id);
    await agent.answer(kit.vpc.id, 'active');
    expect(await kit.reach(body.operation_id, 'available')).toMatchObject({ auto_release: false });
    expect((await kit.release(body.operation_id)).status).toBe(204);
    expect(await order(body)).toMatchObject({ status: 409, body: { error: { code: 'already_released' } } });
  });

  it('402, 503, 404, 409, 403 and 422: nothing is made, no money stays held', async () => {
    const port = await kit.nic();
    await eventually('no other hold stands', async () => bench.billing.held.size === 0);
    bench.billing.available = 179_999_999_999n;
    expect(await order({ port_id: port.id })).toMatchObject({
      status: 402,
      body: { error: { code: 'insufficient_balance' } },
    });
    bench.billing.available = 10n ** 15n;
    bench.billing.away = true;
    expect(await order({ port_id: port.id })).toMatchObject({
      status: 503,
      body: { error: { code: 'billing_unavailable' } },
    });
    bench.billing.away = false;
    expect(await order({ port_id: randomUUID() })).toMatchObject({
      status: 404,
      body: { error: { message: 'port_id: not found' } },
    });
    expect((await order({ port_id: port.id }, randomUUID())).status).toBe(403);
    expect((await order({ port_id: 'x' })).status).toBe(422);
    const far = await bench.vpc({ cluster_id: otherRegion });
    const there = (await bench.claim({ vpc_id: far.id })).body;
    expect(await order({ port_id: there.id })).toMatchObject({
      status: 503,
      body: { error: { code: 'no_capacity' } },
    });
    await order({ port_id: port.id });
    expect(await order({ port_id: port.id })).toMatchObject({
      status: 409,
      body: { error: { code: 'interface_has_floating_ip' } },
    });
    const gone = await kit.nic();
    await kit.freePort(gone.id);
    expect(await order({ port_id: gone.id })).toMatchObject({
      status: 409,
      body: { error: { code: 'already_released' } },
    });
    await eventually('no hold stands', async () => bench.billing.held.size === 0);
  });

  it('an order and the end of its port at once leave neither address nor charge', async () => {
    for (let round = 0; round < 5; round += 1) {
      const port = await kit.nic();
      const operation_id = randomUUID();
      const [answer] = await Promise.all([order({ operation_id, port_id: port.id }), kit.freePort(port.id)]);
      expect([200, 404, 409]).toContain(answer.status);
      await agent.answer(kit.vpc.id, 'active');
      await eventually('nothing is held', async () => !(await kit.held(operation_id)));
      await eventually('no span is left', async () => {
        return (await bench.sql('select 1 from span where fip_id = $1', [operation_id])).length === 0;
      });
    }
  });
});
