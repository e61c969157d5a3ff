import { randomUUID } from 'node:crypto';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, eventually, FakeAgent } from '../../test/harness.js';

const hour = 400_000_000n;

describe('ephemeral machines', () => {
  let bench: Bench;
  let agent: FakeAgent;
  beforeAll(async () => {
    bench = await Bench.start();
    agent = new FakeAgent(bench);
  });
  afterEach(() => {
    Object.assign(bench.billing, { available: 10n ** 15n, away: false, spansAway: false, standing: [] });
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  const order = (more: Record<string, unknown> = {}) => bench.create({ ephemeral: true, ...more });
  const span = (id: string) => bench.billing.spans.get(id);
  const spanOpen = (id: string) => eventually('a span', () => Promise.resolve(span(id)));
  const spanClosed = (id: string) =>
    eventually('an end of the span', () => Promise.resolve(span(id)?.ended_at));
  const gone = (id: string) =>
    eventually('gone', async () => (await bench.remains(id)).rows === 0 && (await bench.remains(id)));

  it('one span from the creation to the moment the deletion is asked for, whatever the region does after that', async () => {
    const created = (await order({ disk_size_gb: 15 })).body;
    expect(created).toMatchObject({ ephemeral: true, auto_renew: false, paid_until: null });
    expect(await agent.run(created.id)).toMatchObject({
      status: 'active',
      ephemeral: true,
      paid_until: null,
    });
    expect(await spanOpen(created.id)).toMatchObject({
      account_id: bench.account,
      amount_per_hour: hour.toString(),
      amount_per_month: (5n * 9_000_000_000n).toString(),
      started_at: created.created_at,
      prices: [
        { id: 'vm.nano.hour', version: 7 },
        { id: 'disk.gb.month', version: 7 },
      ],
      ended_at: null,
    });
    // The hold of the first hour is given back: the span charges from now on.
    await eventually('nothing held', () => Promise.resolve(bench.billing.held() === 0n));
    const before = Date.now();
    expect((await bench.api('DELETE', `vms/${created.id}`)).body).toEqual({ status: 'deleting' });
    const after = Date.now();
    const ended = Date.parse((await spanClosed(created.id))!);
    expect(ended).toBeGreaterThanOrEqual(before - 1_000);
    expect(ended).toBeLessThanOrEqual(after + 1_000);
    expect((await bench.api('GET', `vms/${created.id}`)).body.status).toBe('deleting');
    await bench.api('DELETE', `vms/${created.id}`);
    await agent.observe(await agent.see(created.id, 2), 'gone');
    expect(await gone(created.id)).toEqual({ rows: 0, ports: 0, charged: 0n });
    expect(Date.parse(span(created.id)!.ended_at!)).toBe(ended);
    expect(await bench.sql('select 1 from vm_span where vm_id = $1', [created.id])).toEqual([]);
  });

  it('402 at once when not even an hour is there, with nothing made; two at once on one hour: one', async () => {
    bench.billing.available = hour - 1n;
    expect(await order()).toMatchObject({ status: 402, body: { error: { code: 'insufficient_balance' } } });
    bench.billing.available = hour;
    bench.billing.away = true;
    expect(await order()).toMatchObject({ status: 503, body: { error: { code: 'billing_unavailable' } } });
    // The hour is held until the span stands.
    Object.assign(bench.billing, { away: false, spansAway: true });
    const answers = await Promise.all([order(), order()]);
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 402]);
  });

  it('billing that is away after the order delays the span, and loses nothing of it', async () => {
    const { id, created_at } = (await order()).body;
    bench.billing.away = true;
    await agent.run(id);
    await bench.api('DELETE', `vms/${id}`);
    bench.billing.away = false;
    await eventually('both said', () => Promise.resolve(span(id)?.ended_at), 60_000);
    expect(span(id)!.started_at).toBe(created_at);
    expect(Date.parse(span(id)!.ended_at!)).toBeGreaterThan(Date.parse(created_at));
  });

  it('what the region cannot make costs nothing', async () => {
    const { id } = (await order()).body;
    await agent.observe(await agent.see(id), 'failed', { reason: 'no such image' });
    expect(await bench.reach(id, 'error')).toMatchObject({ status_reason: 'no such image' });
    await spanClosed(id);
    expect(span(id)!.ended_at).toBe(span(id)!.started_at);
    await agent.observe(await agent.see(id, 2), 'gone');
    await eventually('its addresses back', async () => (await bench.remains(id)).ports === 0);
    expect((await bench.api('DELETE', `vms/${id}`)).status).toBe(202);
    await gone(id);
  });

  it('is deleted from every state: before the region heard of it, while it is made', async () => {
    bench.networking.away = true;
    const early = (await order()).body.id as string;
    expect((await bench.api('DELETE', `vms/${early}`)).body).toEqual({ status: 'deleted' });
    bench.networking.away = false;
    await spanClosed(early);
    await gone(early);
    const made = (await order()).body.id as string;
    await agent.observe(await agent.see(made), 'creating');
    expect((await bench.api('DELETE', `vms/${made}`)).body).toEqual({ status: 'deleting' });
    await spanClosed(made);
  });

  it('has no period and no other size: 409 for a quote and for a PATCH of its plan; its name may change', async () => {
    const { id } = await agent.run((await order()).body.id);
    const conflict = { status: 409, body: { error: { code: 'vm_ephemeral' } } };
    expect(await bench.api('POST', `vms/${id}/renewal-quote`)).toMatchObject(conflict);
    for (const body of [{ vm_plan_id: bench.plans['small'] }, { disk_size_gb: 20 }])
      expect(await bench.api('PATCH', `vms/${id}`, body)).toMatchObject(conflict);
    const name = `runner ${randomUUID()}`;
    expect((await bench.api('PATCH', `vms/${id}`, { name, auto_renew: true })).body).toMatchObject({
      name,
      auto_renew: false,
    });
  });
});
