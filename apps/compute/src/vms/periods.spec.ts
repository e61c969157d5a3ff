import { randomUUID } from 'node:crypto';
import { startServices } from '@nebo/service-kit/testing';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, eventually, FakeAgent } from '../../test/harness.js';
import { periodEnd } from '../catalogue/prices.js';
import { compute } from '../compute.module.js';

const month = 240_000_000_000n;

describe('paid periods', () => {
  let bench: Bench;
  let agent: FakeAgent;
  beforeAll(async () => {
    bench = await Bench.start();
    agent = new FakeAgent(bench);
  });
  afterEach(() => {
    Object.assign(bench.billing, { available: 10n ** 15n, away: false, captureAway: false });
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  const active = async (more: Record<string, unknown> = {}): Promise<string> =>
    (await agent.run((await bench.vm(more)).id)).id;
  /** As if the paid time were over. */
  const pass = (id: string) =>
    bench.sql(
      `with over as (update vm set paid_until = date_trunc('second', now()) - interval '1 s' where id = $1)
       update lifecycle set run_at = now(), wakes = wakes + 1 where id = $1 and kind = 'vm_period'`,
      [id],
    );
  const read = async (id: string) => (await bench.api('GET', `vms/${id}`)).body;
  const charges = (id: string) =>
    bench
      .sql<{ id: string }>('select id from vm_renewal where vm_id = $1', [id])
      .then((rows) => rows.map((row) => bench.billing.charged(row.id)).filter((amount) => amount > 0n));
  const start = (id: string, body?: unknown) => bench.api('POST', `vms/${id}/start`, body);
  /** An expired machine that its region has stopped. */
  const expired = async () => {
    const id = await active({ auto_renew: false });
    await pass(id);
    await eventually('stopping', async () => (await read(id)).status === 'stopping');
    const item = await agent.see(id, 2);
    expect(item.spec.power).toBe('stopped');
    await agent.observe(item, 'stopped');
    await bench.reach(id, 'stopped');
    return id;
  };

  it('is renewed at its end, from where it ended, and the machine runs on', async () => {
    const id = await active();
    await pass(id);
    await eventually('renewed', async () => new Date((await read(id)).paid_until) > new Date());
    const [renewal] = await bench.sql<{ after: Date; until: Date }>(
      'select after, until from vm_renewal where vm_id = $1',
      [id],
    );
    expect(renewal!.until).toEqual(periodEnd(renewal!.after, { months: 1 }));
    expect(await read(id)).toMatchObject({ status: 'active', paid_until: renewal!.until.toISOString() });
    expect(await charges(id)).toEqual([month]);
  });

  it('without auto_renew, and without the money for it, the machine is stopped; the reason says so', async () => {
    const id = await expired();
    expect((await read(id)).status_reason).toMatch(/period has ended/);
    expect(await charges(id)).toEqual([]);
    const poor = await active();
    bench.billing.available = 0n;
    await pass(poor);
    await eventually('stopping', async () => (await read(poor)).status === 'stopping');
    expect(await charges(poor)).toEqual([]);
  });

  it('is stopped at its end by the clock of this service, also while that of the database is behind it', async () => {
    const id = await active({ auto_renew: false });
    const { now } = Date;
    Date.now = () => now() + 5_000;
    try {
      await bench.sql(
        `with over as (update vm set paid_until = date_trunc('second', now()) + interval '4 s' where id = $1)
         update lifecycle set run_at = now(), wakes = wakes + 1 where id = $1 and kind = 'vm_period'`,
        [id],
      );
      await eventually('stopping', async () => (await read(id)).status === 'stopping', 3_000);
    } finally {
      Date.now = now;
    }
  });

  it('402 period_expired for a start without renew; with it the next period is paid from now, and it starts', async () => {
    const id = await expired();
    for (const body of [undefined, {}, { renew: false }])
      expect(await start(id, body)).toMatchObject({
        status: 402,
        body: { error: { code: 'period_expired' } },
      });
    const quote = await bench.api('POST', `vms/${id}/renewal-quote`);
    expect(quote).toMatchObject({ status: 200, body: { amount: '240.00' } });
    expect(await start(id, { renew: true, quote_token: quote.body.quote_token })).toMatchObject({
      status: 200,
      body: { status: 'starting' },
    });
    await agent.observe(await agent.see(id, 3), 'running');
    expect(new Date((await bench.reach(id, 'active')).paid_until).getTime()).toBeGreaterThan(Date.now());
    expect(await charges(id)).toEqual([month]);
    // The old quote is for a period that is paid; a start with nothing to renew charges nothing.
    expect((await start(id, { renew: true })).body.status).toBe('active');
    expect(await charges(id)).toEqual([month]);
  });

  it('409 for a quote of another machine or period, 402 without money, 503 while billing is away: nothing is charged or started', async () => {
    const [id, other] = [await expired(), await active()];
    const { quote_token } = (await bench.api('POST', `vms/${other}/renewal-quote`)).body;
    for (const token of [quote_token, 'nonsense', ''])
      expect(await start(id, { renew: true, quote_token: token })).toMatchObject({
        status: 409,
        body: { error: { code: 'quote_outdated' } },
      });
    const own = (await bench.api('POST', `vms/${id}/renewal-quote`)).body.quote_token;
    bench.billing.prices['vm.nano.month'] = 250_000_000_000n;
    const dearer = await start(id, { renew: true, quote_token: own });
    bench.billing.prices['vm.nano.month'] = month;
    expect(dearer).toMatchObject({ status: 409, body: { error: { code: 'quote_outdated' } } });
    bench.billing.available = 0n;
    expect(await start(id, { renew: true })).toMatchObject({
      status: 402,
      body: { error: { code: 'insufficient_balance' } },
    });
    bench.billing.away = true;
    expect(await start(id, { renew: true })).toMatchObject({ status: 503 });
    expect((await read(id)).status).toBe('stopped');
    expect(await charges(id)).toEqual([]);
  });

  it('404 and 409 for a quote of another account’s machine and of one that is not made', async () => {
    const vm = await bench.vm();
    const path = `vms/${vm.id}/renewal-quote`;
    expect((await bench.api('POST', path, undefined, bench.stranger)).status).toBe(404);
    expect((await bench.api('POST', `vms/${randomUUID()}/renewal-quote`)).status).toBe(404);
    expect(await bench.api('POST', path)).toMatchObject({
      status: 409,
      body: { error: { code: 'vm_not_ready' } },
    });
    expect((await bench.api('POST', path, undefined, null)).status).toBe(401);
  });

  it('a repeat of a start that has renewed pays nothing, by the header and by the key in the body, also after another expiry', async () => {
    for (const key of ['body', 'header'] as const) {
      const id = await expired();
      const name = randomUUID();
      const again = () =>
        key === 'body'
          ? start(id, { renew: true, idempotency_key: name })
          : bench.api('POST', `vms/${id}/start`, { renew: true }, bench.key, { 'idempotency-key': name });
      const first = await again();
      expect(first).toMatchObject({ status: 200, body: { status: 'starting' } });
      await pass(id);
      expect((await again()).body).toEqual(first.body);
      expect(await charges(id)).toEqual([month]);
      if (key === 'body')
        expect(await start(id, { renew: false, idempotency_key: name })).toMatchObject({
          status: 422,
          body: { error: { code: 'idempotency_key_reused' } },
        });
    }
  });

  it('five starts with renew at once pay one period', async () => {
    const id = await expired();
    const answers = await Promise.all([1, 2, 3, 4, 5].map(() => start(id, { renew: true })));
    expect(answers.map(({ status }) => status).filter((status) => ![200, 402, 409].includes(status))).toEqual(
      [],
    );
    expect(answers.some(({ status }) => status === 200)).toBe(true);
    await eventually('one charge', async () => (await charges(id)).length === 1);
  });

  it('a process that dies between charge and note: the next one counts that charge and makes no second', async () => {
    const id = await active();
    bench.billing.captureAway = true;
    await pass(id);
    const [renewal] = await eventually('begun', async () => {
      const rows = await bench.sql<{ id: string }>(
        "select id from vm_renewal where vm_id = $1 and state = 'open'",
        [id],
      );
      return rows.length > 0 && bench.billing.reservations.has(rows[0]!.id) && rows;
    });
    await bench.nebo.close();
    // It was charged; the answer was lost with the process.
    bench.billing.reservations.get(renewal!.id)!.state = 'captured';
    bench.billing.captureAway = false;
    bench.nebo = await startServices({ databaseUrl: bench.databaseUrl, definitions: [compute] });
    bench.nebo.runtime.targets.set('identity-billing', bench.billing.target);
    bench.nebo.runtime.targets.set('networking', bench.networking.target);
    agent = new FakeAgent(bench);
    await eventually('renewed', async () => new Date((await read(id)).paid_until) > new Date());
    expect(await charges(id)).toEqual([month]);
  });

  it.each([
    ['charged: it counts', 'captured', [month]],
    ['only held: it goes back', 'held', []],
  ] as const)(
    'auto_renew that is taken away while a period is being paid; what was %s',
    async (_what, state, paid) => {
      const id = await active();
      bench.billing.captureAway = true;
      await pass(id);
      const [renewal] = await eventually('begun', async () => {
        const rows = await bench.sql<{ id: string }>(
          "select id from vm_renewal where vm_id = $1 and state = 'open'",
          [id],
        );
        return rows.length > 0 && bench.billing.reservations.has(rows[0]!.id) && rows;
      });
      const reservation = bench.billing.reservations.get(renewal!.id)!;
      // The answer was lost.
      if (state === 'captured') Object.assign(reservation, { state, captured: reservation.amount });
      expect((await bench.api('PATCH', `vms/${id}`, { auto_renew: false })).status).toBe(200);
      bench.billing.captureAway = false;
      await eventually('decided', async () => {
        const { status, paid_until } = await read(id);
        return state === 'captured' ? new Date(paid_until) > new Date() : status === 'stopping';
      });
      expect(await charges(id)).toEqual(paid);
      expect(reservation.state).toBe(state === 'captured' ? 'captured' : 'void');
    },
  );

  describe('billing that is away for more than an hour after a charge whose answer was lost', () => {
    /** A machine in the middle of a renewal that is charged, or only held. */
    const renewing = async (state: 'captured' | 'held') => {
      const id = await active();
      bench.billing.captureAway = true;
      await pass(id);
      const [renewal] = await eventually('begun', async () => {
        const rows = await bench.sql<{ id: string }>(
          "select id from vm_renewal where vm_id = $1 and state = 'open'",
          [id],
        );
        return rows.length > 0 && bench.billing.reservations.has(rows[0]!.id) && rows;
      });
      const reservation = bench.billing.reservations.get(renewal!.id)!;
      if (state === 'captured') Object.assign(reservation, { state, captured: reservation.amount });
      return id;
    };
    const anHourLater = (id: string) =>
      bench.sql(
        `update lifecycle set entered_at = entered_at - interval '61 minutes', run_at = now(), wakes = wakes + 1
         where id = $1 and kind = 'vm_period'`,
        [id],
      );
    /** Stopped by its region, since nobody knows whether it is paid. */
    const stopped = async (state: 'captured' | 'held') => {
      const id = await renewing(state);
      bench.billing.away = true;
      await anHourLater(id);
      await agent.observe(await agent.see(id, 2), 'stopped');
      await bench.reach(id, 'stopped');
      return id;
    };
    const isBack = () => Object.assign(bench.billing, { away: false, captureAway: false });

    it('the charge is found when billing is back: it counts, and the machine runs again', async () => {
      const id = await stopped('captured');
      isBack();
      await eventually('paid', async () => new Date((await read(id)).paid_until) > new Date());
      const item = await agent.see(id, 3);
      expect(item.spec.power).toBe('running');
      await agent.observe(item, 'running');
      await bench.reach(id, 'active');
      expect(await charges(id)).toEqual([month]);
    });

    it('a machine whose owner wanted it stopped meanwhile stays so', async () => {
      const id = await stopped('captured');
      expect((await bench.api('POST', `vms/${id}/stop`)).status).toBe(200);
      isBack();
      await eventually('paid', async () => new Date((await read(id)).paid_until) > new Date());
      expect((await read(id)).status).toBe('stopped');
    });

    it('what was only held goes back, and the machine stays stopped', async () => {
      const id = await stopped('held');
      isBack();
      await eventually('given back', async () => bench.billing.held() === 0n);
      expect(await charges(id)).toEqual([]);
      expect(await start(id)).toMatchObject({ status: 402, body: { error: { code: 'period_expired' } } });
    });

    it('an owner who starts it with renew in that time pays the period once', async () => {
      const id = await stopped('captured');
      bench.billing.away = false;
      bench.billing.captureAway = false;
      expect((await start(id, { renew: true })).body.status).toBe('starting');
      await agent.observe(await agent.see(id, 3), 'running');
      await bench.reach(id, 'active');
      expect(await charges(id)).toEqual([month]);
    });

    it('a service that was away for that hour, and finds billing there, stops nothing', async () => {
      const id = await renewing('captured');
      await bench.nebo.close();
      await anHourLater(id);
      isBack();
      bench.nebo = await startServices({ databaseUrl: bench.databaseUrl, definitions: [compute] });
      bench.nebo.runtime.targets.set('identity-billing', bench.billing.target);
      bench.nebo.runtime.targets.set('networking', bench.networking.target);
      agent = new FakeAgent(bench);
      await eventually('renewed', async () => new Date((await read(id)).paid_until) > new Date());
      expect((await read(id)).status).toBe('active');
      const [{ generation }] = (await bench.sql<{ generation: number }>(
        'select generation from vm where id = $1',
        [id],
      )) as [{ generation: number }];
      expect(generation).toBe(1);
      expect(await charges(id)).toEqual([month]);
    });
  });

  it('a machine that is deleted while it is renewed gets that money back', async () => {
    const id = await active();
    bench.billing.captureAway = true;
    await pass(id);
    const [renewal] = await eventually('begun', async () => {
      const rows = await bench.sql<{ id: string }>(
        "select id from vm_renewal where vm_id = $1 and state = 'open'",
        [id],
      );
      return rows.length > 0 && bench.billing.reservations.has(rows[0]!.id) && rows;
    });
    bench.billing.reservations.get(renewal!.id)!.state = 'captured';
    await bench.api('DELETE', `vms/${id}`);
    bench.billing.captureAway = false;
    await agent.observe(await agent.see(id, 2), 'gone');
    await eventually(
      'gone',
      async () => (await bench.sql('select 1 from vm where id = $1', [id])).length === 0,
    );
    expect(bench.billing.charged(renewal!.id)).toBe(0n);
  });
});
