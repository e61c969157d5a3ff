import { randomUUID } from 'node:crypto';
import { startServices } from '@nebo/service-kit/testing';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, eventually, FakeAgent } from '../../test/harness.js';
import { compute } from '../compute.module.js';

const month = 240_000_000_000n;

describe('the life of a machine', () => {
  let bench: Bench;
  let agent: FakeAgent;
  beforeAll(async () => {
    bench = await Bench.start();
    agent = new FakeAgent(bench);
  });
  afterEach(() => {
    Object.assign(bench.billing, { captureAway: false, expired: false, away: false });
    Object.assign(bench.networking, { away: false, refuse: null });
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  const phase = async (id: string) =>
    (await bench.sql<{ phase: string }>('select phase from vm where id = $1', [id]))[0]?.phase;
  const reaches = (id: string, wanted: string | undefined) =>
    eventually(`${id} in ${wanted}`, async () => (await phase(id)) === wanted);
  const paidBack = (id: string) =>
    eventually('the money back', () => Promise.resolve(bench.billing.charged(id) === 0n));
  /** As if its deadline had passed. */
  const miss = (id: string) =>
    bench.sql(
      `update lifecycle set entered_at = now() - interval '1 hour', deadline_at = now() - interval '1 s', run_at = now(),
         wakes = wakes + 1 where id = $1`,
      [id],
    );

  it('nothing is wanted of the region before it is paid; billing that is away for a while delays it', async () => {
    bench.billing.captureAway = true;
    const vm = await bench.vm();
    await eventually('asked', async () =>
      bench.billing.target.calls.some(
        ({ path, body }) =>
          path.endsWith('/capture') && (body as { operation_id: string }).operation_id === vm.id,
      ),
    );
    await agent.poll();
    expect(agent.wanted.has(vm.id)).toBe(false);
    expect((await bench.api('GET', `vms/${vm.id}`)).body).toMatchObject({
      status: 'pending',
      paid_until: null,
    });
    bench.billing.captureAway = false;
    await agent.run(vm.id);
    expect(bench.billing.charged(vm.id)).toBe(month);
  });

  it('a reservation that expired before it was charged: error with a reason, nothing charged, DELETE leaves nothing', async () => {
    bench.billing.expired = true;
    const vm = await bench.vm();
    const seen = await bench.reach(vm.id, 'error');
    expect(seen.status_reason).toMatch(/nothing was charged/);
    expect(await bench.api('DELETE', `vms/${vm.id}`)).toMatchObject({
      status: 202,
      body: { status: 'deleted' },
    });
    expect((await bench.api('GET', `vms/${vm.id}`)).status).toBe(404);
    await reaches(vm.id, undefined);
    expect(await bench.remains(vm.id)).toEqual({ rows: 0, ports: 0, charged: 0n });
  });

  it('a network without addresses: error with a reason, the money back', async () => {
    bench.networking.refuse = 'subnet_full';
    const vm = await bench.vm();
    expect(await bench.reach(vm.id, 'error')).toMatchObject({
      status_reason: expect.stringContaining('subnet_full'),
      paid_until: null,
    });
    await paidBack(vm.id);
  });

  it('networking that is away delays it; the claim is made once', async () => {
    bench.networking.away = true;
    const vm = await bench.vm();
    await reaches(vm.id, 'attaching');
    bench.networking.away = false;
    await agent.run(vm.id);
    expect((await bench.remains(vm.id)).ports).toBe(1);
  });

  it('what the region cannot make: error with its reason, the money back once, and the region drops its remains', async () => {
    const vm = await bench.vm();
    await agent.observe(await agent.see(vm.id), 'failed', { reason: 'no such image' });
    expect(await bench.reach(vm.id, 'error')).toMatchObject({
      status_reason: 'no such image',
      paid_until: null,
    });
    const gone = await agent.see(vm.id, 2);
    expect(gone.gone).toBe(true);
    await paidBack(vm.id);
    expect((await bench.api('DELETE', `vms/${vm.id}`)).body.status).toBe('deleting');
    await agent.observe(gone, 'gone');
    await reaches(vm.id, undefined);
    expect(await bench.remains(vm.id)).toEqual({ rows: 0, ports: 0, charged: 0n });
  });

  it('a region that never answers: the deadline is an error with a reason, the money goes back', async () => {
    const vm = await bench.vm();
    await reaches(vm.id, 'provisioning');
    await miss(vm.id);
    expect((await bench.reach(vm.id, 'error')).status_reason).toMatch(
      /did not finish in 20 min: no region has begun it/,
    );
    await paidBack(vm.id);
    // No agent was ever told of it.
    expect((await bench.api('DELETE', `vms/${vm.id}`)).body.status).toBe('deleted');
    await reaches(vm.id, undefined);
  });

  it('DELETE before the region heard of it: gone when the call returns, the name free, the money back', async () => {
    bench.networking.away = true;
    const name = `early ${randomUUID()}`;
    const vm = await bench.vm({ name });
    await reaches(vm.id, 'attaching');
    expect((await bench.api('DELETE', `vms/${vm.id}`)).body).toEqual({ status: 'deleted' });
    expect((await bench.api('GET', `vms/${vm.id}`)).status).toBe(404);
    expect((await bench.api('GET', 'vms')).body.data.map(({ id }: { id: string }) => id)).not.toContain(
      vm.id,
    );
    expect((await bench.internal('GET', `owners/vm/${vm.id}`)).status).toBe(404);
    expect((await bench.create({ name })).status).toBe(201);
    bench.networking.away = false;
    await reaches(vm.id, undefined);
    expect(await bench.remains(vm.id)).toEqual({ rows: 0, ports: 0, charged: 0n });
  });

  it('DELETE while it is made: the region is told to drop it, and the money goes back since it never ran', async () => {
    const vm = await bench.vm();
    await agent.observe(await agent.see(vm.id), 'creating');
    expect((await bench.api('DELETE', `vms/${vm.id}`)).body).toEqual({ status: 'deleting' });
    // A report that was under way changes nothing any more.
    await agent.observe({ id: vm.id, generation: 1 }, 'running');
    expect((await bench.api('GET', `vms/${vm.id}`)).body.status).toBe('deleting');
    await agent.observe(await agent.see(vm.id, 2), 'gone');
    await reaches(vm.id, undefined);
    expect(await bench.remains(vm.id)).toEqual({ rows: 0, ports: 0, charged: 0n });
  });

  it('a region that is late with a stop: the status stays true and says why; its report counts whenever it comes', async () => {
    const { id } = await agent.run((await bench.vm()).id);
    await bench.api('POST', `vms/${id}/stop`);
    await reaches(id, 'changing');
    await miss(id);
    await reaches(id, 'overdue');
    expect((await bench.api('GET', `vms/${id}`)).body).toMatchObject({
      status: 'stopping',
      status_reason: 'changing did not finish in 5 min: the region has not reported it',
    });
    await agent.observe(await agent.see(id, 2), 'stopped');
    expect(await bench.reach(id, 'stopped')).toMatchObject({ status_reason: null });
  });

  it('a region that is late with a removal: it keeps its address until the region confirms', async () => {
    const { id } = await agent.run((await bench.vm()).id);
    await bench.api('DELETE', `vms/${id}`);
    await reaches(id, 'removing');
    await miss(id);
    await reaches(id, 'remains');
    expect((await bench.api('GET', `vms/${id}`)).body).toMatchObject({
      status: 'deleting',
      status_reason: expect.stringContaining('the region has not confirmed the removal'),
    });
    expect((await bench.remains(id)).ports).toBe(1);
    await agent.observe(await agent.see(id, 2), 'gone');
    await reaches(id, undefined);
  });

  it('goes on in another process from every phase, charged once', async () => {
    bench.billing.captureAway = true;
    const ordered = (await bench.vm()).id as string;
    bench.billing.captureAway = false;
    bench.networking.away = true;
    const attaching = (await bench.vm()).id as string;
    await reaches(attaching, 'attaching');
    const provisioning = (await bench.vm()).id as string;
    await bench.nebo.close();
    bench.networking.away = false;
    bench.nebo = await startServices({ databaseUrl: bench.databaseUrl, definitions: [compute] });
    bench.nebo.runtime.targets.set('identity-billing', bench.billing.target);
    bench.nebo.runtime.targets.set('networking', bench.networking.target);
    agent = new FakeAgent(bench);
    for (const id of [ordered, attaching, provisioning]) {
      await agent.run(id);
      expect(await bench.remains(id)).toMatchObject({ ports: 1, charged: month });
    }
  });
});
