import { randomUUID } from 'node:crypto';
import type { KeyIdentity, PolicyStatement, V1NatGateway, V1Vpc } from '@nebo/contracts';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, eventually, FakeAgent, otherRegion } from '../../test/harness.js';

let bench: Bench;
let agent: FakeAgent;
let vpc: V1Vpc;
beforeAll(async () => {
  bench = await Bench.start();
  agent = new FakeAgent(bench);
});
beforeEach(async () => {
  bench.billing.available = 10n ** 15n;
  bench.billing.away = false;
  vpc = await bench.activeVpc(agent);
});
afterAll(async () => {
  await bench?.close();
  await (await sharedPostgres()).stop();
});

const enable = (
  body?: unknown,
  as: KeyIdentity = bench.key,
  id = vpc.id,
  headers: Record<string, string> = {},
) =>
  bench.api('POST', `vpcs/${id}/nat-gateway`, body, as, { 'content-type': 'application/json', ...headers });
const disable = (as: KeyIdentity = bench.key, id = vpc.id) =>
  bench.api('DELETE', `vpcs/${id}/nat-gateway`, undefined, as);
const gateway = async (id = vpc.id): Promise<V1NatGateway | null> =>
  (await bench.api('GET', `vpcs/${id}`)).body.nat_gateway;
const address = async (id: string) => bench.api('GET', `floating-ips/${id}`);
const reach = (status: string) =>
  eventually(`the gateway is ${status}`, async () => {
    const seen = await gateway();
    return seen?.status === status && seen;
  });
const held = async (id: string) =>
  (await bench.sql('select 1 from pool_address where held_by = $1', [id])).length === 1;
const refused = (status: number, code: string) => ({ status, body: { error: { code } } });
/** Gateways, their ports, addresses and charges of the bench's VPC that are left. */
const left = async () =>
  bench.sql(
    `select 'port' as kind from port where vpc_id = $1 union all select 'gateway' from nat_gateway where vpc_id = $1
     union all select 'address' from floating_ip where vpc_id = $1`,
    [vpc.id],
  );
/** Both are gone, and the charge of the address with them. */
const gone = async (fip: string) => {
  await eventually('the address is gone', async () => (await address(fip)).status === 404);
  expect(await gateway()).toBeNull();
  expect(await left()).toEqual([]);
  expect(await held(fip)).toBe(false);
  await eventually('its charge has ended', async () => bench.billing.spanOf(`floating_ip:${fip}`)?.closed);
};

describe('a NAT gateway, in the order that clients look for', () => {
  it('201 attaching with an ordered address → attached; the next read shows it; both are gone at the end', async () => {
    const answer = await enable();
    expect(answer).toMatchObject({ status: 201 });
    const { fip_id, address: ip } = answer.body as V1NatGateway;
    expect(answer.body).toEqual({
      enabled: true,
      fip_id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      address: expect.stringMatching(/^203\.0\.113\.\d+$/),
      status: 'attaching',
      last_error: null,
    });
    expect(await gateway()).toEqual(answer.body);
    expect((await bench.api('GET', 'vpcs?limit=200')).body.data).toContainEqual({
      ...vpc,
      nat_gateway: answer.body,
    });
    const shown = {
      address: ip,
      target_kind: 'vpc_nat',
      vpc_id: vpc.id,
      vm_interface_id: null,
      vm_id: null,
      internal_address: null,
      auto_release: true,
    };
    expect((await address(fip_id)).body).toMatchObject({ ...shown, status: 'attaching' });
    await agent.poll();
    const { nat, floating_ips, ports } = agent.wanted.get(vpc.id)!.spec;
    expect([nat, floating_ips, ports.length]).toEqual([{ id: fip_id, address: ip }, [], 1]);
    await agent.answer(vpc.id, 'active');
    expect(await reach('attached')).toEqual({ ...answer.body, status: 'attached' });
    expect((await address(fip_id)).body).toMatchObject({ ...shown, status: 'attached' });
    await eventually('it is charged', async () => bench.billing.spanOf(`floating_ip:${fip_id}`));

    const off = await disable();
    expect(off).toMatchObject({ status: 202 });
    expect(off.body).toEqual({ ...answer.body, enabled: false, status: 'detaching' });
    expect((await disable()).body).toEqual(off.body);
    expect(await gateway()).toEqual(off.body);
    expect((await address(fip_id)).body).toMatchObject({ ...shown, status: 'detaching' });
    expect(await enable()).toMatchObject(refused(409, 'nat_gateway_exists'));
    await agent.poll();
    expect(agent.wanted.get(vpc.id)!.spec.nat).toBeNull();
    // Nothing happens before the region confirms; the charge has ended all the same.
    await eventually(
      'its charge has ended',
      async () => bench.billing.spanOf(`floating_ip:${fip_id}`)?.closed,
    );
    expect(await held(fip_id)).toBe(true);
    await agent.answer(vpc.id, 'active');
    await gone(fip_id);
    expect(await bench.said(fip_id)).toEqual([
      'key networking_enable_nat_gateway',
      'nebo.networking.nat_gateway.attached.v1',
      'key networking_disable_nat_gateway',
      'nebo.networking.nat_gateway.detached.v1',
      'service networking_delete_floating_ip',
      'nebo.networking.floating_ip.released.v1',
    ]);
    expect((await disable()).status).toBe(404);
    expect((await enable({})).status).toBe(201);
  });

  it('no two reads, in either order, contradict each other while it goes', async () => {
    const { fip_id } = (await enable(null)).body as V1NatGateway;
    await agent.answer(vpc.id, 'active');
    await reach('attached');
    await disable();
    await agent.answer(vpc.id, 'active');
    const pictures = new Set<string>();
    const look = async () => {
      const shown = (await gateway()) ? 'gateway' : '-';
      const { status, body } = await address(fip_id);
      return {
        shown,
        picture: status === 404 ? '-' : `${body.target_kind} ${body.auto_release} ${body.vpc_id === vpc.id}`,
      };
    };
    const turned = async () => {
      const { status, body } = await address(fip_id);
      const shown = (await gateway()) ? 'gateway' : '-';
      return {
        shown,
        picture: status === 404 ? '-' : `${body.target_kind} ${body.auto_release} ${body.vpc_id === vpc.id}`,
      };
    };
    await eventually('both are gone', async () => {
      for (const { shown, picture } of [await look(), await turned()]) pictures.add(`${shown} ${picture}`);
      return pictures.has('- -');
    });
    const allowed = [
      'gateway vpc_nat true true',
      'gateway interface true false',
      '- interface true false',
      '- -',
    ];
    expect([...pictures].filter((picture) => !allowed.includes(picture))).toEqual([]);
    expect(pictures).toContain('gateway interface true false');
    expect(pictures).toContain('- interface true false');
  });

  it('with an address that is brought: released with the gateway, and held by it until then', async () => {
    const fip = await bench.address({ name: 'mine' });
    bench.billing.available = 0n;
    const answer = await enable({ fip_id: fip.id.toUpperCase() });
    expect(answer).toMatchObject({ status: 201, body: { fip_id: fip.id, address: fip.address } });
    expect((await address(fip.id)).body).toMatchObject({
      auto_release: true,
      target_kind: 'vpc_nat',
      name: 'mine',
    });
    for (const state of ['attaching', 'attached', 'detaching']) {
      if (state === 'attached') await agent.answer(vpc.id, 'active').then(() => reach('attached'));
      if (state === 'detaching') await disable();
      expect(await bench.api('DELETE', `floating-ips/${fip.id}`)).toMatchObject(
        refused(409, 'held_by_nat_gateway'),
      );
      expect(await bench.api('POST', `floating-ips/${fip.id}/detach`)).toMatchObject(
        refused(409, 'held_by_nat_gateway'),
      );
      const port = (await bench.claim({ vpc_id: vpc.id })).body;
      expect(
        await bench.api('POST', `floating-ips/${fip.id}/attach`, { vm_interface_id: port.id }),
      ).toMatchObject(refused(409, 'floating_ip_not_available'));
      await bench.internal('POST', 'ports/release', { operation_id: port.id, account_id: bench.account });
    }
    expect((await bench.api('PATCH', `floating-ips/${fip.id}`, { name: 'still mine' })).status).toBe(200);
    await agent.answer(vpc.id, 'active');
    await gone(fip.id);
  });

  it('error with the region’s reason, on the gateway and on its address; healed, lost, and disabled from error', async () => {
    const { fip_id } = (await enable()).body as V1NatGateway;
    await agent.answer(vpc.id, 'active', null, { [fip_id]: 'no uplink' });
    expect(await reach('error')).toMatchObject({ enabled: true, last_error: 'no uplink' });
    expect((await address(fip_id)).body).toMatchObject({ status: 'error', last_error: 'no uplink' });
    await agent.answer(vpc.id, 'active');
    expect(await reach('attached')).toMatchObject({ last_error: null });
    const none = { driver: 'fake', real: false, ports: 1, floating_ips: [], faults: {} };
    await agent.observe(agent.wanted.get(vpc.id)!, 'active', { facts: none });
    expect(await reach('error')).toMatchObject({ last_error: 'the region has it no more' });
    expect((await disable()).body).toMatchObject({ enabled: false, status: 'detaching', last_error: null });
    await agent.answer(vpc.id, 'active');
    await gone(fip_id);
  });

  it('disabled while it attaches, before and after the region has heard of it', async () => {
    const { fip_id } = (await enable()).body as V1NatGateway;
    expect((await disable()).body).toMatchObject({ status: 'detaching', enabled: false });
    const other = await bench.activeVpc(agent);
    const heard = (await enable({}, bench.key, other.id)).body as V1NatGateway;
    await agent.poll();
    expect((await disable(bench.key, other.id)).body).toMatchObject({ status: 'detaching', enabled: false });
    await agent.answer(vpc.id, 'active');
    await agent.answer(other.id, 'active');
    await gone(fip_id);
    await eventually('the other one is gone', async () => (await address(heard.fip_id)).status === 404);
    expect(await gateway(other.id)).toBeNull();
  });

  it('a region that never answers: error after the deadline, both ways; its later word counts', async () => {
    const late = async (minutes: number) => {
      const [{ id }] = (await bench.sql('select id from nat_gateway where vpc_id = $1', [vpc.id])) as [
        { id: string },
      ];
      const past = `update lifecycle set entered_at = now() - make_interval(mins => $2) where id = $1`;
      await bench.sql(past, [id, minutes]);
      await bench.sql('update lifecycle set run_at = now(), wakes = wakes + 1 where id = $1', [id]);
    };
    const lives = (state: string) =>
      eventually(`it is ${state}`, async () => {
        const [life] = await bench.sql<{ state: string }>(
          'select l.state from lifecycle l join nat_gateway g on g.id = l.id where g.vpc_id = $1',
          [vpc.id],
        );
        return life?.state === state;
      });
    const { fip_id } = (await enable()).body as V1NatGateway;
    await lives('attaching');
    await late(3);
    expect(await reach('error')).toMatchObject({
      enabled: true,
      last_error: expect.stringContaining('the region has not reported it'),
    });
    await disable();
    await lives('detaching');
    await late(6);
    await lives('stuck');
    expect(await gateway()).toMatchObject({ enabled: false, status: 'error' });
    expect((await disable()).body).toMatchObject({ enabled: false, status: 'error' });
    expect(await enable()).toMatchObject(refused(409, 'nat_gateway_exists'));
    expect(await bench.api('DELETE', `vpcs/${vpc.id}`)).toMatchObject(refused(409, 'vpc_in_use'));
    expect(await held(fip_id)).toBe(true);
    await agent.answer(vpc.id, 'active');
    await gone(fip_id);
  });

  it('a death in the middle of the end: another worker finishes, gateway, address, port and charge are gone', async () => {
    const { fip_id } = (await enable()).body as V1NatGateway;
    await agent.answer(vpc.id, 'active');
    await reach('attached');
    await disable();
    await agent.answer(vpc.id, 'active');
    await eventually('it leaves', async () => (await address(fip_id)).body.target_kind === 'interface');
    // Whoever had the lease is dead, now and once more when the address has a life of its own.
    const die = (kind: string) =>
      bench.sql(
        `update lifecycle set lease_owner = 'dead', lease_until = now() + interval '3 seconds', fence = fence + 1
         where kind = $1 and ended_at is null and (id = $2 or id in (select id from nat_gateway where fip_id = $2))
         returning 1 as died`,
        [kind, fip_id],
      );
    expect(await die('nat_gateway')).toHaveLength(1);
    await eventually('the address lives alone', async () => (await die('floating_ip')).length === 1);
    expect(await held(fip_id)).toBe(true);
    await gone(fip_id);
  });
});

describe('what is refused', () => {
  it('409 nat_gateway_exists, also for one of two at once, whose money and address come back', async () => {
    const answers = await Promise.all([enable(), enable(), enable()]);
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 409, 409]);
    for (const answer of answers.filter(({ status }) => status === 409))
      expect(answer.body).toMatchObject({ error: { code: 'nat_gateway_exists' } });
    expect(await enable()).toMatchObject(refused(409, 'nat_gateway_exists'));
    const total = async () =>
      bench.sql(`select 1 from floating_ip f join nat_gateway g on g.fip_id = f.id where g.vpc_id = $1`, [
        vpc.id,
      ]);
    expect(await total()).toHaveLength(1);
    await eventually('no hold stands', async () => bench.billing.held.size === 0);
    // One address for two networks at once: one gets it.
    const fip = await bench.address();
    const [one, two] = [await bench.activeVpc(agent), await bench.activeVpc(agent)];
    const both = await Promise.all([
      enable({ fip_id: fip.id }, bench.key, one.id),
      enable({ fip_id: fip.id }, bench.key, two.id),
    ]);
    expect(both.map(({ status }) => status).sort()).toEqual([201, 409]);
  });

  it('402 below a month’s price, 503 when billing is away and when the pool is empty: nothing is made', async () => {
    bench.billing.available = 179_999_999_999n;
    expect(await enable()).toMatchObject(refused(402, 'insufficient_balance'));
    bench.billing.available = 10n ** 15n;
    bench.billing.away = true;
    expect(await enable()).toMatchObject(refused(503, 'billing_unavailable'));
    bench.billing.away = false;
    const far = new FakeAgent(bench, { kind: 'agent', region_id: otherRegion, epoch: 1 });
    const there = await bench.activeVpc(far, { cluster_id: otherRegion });
    expect(await enable(undefined, bench.key, there.id)).toMatchObject(refused(503, 'no_capacity'));
    expect(await gateway()).toBeNull();
    expect(await left()).toEqual([]);
    await eventually('no hold stands', async () => bench.billing.held.size === 0);
  });

  it('409 for a VPC that is not active and for an address that is not available; a full subnet has no room', async () => {
    const young = await bench.vpc();
    expect(await enable(undefined, bench.key, young.id)).toMatchObject(refused(409, 'vpc_not_active'));
    const [fip, port] = [await bench.address(), (await bench.claim({ vpc_id: vpc.id })).body];
    await bench.api('POST', `floating-ips/${fip.id}/attach`, { vm_interface_id: port.id });
    expect(await enable({ fip_id: fip.id })).toMatchObject(refused(409, 'floating_ip_not_available'));
    const small = await bench.activeVpc(agent, { subnet: '192.168.77.0/28' });
    for (let count = 0; count < 13; count += 1) await bench.claim({ vpc_id: small.id });
    const spare = await bench.address();
    expect(await enable({ fip_id: spare.id }, bench.key, small.id)).toMatchObject(
      refused(409, 'subnet_full'),
    );
    expect((await address(spare.id)).body).toEqual(spare);
  });

  it('404 for VPCs and addresses that are absent or foreign, 400 for another region’s, 422 for no id', async () => {
    const answers = [await enable({}, bench.stranger), await enable({}, bench.key, randomUUID())];
    answers.push(await disable(bench.stranger), await disable(), await disable(bench.key, 'no-id'));
    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`))).toEqual(
      new Set([`404 ${answers[0]!.text}`]),
    );
    const theirs = await bench.address({}, bench.stranger);
    for (const fip_id of [randomUUID(), theirs.id])
      expect(await enable({ fip_id })).toMatchObject({
        status: 404,
        body: { error: { message: 'fip_id: not found' } },
      });
    expect(await enable({ fip_id: 'x' })).toMatchObject(refused(422, 'validation_error'));
    const far = new FakeAgent(bench, { kind: 'agent', region_id: otherRegion, epoch: 1 });
    const there = await bench.activeVpc(far, { cluster_id: otherRegion });
    expect(await enable({ fip_id: (await bench.address()).id }, bench.key, there.id)).toMatchObject(
      refused(400, 'floating_ip_region_mismatch'),
    );
  });

  it('403 naming the right that lacks: to order anywhere, to read and to use the address that is brought', async () => {
    const fip = await bench.address();
    const may = (...more: [string, string][]): KeyIdentity => ({
      ...bench.key,
      policy: [['vpc:*', '*'], ...more].map(([action, resource]): PolicyStatement => ({
        effect: 'allow',
        actions: [action!],
        resources: [resource!],
      })),
    });
    const lacks = (action: string) => ({
      status: 403,
      body: { error: { message: expect.stringContaining(action) } },
    });
    const only = `floating_ip:${fip.id}`;
    expect(await enable({}, may())).toMatchObject(lacks('floating_ip:write'));
    expect(await enable({}, may(['floating_ip:write', only]))).toMatchObject(lacks('floating_ip:write'));
    expect(await enable({ fip_id: fip.id }, may())).toMatchObject(lacks('floating_ip:read'));
    expect(await enable({ fip_id: fip.id }, may(['floating_ip:read', '*']))).toMatchObject(
      lacks('floating_ip:write'),
    );
    const enough = may(['floating_ip:read', only], ['floating_ip:write', only]);
    expect((await enable({ fip_id: fip.id }, enough)).status).toBe(201);
  });

  it('a VPC with a gateway is not deleted; a repeat under one Idempotency-Key answers the first', async () => {
    const headers = { 'idempotency-key': randomUUID() };
    const first = await enable({}, bench.key, vpc.id, headers);
    expect(await enable({}, bench.key, vpc.id, headers)).toMatchObject({ status: 201, text: first.text });
    expect(await bench.api('DELETE', `vpcs/${vpc.id}`)).toMatchObject({
      status: 409,
      body: { error: { code: 'vpc_in_use', message: expect.stringContaining('1 nat gateway') } },
    });
  });
});
