import { randomUUID } from 'node:crypto';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, eventually, FakeAgent, otherRegion } from '../../test/harness.js';

let bench: Bench;
let agent: FakeAgent;
beforeAll(async () => {
  bench = await Bench.start();
});
beforeEach(() => {
  agent = new FakeAgent(bench);
});
afterAll(async () => {
  await bench?.close();
  await (await sharedPostgres()).stop();
});

const status = async (id: string) => {
  const { body } = await bench.api('GET', `vpcs/${id}`);
  return [body.status, body.status_reason];
};
const reaches = (id: string, word: string) =>
  bench
    .api('GET', `vpcs/${id}?wait=${word}&timeout=20`)
    .then(({ body }) => [body.status, body.status_reason]);
const rows = (id: string) => bench.sql('select 1 from vpc where id = $1', [id]);

describe('the life of a VPC, with a region that answers', () => {
  it('pending → active as reported; deleted → gone in the region → no row is left', async () => {
    const vpc = await bench.vpc();
    await agent.poll();
    expect(agent.wanted.get(vpc.id)).toEqual({
      kind: 'vpc',
      id: vpc.id,
      generation: 1,
      gone: false,
      spec: {
        account_id: bench.account,
        subnet: vpc.subnet,
        gateway: vpc.subnet.replace(/0\/24$/, '1'),
        ports: [],
        floating_ips: [],
        nat: null,
      },
    });
    await agent.answer(vpc.id, 'active');
    expect(await reaches(vpc.id, 'active')).toEqual(['active', null]);
    expect((await bench.api('DELETE', `vpcs/${vpc.id}`)).status).toBe(204);
    const item = await agent.answer(vpc.id, 'active');
    expect(item).toMatchObject({ gone: true, generation: 2 });
    expect(await rows(vpc.id)).toHaveLength(1);
    await agent.answer(vpc.id, 'gone');
    await eventually('the row is gone', async () => (await rows(vpc.id)).length === 0);
  });

  it('error with the region’s reason, another reason when it changes, and out of it again', async () => {
    const vpc = await bench.vpc();
    await agent.answer(vpc.id, 'error', 'no bridge');
    expect(await reaches(vpc.id, 'error')).toEqual(['error', 'no bridge']);
    await agent.answer(vpc.id, 'error', 'no rules');
    await eventually('the new reason shows', async () => (await status(vpc.id))[1] === 'no rules');
    await agent.answer(vpc.id, 'active');
    expect(
      await eventually('active', async () => (await status(vpc.id))[0] === 'active' && status(vpc.id)),
    ).toEqual(['active', null]);
    await agent.answer(vpc.id, 'error', 'lost it');
    expect(await reaches(vpc.id, 'error')).toEqual(['error', 'lost it']);
    expect((await bench.api('DELETE', `vpcs/${vpc.id}`)).status).toBe(204);
    await agent.answer(vpc.id, 'gone');
    await eventually('the row is gone', async () => (await rows(vpc.id)).length === 0);
  });

  it('a region that never answers: error with the reason after the deadline, and deletable', async () => {
    const vpc = await bench.vpc();
    await bench.sql("update lifecycle set entered_at = now() - interval '3 minutes' where id = $1", [vpc.id]);
    await bench.sql('update lifecycle set run_at = now(), wakes = wakes + 1 where id = $1', [vpc.id]);
    expect(await reaches(vpc.id, 'error')).toEqual([
      'error',
      expect.stringContaining('the region has not reported it'),
    ]);
    // Its later word leads out of it.
    await agent.answer(vpc.id, 'active');
    expect(await eventually('active', async () => (await status(vpc.id))[0] === 'active')).toBe(true);
  });

  it('deleted before anything was made', async () => {
    const vpc = await bench.vpc();
    await bench.api('DELETE', `vpcs/${vpc.id}`);
    await agent.answer(vpc.id, 'gone');
    await eventually('the row is gone', async () => (await rows(vpc.id)).length === 0);
  });
});

describe('what a region is told', () => {
  it('a port changes its VPC’s generation, and only that VPC is in the delta', async () => {
    const vpc = await bench.vpc();
    await bench.vpc();
    await agent.poll();
    const port = (await bench.claim({ vpc_id: vpc.id })).body;
    const { full, items } = await agent.poll();
    expect([full, items.map(({ id }) => id)]).toEqual([false, [vpc.id]]);
    const { id, mac, address } = port;
    expect(items[0]).toMatchObject({ generation: 2, spec: { ports: [{ id, mac, address }] } });
    await bench.internal('POST', 'ports/release', { operation_id: id, account_id: bench.account });
    expect((await agent.poll()).items).toMatchObject([{ generation: 3, spec: { ports: [] } }]);
    // An observation of what was wanted before says nothing of now, and nothing bad either.
    expect(await agent.observe({ id: vpc.id, generation: 2 }, 'active')).toBe(1);
    expect(await agent.observe({ id: vpc.id, generation: 1 }, 'error')).toBe(0);
    expect(await agent.observe({ id: vpc.id, generation: 4 }, 'error')).toBe(0);
  });

  it('waits for news, answers as soon as there are some; a rename is none', async () => {
    const first = await bench.vpc();
    await agent.poll();
    const asked = agent.poll(20);
    await bench.api('PATCH', `vpcs/${first.id}`, { name: `renamed ${randomUUID()}` });
    const vpc = await bench.vpc();
    expect((await asked).items.map(({ id }) => id)).toEqual([vpc.id]);
  });

  it('an unknown cursor gets everything; another region sees and reports nothing of this one', async () => {
    const vpc = await bench.vpc();
    const far = new FakeAgent(bench, { kind: 'agent', region_id: otherRegion, epoch: 1 });
    await far.poll();
    expect(far.wanted.has(vpc.id)).toBe(false);
    expect(await far.observe({ id: vpc.id, generation: 1 }, 'active')).toBe(0);
    agent.cursor = 'ffffffff.7';
    expect(await agent.poll()).toMatchObject({ full: true });
    expect(agent.wanted.has(vpc.id)).toBe(true);
  });

  it('facts that are not as the protocol says are not understood, and refused neither', async () => {
    const vpc = await bench.activeVpc(agent);
    const port = (await bench.claim({ vpc_id: vpc.id })).body;
    const fip = await bench.address();
    await bench.api('POST', `floating-ips/${fip.id}/attach`, { vm_interface_id: port.id });
    await agent.poll();
    const item = agent.wanted.get(vpc.id)!;
    const seen = async () =>
      (
        await bench.sql<{ observed_facts: unknown }>('select observed_facts from vpc where id = $1', [vpc.id])
      )[0]!.observed_facts;
    for (const facts of [{}, { floating_ips: 'all' }, { faults: { [fip.id]: 'x' } }]) {
      expect(await agent.observe(item, 'active', { facts })).toBe(1);
      expect(await seen()).toBeNull();
    }
    expect((await bench.api('GET', `floating-ips/${fip.id}`)).body.status).toBe('attaching');
    const odd = { floating_ips: [7, 'x', fip.id.toUpperCase()], faults: { x: 'y', [randomUUID()]: 7 } };
    expect(await agent.observe(item, 'active', { facts: odd })).toBe(1);
    expect(await seen()).toEqual({ floating_ips: [fip.id], faults: {} });
    const reached = await bench.api('GET', `floating-ips/${fip.id}?wait=attached&timeout=20`);
    expect(reached.body.status).toBe('attached');
  });

  it('409 stale_epoch for an agent that was replaced, whatever it asks', async () => {
    const older = new FakeAgent(bench, { kind: 'agent', region_id: randomUUID(), epoch: 1 });
    await older.poll();
    await new FakeAgent(bench, { ...older.identity, epoch: 2 }).poll();
    for (const answer of [
      await older.call('GET', 'wanted'),
      await older.call('POST', 'observed', { items: [] }),
    ])
      expect(answer).toMatchObject({ status: 409, body: { error: { code: 'stale_epoch' } } });
  });

  it('401 for a key; 422 naming what is wrong in an observation', async () => {
    const path = '/agent/v1/networking/wanted';
    expect((await bench.nebo.request('networking', { path, as: bench.key })).status).toBe(401);
    const good = {
      kind: 'vpc',
      id: randomUUID(),
      generation: 1,
      state: 'active',
      at: new Date().toISOString(),
    };
    for (const [bad, loc] of [
      [{ ...good, kind: 'vm' }, ['body', 'items', 0, 'kind']],
      [{ ...good, id: 'x' }, ['body', 'items', 0, 'id']],
      [{ ...good, generation: 1.5 }, ['body', 'items', 0, 'generation']],
      [{ ...good, state: 'ready' }, ['body', 'items', 0, 'state']],
      [{ ...good, reason: 7 }, ['body', 'items', 0, 'reason']],
      [{ ...good, at: 'now' }, ['body', 'items', 0, 'at']],
      ['x', ['body', 'items', 0]],
    ] as const)
      expect(await agent.call('POST', 'observed', { items: [bad] })).toMatchObject({
        status: 422,
        body: { detail: [{ loc }] },
      });
    expect((await agent.call('POST', 'observed', {})).status).toBe(422);
  });
});
