import { randomUUID } from 'node:crypto';
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

describe('an address on an interface, in the pictures of the contract', () => {
  it('available → attaching → attached → detaching → available, with every field on the way', async () => {
    const [fip, port] = [await bench.address({ name: 'web' }), await kit.nic()];
    const bound = {
      ...fip,
      internal_address: port.address,
      vm_id: port.owner.slice(3),
      vm_interface_id: port.id,
      vm_project_id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      vpc_id: kit.vpc.id,
    };
    const answer = await kit.attach(fip.id.toUpperCase(), port.id.toUpperCase());
    expect(answer).toMatchObject({ status: 200 });
    expect(answer.body).toEqual({ ...bound, status: 'attaching' });
    expect((await bench.api('GET', `floating-ips/${fip.id}`)).body).toEqual(answer.body);
    expect((await kit.portOf(port.id))!.floating_ip).toEqual({
      id: fip.id,
      address: fip.address,
      status: 'attaching',
    });

    expect(await kit.wanted()).toEqual([{ id: fip.id, address: fip.address, port_id: port.id }]);
    await agent.answer(kit.vpc.id, 'active');
    expect(await kit.reach(fip.id, 'attached')).toEqual({ ...bound, status: 'attached' });
    expect((await bench.api('GET', 'floating-ips?limit=200')).body.data).toContainEqual({
      ...bound,
      status: 'attached',
    });
    expect((await kit.portOf(port.id))!.floating_ip).toMatchObject({ status: 'attached' });
    // A claim that is repeated says so too.
    expect(
      (await bench.claim({ operation_id: port.id, owner: port.owner, vpc_id: kit.vpc.id })).body.floating_ip,
    ).toMatchObject({ id: fip.id });

    const off = await kit.detach(fip.id);
    expect(off).toMatchObject({ status: 200, body: { ...fip, status: 'detaching' } });
    expect(await kit.wanted()).toEqual([]);
    expect((await kit.portOf(port.id))!.floating_ip).toBeNull();
    await agent.answer(kit.vpc.id, 'active');
    expect(await kit.reach(fip.id, 'available')).toEqual(fip);
    expect(await bench.said(fip.id)).toEqual([
      'key networking_create_floating_ip',
      'key networking_attach_floating_ip',
      'nebo.networking.floating_ip.attached.v1',
      'key networking_detach_floating_ip',
      'nebo.networking.floating_ip.detached.v1',
    ]);

    // The same address on another interface.
    const other = await kit.nic();
    expect((await kit.attach(fip.id, other.id)).body).toMatchObject({ vm_interface_id: other.id });
    await agent.answer(kit.vpc.id, 'active');
    expect((await kit.reach(fip.id, 'attached')).address).toBe(fip.address);
  });

  it('a word about what was wanted before says nothing; a network in trouble leaves it on its way', async () => {
    const [fip, port] = [await bench.address(), await kit.nic()];
    await agent.poll();
    const before = agent.wanted.get(kit.vpc.id)!;
    await kit.attach(fip.id, port.id);
    const facts = { driver: 'fake', real: false, ports: 1, floating_ips: [fip.id], faults: {} };
    await agent.observe(before, 'active', { facts });
    await agent.answer(kit.vpc.id, 'error', 'no bridge');
    await eventually('the VPC shows it', async () => {
      return (await bench.api('GET', `vpcs/${kit.vpc.id}`)).body.status === 'error';
    });
    expect((await bench.api('GET', `floating-ips/${fip.id}`)).body.status).toBe('attaching');
    await agent.answer(kit.vpc.id, 'active');
    expect((await kit.reach(fip.id, 'attached')).status).toBe('attached');
  });

  it('error with the region’s reason, and out of it again; an attached one that the region loses', async () => {
    const [fip, port] = [await bench.address(), await kit.nic()];
    await kit.attach(fip.id, port.id);
    await agent.answer(kit.vpc.id, 'active', null, { [fip.id]: 'the uplink has no address' });
    // Who waits for another state hears of the bad one.
    expect(await kit.reach(fip.id, 'attached')).toMatchObject({
      status: 'error',
      last_error: 'the uplink has no address',
      vm_interface_id: port.id,
    });
    await agent.answer(kit.vpc.id, 'active', null, { [fip.id]: 'the uplink is down' });
    await eventually('the new reason shows', async () => {
      const { body } = await bench.api('GET', `floating-ips/${fip.id}`);
      return body.last_error === 'the uplink is down';
    });
    await agent.answer(kit.vpc.id, 'active');
    const healed = await eventually('attached', async () => {
      const { body } = await bench.api('GET', `floating-ips/${fip.id}`);
      return body.status === 'attached' && body;
    });
    expect(healed.last_error).toBeNull();
    const none = { driver: 'fake', real: false, ports: 1, floating_ips: [], faults: {} };
    await agent.observe(agent.wanted.get(kit.vpc.id)!, 'active', { facts: none });
    expect(await kit.reach(fip.id, 'error')).toMatchObject({
      status: 'error',
      last_error: 'the region has it no more',
    });
  });

  it('in error it can be detached and then released; or released at once, and nobody gets it before the region lets go', async () => {
    for (const way of ['detach first', 'at once']) {
      const [fip, port] = [await bench.address(), await kit.nic()];
      await kit.attach(fip.id, port.id);
      await agent.answer(kit.vpc.id, 'active', null, { [fip.id]: 'no way' });
      await kit.reach(fip.id, 'error');
      if (way === 'detach first') {
        expect((await kit.detach(fip.id)).body).toMatchObject({
          status: 'detaching',
          vm_interface_id: null,
          last_error: null,
        });
        await agent.answer(kit.vpc.id, 'active');
        expect((await kit.reach(fip.id, 'available')).status).toBe('available');
        expect((await kit.release(fip.id)).status).toBe(204);
      } else {
        expect((await kit.release(fip.id)).status).toBe(204);
        expect((await bench.api('GET', `floating-ips/${fip.id}`)).status).toBe(404);
        expect((await bench.internal('GET', `owners/floating_ip/${fip.id}`)).status).toBe(404);
        expect((await bench.api('GET', 'floating-ips?limit=200')).text).not.toContain(fip.id);
        expect((await kit.portOf(port.id))!.floating_ip).toBeNull();
        expect(await kit.held(fip.id)).toBe(true);
        await agent.answer(kit.vpc.id, 'active');
      }
      await eventually('the address is back in the pool', async () => !(await kit.held(fip.id)));
      await eventually(
        'the charge has ended',
        async () => bench.billing.spanOf(`floating_ip:${fip.id}`)?.closed,
      );
      await kit.freePort(port.id);
    }
  });

  it('a region that never answers: error after the deadline, on the way in and on the way out, and its later word counts', async () => {
    const lives = async (id: string, state: string) => {
      const [life] = await bench.sql<{ state: string }>('select state from lifecycle where id = $1', [id]);
      return life?.state === state;
    };
    const late = async (id: string, state: string, minutes: number) => {
      await eventually(`it is ${state}`, () => lives(id, state));
      await bench.sql(`update lifecycle set entered_at = now() - make_interval(mins => $2) where id = $1`, [
        id,
        minutes,
      ]);
      await bench.sql('update lifecycle set run_at = now(), wakes = wakes + 1 where id = $1', [id]);
    };
    const [fip, port] = [await bench.address(), await kit.nic()];
    await kit.attach(fip.id, port.id);
    await late(fip.id, 'attaching', 3);
    expect(await kit.reach(fip.id, 'error')).toMatchObject({
      last_error: expect.stringContaining('the region has not reported it'),
      vm_interface_id: port.id,
    });
    await kit.detach(fip.id);
    await late(fip.id, 'detaching', 6);
    expect(await kit.reach(fip.id, 'error')).toMatchObject({
      status: 'error',
      vm_interface_id: null,
      last_error: expect.stringContaining('detaching did not finish'),
    });
    expect(await kit.attach(fip.id, port.id)).toMatchObject({ status: 409 });
    expect((await kit.detach(fip.id)).body.status).toBe('error');
    await agent.answer(kit.vpc.id, 'active');
    await eventually('available', async () => {
      return (await bench.api('GET', `floating-ips/${fip.id}`)).body.status === 'available';
    });
    await kit.attach(fip.id, port.id);
    await kit.detach(fip.id);
    expect((await kit.release(fip.id)).status).toBe(204);
    await late(fip.id, 'releasing', 6);
    await eventually('it is stuck', () => lives(fip.id, 'stuck'));
    expect(await kit.held(fip.id)).toBe(true);
    await agent.answer(kit.vpc.id, 'active');
    await eventually('the address is back in the pool', async () => !(await kit.held(fip.id)));
  });

  it('an address that is still in a VPC that is deleted is free when the VPC is gone', async () => {
    const { fip, port } = await kit.attached();
    await kit.detach(fip.id);
    await kit.freePort(port.id);
    expect((await bench.api('DELETE', `vpcs/${kit.vpc.id}`)).status).toBe(204);
    expect((await bench.api('GET', `floating-ips/${fip.id}`)).body.status).toBe('detaching');
    await agent.answer(kit.vpc.id, 'gone');
    expect((await kit.reach(fip.id, 'available')).status).toBe('available');
  });
});

describe('what cannot be attached, detached or released', () => {
  it('404 for addresses that are absent, malformed or foreign; 404 naming the field for interfaces', async () => {
    const [fip, port] = [await bench.address(), await kit.nic()];
    const answers = [];
    for (const id of [randomUUID(), 'no-id'])
      answers.push(await kit.attach(id, port.id), await kit.detach(id));
    answers.push(await kit.attach(fip.id, port.id, bench.stranger), await kit.detach(fip.id, bench.stranger));
    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
    expect(answers[0]).toMatchObject({ status: 404, body: { error: { code: 'not_found' } } });

    const foreign = await bench.vpc({}, bench.stranger);
    const theirs = (await bench.claim({ vpc_id: foreign.id, account_id: bench.stranger.account_id })).body;
    const replica = await kit.nic({ kind: 'replica' });
    for (const id of [randomUUID(), theirs.id, replica.id])
      expect(await kit.attach(fip.id, id)).toMatchObject({
        status: 404,
        body: { error: { message: 'vm_interface_id: not found' } },
      });
    for (const id of ['x', null, 7, undefined])
      expect(await kit.attach(fip.id, id)).toMatchObject({
        status: 422,
        body: { error: { code: 'validation_error' } },
      });
  });

  it('403 for a machine that the key may not read, by machine and by project', async () => {
    const project_id = randomUUID();
    const [fip, port] = [await bench.address(), await kit.nic({ project_id })];
    const allow = (...resources: string[]) => ({
      ...bench.key,
      policy: [
        { effect: 'allow' as const, actions: ['floating_ip:*'], resources: ['*'] },
        ...(resources.length > 0 ? [{ effect: 'allow' as const, actions: ['vm:read'], resources }] : []),
      ],
    });
    expect(await kit.attach(fip.id, port.id, allow())).toMatchObject({
      status: 403,
      body: { error: { message: expect.stringContaining('vm:read') } },
    });
    expect((await kit.attach(fip.id, port.id, allow(`project:${randomUUID()}`))).status).toBe(403);
    expect((await kit.attach(fip.id, port.id, allow(`project:${project_id}`))).status).toBe(200);
  });

  it('400 for an interface in another region', async () => {
    const far = await bench.vpc({ cluster_id: otherRegion });
    const port = (await bench.claim({ vpc_id: far.id })).body;
    expect(await kit.attach((await bench.address()).id, port.id)).toMatchObject({
      status: 400,
      body: { error: { code: 'floating_ip_region_mismatch' } },
    });
  });

  it('409 unless it is available, and for an interface that has one; a free interface takes another while one goes', async () => {
    const { fip, port } = await kit.attached();
    const second = await bench.address();
    const refused = (code: string) => ({ status: 409, body: { error: { code } } });
    expect(await kit.attach(fip.id, port.id)).toMatchObject(refused('floating_ip_not_available'));
    expect(await kit.attach(fip.id, (await kit.nic()).id)).toMatchObject(
      refused('floating_ip_not_available'),
    );
    expect(await kit.attach(second.id, port.id)).toMatchObject(refused('interface_has_floating_ip'));
    expect(await kit.release(fip.id)).toMatchObject(refused('floating_ip_attached'));
    await kit.detach(fip.id);
    expect(await kit.attach(fip.id, port.id)).toMatchObject(refused('floating_ip_not_available'));
    expect((await kit.attach(second.id, port.id)).status).toBe(200);
    expect(await kit.wanted()).toMatchObject([{ id: second.id, port_id: port.id }]);
    await agent.answer(kit.vpc.id, 'active');
    expect((await kit.reach(fip.id, 'available')).status).toBe('available');
    expect((await kit.reach(second.id, 'attached')).status).toBe('attached');
  });

  it('a detach of what is attached to nothing answers it as it is, as often as it comes', async () => {
    const fip = await bench.address();
    expect(await kit.detach(fip.id)).toMatchObject({ status: 200, body: fip });
    const { fip: other } = await kit.attached();
    const answers = [await kit.detach(other.id), await kit.detach(other.id)];
    expect(answers.map(({ status, body }) => [status, body.status])).toEqual(
      Array(2).fill([200, 'detaching']),
    );
  });

  it('a released address that is on its way out is 404 to everything; the name of a wait is checked', async () => {
    const { fip } = await kit.attached();
    await kit.detach(fip.id);
    expect((await kit.release(fip.id)).status).toBe(204);
    for (const answer of [
      await kit.release(fip.id),
      await kit.detach(fip.id),
      await kit.attach(fip.id, randomUUID()),
    ])
      expect(answer.status).toBe(404);
    const one = await bench.address();
    for (const query of ['wait=done', 'wait=attached&timeout=0', 'timeout=61'])
      expect((await bench.api('GET', `floating-ips/${one.id}?${query}`)).status).toBe(422);
    expect((await bench.api('GET', `floating-ips/${one.id}?wait=attached&timeout=1`)).body.status).toBe(
      'available',
    );
  });

  it('a repeat under one Idempotency-Key answers the first', async () => {
    const [fip, port] = [await bench.address(), await kit.nic()];
    const headers = { 'idempotency-key': randomUUID() };
    const first = await kit.attach(fip.id, port.id, bench.key, headers);
    await agent.answer(kit.vpc.id, 'active');
    await kit.reach(fip.id, 'attached');
    expect(await kit.attach(fip.id, port.id, bench.key, headers)).toMatchObject({
      status: 200,
      text: first.text,
    });
  });
});
