import { randomUUID } from 'node:crypto';
import { startServices } from '@nebo/service-kit/testing';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, eventually, FakeAgent } from '../../test/harness.js';
import { restOf } from '../catalogue/prices.js';
import { compute } from '../compute.module.js';
import { ResizeLifecycle } from './resize.lifecycle.js';
import { VmResizes } from './vm-resizes.service.js';

const [nano, small, gb] = [240_000_000_000n, 690_000_000_000n, 9_000_000_000n];
const nanoSize = { vcpu: 1, memory_mb: 1_024, disk_gb: 10 };

describe('larger machines', () => {
  let bench: Bench;
  let agent: FakeAgent;
  beforeAll(async () => {
    bench = await Bench.start();
    agent = new FakeAgent(bench);
  });
  afterEach(async () => {
    Object.assign(bench.billing, { available: 10n ** 15n, away: false, captureAway: false, expired: false });
    await bench.internal('POST', `agents/${bench.region}/take-over`, { capacity: null });
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  const patch = (id: string, body: object) => bench.api('PATCH', `vms/${id}`, body);
  const read = async (id: string) => (await bench.api('GET', `vms/${id}`)).body;
  const resizes = (id: string) =>
    bench.sql<{ id: string; state: string }>(
      'select id, state from vm_resize where vm_id = $1 order by created_at',
      [id],
    );
  const charges = async (id: string) =>
    (await resizes(id)).map((row) => bench.billing.charged(row.id)).filter((amount) => amount > 0n);
  const ended = (id: string, state: string) =>
    eventually(`a resize ${state}`, async () => (await resizes(id)).at(-1)?.state === state);
  /** One that runs, half of its paid time ago, so that prices are easy to say. */
  const halfway = async (more: Record<string, unknown> = {}): Promise<string> => {
    const { id } = await bench.vm(more);
    await agent.observe(await agent.see(id), 'running', { facts: nanoSize });
    await bench.reach(id, 'active');
    await bench.sql(
      `update vm set paid_from = now() - interval '15 days', paid_until = now() + interval '15 days' where id = $1`,
      [id],
    );
    return id;
  };
  /** What half of the period costs, to a few seconds of the test's own time. */
  const expectHalf = (charged: bigint, whole: bigint) => {
    expect(charged).toBeLessThanOrEqual(whole / 2n + 1n);
    expect(charged).toBeGreaterThan((whole * 4_999n) / 10_000n);
  };
  const conflict = (code: string) => ({ status: 409, body: { error: { code } } });

  it('the rest of a period is its share of the time that is left, rounded up once', () => {
    const [from, until] = [new Date('2026-03-01T00:00:00Z'), new Date('2026-03-31T00:00:00Z')];
    expect(restOf(30n, from, until, from)).toBe(30n);
    expect(restOf(30n, from, until, new Date('2026-02-01T00:00:00Z'))).toBe(30n);
    expect(restOf(30n, from, until, new Date('2026-03-11T00:00:00Z'))).toBe(20n);
    expect(restOf(30n, from, until, new Date('2026-03-30T23:59:59.999Z'))).toBe(1n);
    expect(restOf(30n, from, until, until)).toBe(0n);
    expect(restOf(0n, from, until, from)).toBe(0n);
  });

  it('a disk grows at once: paid for the rest of the period, wanted of the region, and the machine stays active', async () => {
    const id = await halfway();
    const answer = await patch(id, { disk_size_gb: 30 });
    expect(answer).toMatchObject({ status: 200, body: { disk_size: 30, vcpu: 1, status: 'active' } });
    expect(answer.body.status_reason).toMatch(/has 10 GB and is being enlarged/);
    expectHalf((await charges(id))[0]!, 20n * gb);
    const item = await agent.see(id, 2);
    expect(item.spec).toMatchObject({ disk_gb: 30, vcpu: 1, memory_mb: 1_024, power: 'running', boot: 1 });
    await agent.observe(item, 'running', { facts: { ...nanoSize, disk_gb: 30 } });
    await ended(id, 'done');
    expect(await read(id)).toMatchObject({ status: 'active', status_reason: null, disk_size: 30 });
    // The next period costs the new size.
    expect((await bench.api('POST', `vms/${id}/renewal-quote`)).body.amount).toBe('420.00');
    // A repeat asks for what is there.
    expect((await patch(id, { disk_size_gb: 30 })).status).toBe(200);
    expect(await resizes(id)).toHaveLength(1);
  });

  it('a larger plan brings its own disk; processors and memory count from the next start, and the reason says so', async () => {
    const id = await halfway();
    const name = `larger ${randomUUID()}`;
    expect(
      (await patch(id, { vm_plan_id: bench.plans['small'], name, auto_renew: false })).body,
    ).toMatchObject({
      name,
      auto_renew: false,
      vm_plan_id: bench.plans['small'],
      vcpu: 2,
      mem: 2_048,
      disk_size: 20,
    });
    expectHalf((await charges(id))[0]!, small - nano);
    const item = await agent.see(id, 2);
    await agent.observe(item, 'running', { facts: { ...nanoSize, disk_gb: 20 } });
    await ended(id, 'done');
    expect(await read(id)).toMatchObject({
      status: 'active',
      status_reason: 'It runs with 1 processors and 1024 MB until its next start.',
    });
    await bench.api('POST', `vms/${id}/restart`);
    const again = await agent.see(id, 3);
    expect(again.spec).toMatchObject({ vcpu: 2, memory_mb: 2_048, boot: 2 });
    await agent.observe(again, 'running', { facts: { vcpu: 2, memory_mb: 2_048, disk_gb: 20 } });
    expect(await bench.reach(id, 'active')).toMatchObject({ status_reason: null });
  });

  it('402 before anything is changed, 503 while billing is away; not even the name is changed then', async () => {
    const id = await halfway();
    const { name } = await read(id);
    bench.billing.available = 1_000n;
    const body = { disk_size_gb: 20, name: `poor ${randomUUID()}` };
    expect(await patch(id, body)).toMatchObject({
      status: 402,
      body: { error: { code: 'insufficient_balance' } },
    });
    bench.billing.away = true;
    expect(await patch(id, body)).toMatchObject({
      status: 503,
      body: { error: { code: 'billing_unavailable' } },
    });
    expect(await read(id)).toMatchObject({ name, disk_size: 10 });
    expect(await resizes(id)).toEqual([]);
  });

  it('422 for less than there is or more than the plan has, saying what is allowed; 404 for an unknown plan', async () => {
    const id = await halfway({ disk_size_gb: 15 });
    const large = await halfway({ vm_plan_id: bench.plans['small'] });
    for (const [vm, body, field, words] of [
      [id, { disk_size_gb: 14 }, 'disk_size_gb', /15 to 50 GB/],
      [id, { disk_size_gb: 51 }, 'disk_size_gb', /15 to 50 GB/],
      [large, { vm_plan_id: bench.plans['nano'] }, 'vm_plan_id', /at least 2 processors and 2048 MB/],
      [id, { disk_size_gb: 0 }, 'disk_size_gb', /./],
      [id, { vm_plan_id: 'small' }, 'vm_plan_id', /./],
    ] as const) {
      const answer = await patch(vm, body);
      expect(answer).toMatchObject({ status: 422, body: { detail: [{ loc: ['body', field] }] } });
      expect(answer.body.detail[0].msg).toMatch(words);
    }
    expect(await patch(id, { vm_plan_id: randomUUID() })).toMatchObject({
      status: 404,
      body: { error: { message: 'vm_plan_id: not found' } },
    });
    expect((await bench.api('PATCH', `vms/${id}`, { disk_size_gb: 20 }, bench.stranger)).status).toBe(404);
  });

  it('409 before it is made and while it is deleted', async () => {
    const vm = await bench.vm();
    expect(await patch(vm.id, { disk_size_gb: 20 })).toMatchObject(conflict('vm_not_ready'));
    const id = await halfway();
    await bench.api('DELETE', `vms/${id}`);
    expect(await patch(id, { disk_size_gb: 20 })).toMatchObject(conflict('vm_deleting'));
    expect(await charges(id)).toEqual([]);
  });

  it('two at once: one is made and paid, the other is 409 and given back; another one waits for its end', async () => {
    const id = await halfway();
    bench.billing.together = 3;
    const answers = await Promise.all([20, 30, 40].map((disk_size_gb) => patch(id, { disk_size_gb })));
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409, 409]);
    expect(await patch(id, { disk_size_gb: 45 })).toMatchObject(conflict('vm_changing'));
    expect(await charges(id)).toHaveLength(1);
    await eventually('nothing held', () => Promise.resolve(bench.billing.held() === 0n));
    const item = await agent.see(id, 2);
    await agent.observe(item, 'running', { facts: { ...nanoSize, disk_gb: item.spec.disk_gb } });
    await ended(id, 'done');
    expect((await patch(id, { disk_size_gb: 45 })).status).toBe(200);
  });

  it('two larger machines at once on a balance for one: one', async () => {
    const ids = [await halfway(), await halfway()];
    bench.billing.available = 10n * gb;
    const answers = await Promise.all(ids.map((id) => patch(id, { disk_size_gb: 25 })));
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 402]);
  });

  it('a region that cannot: it is what it was, the money goes back, and it may be tried again', async () => {
    const id = await halfway();
    await patch(id, { vm_plan_id: bench.plans['small'] });
    const item = await agent.see(id, 2);
    await agent.observe(item, 'failed', { reason: 'no space on the disk', facts: nanoSize });
    await ended(id, 'undone');
    await eventually('paid back', async () => (await charges(id)).length === 0);
    const back = await agent.see(id, 3);
    expect(back.spec).toMatchObject({ vcpu: 1, memory_mb: 1_024, disk_gb: 10 });
    await agent.observe(back, 'running', { facts: nanoSize });
    expect(await bench.reach(id, 'active')).toMatchObject({ vm_plan_id: bench.plans['nano'], disk_size: 10 });
    expect((await patch(id, { disk_size_gb: 12 })).status).toBe(200);
  });

  it('503 no_capacity when the region has no room for it, with nothing charged; its growth counts there', async () => {
    const id = await halfway();
    const [{ used }] = (await bench.internal('GET', 'operator/regions')).body;
    await bench.internal('POST', `agents/${bench.region}/take-over`, {
      capacity: { vcpu: 1_000, memory_mb: used.memory_mb, disk_gb: used.disk_gb + 10 },
    });
    expect(await patch(id, { vm_plan_id: bench.plans['small'] })).toMatchObject({
      status: 503,
      body: { error: { code: 'no_capacity', message: expect.stringContaining('no memory') } },
    });
    expect((await patch(id, { disk_size_gb: 21 })).status).toBe(503);
    expect(await charges(id)).toEqual([]);
    expect((await patch(id, { disk_size_gb: 20 })).status).toBe(200);
    expect((await bench.internal('GET', 'operator/regions')).body[0].used.disk_gb).toBe(used.disk_gb + 10);
  });

  it('power actions and a DELETE while it is changed: never refused, never a 5xx; what the region has not made is paid back', async () => {
    const id = await halfway();
    await patch(id, { disk_size_gb: 30 });
    expect((await bench.api('POST', `vms/${id}/stop`)).body.status).toBe('stopping');
    const stop = await agent.see(id, 3);
    expect(stop.spec).toMatchObject({ power: 'stopped', disk_gb: 30 });
    await agent.observe(stop, 'stopped', { facts: { ...nanoSize, disk_gb: 30 } });
    await ended(id, 'done');
    expect(await charges(id)).toHaveLength(1);
    await bench.reach(id, 'stopped');

    const other = await halfway();
    const answers = await Promise.all([
      patch(other, { disk_size_gb: 30 }),
      bench.api('POST', `vms/${other}/restart`),
      bench.api('DELETE', `vms/${other}`),
      bench.api('POST', `vms/${other}/stop`),
      bench.api('DELETE', `vms/${other}`),
    ]);
    for (const { status } of answers) expect([200, 202, 409]).toContain(status);
    await eventually('paid back', async () => (await charges(other)).length === 0);
    await agent.observe(await agent.see(other, 2), 'gone');
    await agent.poll();
    await agent.observe(agent.wanted.get(other)!, 'gone');
    await eventually('no rows', async () => (await bench.remains(other)).rows === 0);
    expect((await bench.remains(other)).ports).toBe(0);
  });

  it('a payment that expires: 409, nothing charged or changed', async () => {
    const id = await halfway();
    bench.billing.expired = true;
    expect(await patch(id, { disk_size_gb: 20 })).toMatchObject(conflict('payment_expired'));
    expect(await read(id)).toMatchObject({ disk_size: 10 });
    await ended(id, 'undone');
  });

  it('a process that dies between the note and the payment: the next one pays it, once', async () => {
    const id = await halfway();
    bench.billing.captureAway = true;
    expect((await patch(id, { disk_size_gb: 30 })).status).toBe(503);
    expect(await read(id)).toMatchObject({ disk_size: 10 });
    await bench.nebo.close();
    bench.billing.captureAway = false;
    bench.nebo = await startServices({ databaseUrl: bench.databaseUrl, definitions: [compute] });
    bench.nebo.runtime.targets.set('identity-billing', bench.billing.target);
    bench.nebo.runtime.targets.set('networking', bench.networking.target);
    agent = new FakeAgent(bench);
    const item = await agent.see(id, 2);
    expect(item.spec.disk_gb).toBe(30);
    await agent.observe(item, 'running', { facts: { ...nanoSize, disk_gb: 30 } });
    await ended(id, 'done');
    expect(await charges(id)).toHaveLength(1);
  });

  it('paid at the moment when its life gives the money back: larger and paid, or neither', async () => {
    const id = await halfway();
    bench.billing.captureAway = true;
    expect((await patch(id, { disk_size_gb: 30 })).status).toBe(503);
    const [resize] = await bench.sql<{ id: string; vm_id: string; amount: string }>(
      'select id, account_id, vm_id, amount::text as amount from vm_resize where vm_id = $1',
      [id],
    );
    const { app } = bench.nebo.services.get('compute')!;
    // Between its look at the change and its writing: it asks whether there is room.
    const held = await bench.hold('select 1 from region_use where region_id = $1 for update', [bench.region]);
    bench.billing.captureAway = false;
    const paying = app.get<VmResizes>(VmResizes).pay(resize!.id);
    await held.waiters(1);
    const back = app.get<ResizeLifecycle>(ResizeLifecycle).refunding(resize as never);
    await Promise.race([back, held.waiters(2)]);
    await held.release();
    await Promise.all([paying, back]);
    const larger = (await read(id)).disk_size === 30;
    expect(bench.billing.charged(resize!.id) > 0n).toBe(larger);
    expect(larger).toBe(true);
  });

  it('409 while a renewal is under way: its price is that of the present size', async () => {
    const id = await halfway();
    await bench.sql(
      `insert into vm_renewal (id, account_id, vm_id, after, until)
       select gen_random_uuid(), account_id, id, paid_until, paid_until + interval '1 month' from vm where id = $1`,
      [id],
    );
    expect(await patch(id, { disk_size_gb: 30 })).toMatchObject(conflict('vm_changing'));
    expect(await charges(id)).toEqual([]);
  });

  it('a machine whose period is over pays nothing for the rest of it, and the new price from the next one', async () => {
    const id = await halfway({ auto_renew: false });
    await bench.sql(
      `with over as (update vm set paid_until = date_trunc('second', now()) - interval '1 s' where id = $1)
       update lifecycle set run_at = now(), wakes = wakes + 1 where id = $1 and kind = 'vm_period'`,
      [id],
    );
    await eventually('stopping', async () => (await read(id)).status === 'stopping');
    await agent.observe(await agent.see(id, 2), 'stopped', { facts: nanoSize });
    await bench.reach(id, 'stopped');
    expect((await patch(id, { disk_size_gb: 11 })).body).toMatchObject({ disk_size: 11, status: 'stopped' });
    expect(await charges(id)).toEqual([]);
    expect((await bench.api('POST', `vms/${id}/renewal-quote`)).body.amount).toBe('249.00');
  });
});
