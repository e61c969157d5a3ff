import { randomUUID } from 'node:crypto';
import { type Billing, nano, operator, startBilling } from '../../test/billing.js';
import { TestRouter } from '../../test/routers.js';

describe('slices', () => {
  let billing: Billing;
  beforeAll(async () => {
    billing = await startBilling();
  });
  afterAll(() => billing?.close());

  const world = async (topup: string | undefined = '100', limit?: string) => {
    const made = await billing.account(topup);
    const key = (
      await billing.admin('inference-key-create', {
        account: made.account_id,
        ...(limit ? { monthly_limit: limit } : {}),
      })
    ).body.id as string;
    const router = () => new TestRouter(billing, made.account_id, key, limit !== undefined).open();
    return { ...made, key, router, a: await router(), b: await router() };
  };
  const leased = async (account: string) =>
    (await billing.sql<{ leased: string }>('select leased from balance where account_id = $1', [account]))[0]!
      .leased;
  const month = () => new Date().toISOString().slice(0, 7);
  const keyMonth = async (key: string) =>
    (await billing.sql('select used, captured, leased from key_month where key_id = $1', [key]))[0];
  const expire = (account: string) =>
    billing.sql("update slice set expires_at = now() - interval '1 second' where account_id = $1", [account]);
  const addsUp = async () =>
    expect((await billing.internal('POST', 'money/reconcile')).body).toMatchObject({
      ok: true,
      differences: [],
    });
  const until = async (condition: () => Promise<boolean>) => {
    for (let waited = 0; !(await condition()); waited += 20) {
      if (waited > 15_000) throw new Error('waited for 15 s');
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };

  it('take grants the need and at most a quarter beyond; the router has one slice, which grows', async () => {
    const { account_id, as, a, b } = await world();
    const first = await a.take(nano(10), nano(80));
    expect(first).toMatchObject({
      status: 200,
      body: { account: { version: 1, amount: nano(25) }, key: null },
    });
    expect(first.body.account.expires_in).toBeGreaterThan(25_000);
    expect(first.body.account.expires_in).toBeLessThanOrEqual(30_000);
    const second = await a.take(nano(40), nano(50));
    expect(second.body.account).toMatchObject({ id: first.body.account.id, version: 2, amount: nano(65) });
    expect((await b.take(nano(35), nano(35))).body.account).toMatchObject({ version: 1, amount: nano(35) });
    expect(await leased(account_id)).toBe(nano(100));
    // Neither the balance nor what is available changes by leasing, only by using.
    expect((await billing.api('GET', 'account/balance', as)).body).toMatchObject({
      balance: '100.00',
      available: '100.00',
    });
    await a.renew(BigInt(nano(2)));
    await b.renew(BigInt(nano(5)));
    expect(await billing.balance(account_id)).toMatchObject({ balance: '100.00', available: '93.00' });
    // Nothing needed, nothing left: the slice as it is.
    expect((await a.take(0n, nano(5))).body.account).toMatchObject({ version: 3, amount: nano(65) });
    await addsUp();
  });

  it('402 tells the reasons apart and carries figures', async () => {
    const empty = await world('');
    expect(await empty.a.take(nano(1))).toMatchObject({
      status: 402,
      body: { error: { code: 'topup_required' } },
    });
    const { account_id, a, b } = await world();
    await a.take(nano(60));
    expect(await b.take(nano(120))).toMatchObject({
      status: 402,
      body: {
        error: { code: 'insufficient_balance', details: { available: nano(40), held: nano(60) } },
      },
    });
    // All of it would be there if nothing else was running.
    const refused = await b.take(nano(50));
    expect(refused).toMatchObject({
      status: 402,
      headers: { 'retry-after': '2' },
      body: { error: { code: 'held_in_flight', details: { available: nano(40), held: nano(60) } } },
    });
    expect(refused.body.error.details).not.toHaveProperty('key_available');
    // What its own requests hold the router knows: here counts what others have.
    expect(await a.take(nano(50))).toMatchObject({
      status: 402,
      body: { error: { code: 'insufficient_balance', details: { available: nano(40), held: '0' } } },
    });
    expect(await leased(account_id)).toBe(nano(60));
  });

  it("a key's limit is sliced with the account's money, or neither is", async () => {
    const { account_id, key, a, b } = await world('1000', '50');
    expect(await a.take(nano(10), nano(40))).toMatchObject({
      status: 200,
      body: { account: { amount: nano(40) }, key: { amount: nano(12.5), version: 1, month: month() } },
    });
    expect(await keyMonth(key)).toEqual({ used: '0', captured: '0', leased: nano(12.5) });
    const refused = await b.take(nano(45));
    expect(refused).toMatchObject({
      status: 402,
      body: {
        error: { code: 'held_in_flight', details: { available: nano(960), key_available: nano(37.5) } },
      },
    });
    expect(await b.take(nano(55))).toMatchObject({
      status: 402,
      body: { error: { code: 'key_limit_reached', message: expect.stringContaining('50.00 ₽') } },
    });
    expect(await leased(account_id)).toBe(nano(40));
    // The other way: an order by reservation respects what is leased of the limit.
    const reserve = {
      operation_id: randomUUID(),
      account_id,
      kind: 'inference',
      key_id: key,
      amount: nano(40),
      description: '',
    };
    expect(await billing.money('reserve', reserve)).toMatchObject({
      status: 402,
      body: { error: { code: 'held_in_flight' } },
    });
    expect((await billing.money('reserve', { ...reserve, amount: nano(37.5) })).status).toBe(200);
    expect((await b.take(nano(1))).status).toBe(402);
    await addsUp();
  });

  it('orders and spans leave alone what is leased and in use', async () => {
    const { account_id, a } = await world();
    await a.take(nano(70));
    const order = {
      operation_id: randomUUID(),
      account_id,
      kind: 'control',
      amount: nano(31),
      description: '',
    };
    expect(await billing.money('reserve', order)).toMatchObject({
      status: 402,
      body: {
        error: {
          code: 'held_in_flight',
          message: expect.stringContaining('30.00 ₽ available, 70.00 ₽ held'),
        },
      },
    });
    const span = {
      operation_id: randomUUID(),
      account_id,
      resource: 'floating_ip:1',
      amount_per_month: nano(31),
      needs_available: nano(31),
      started_at: new Date().toISOString(),
      description: '',
    };
    expect(await billing.money('span-open', span)).toMatchObject({ status: 402 });
    expect(
      (await billing.money('span-open', { ...span, amount_per_month: nano(30), needs_available: nano(30) }))
        .status,
    ).toBe(200);
    expect((await billing.money('reserve', { ...order, amount: nano(30) })).status).toBe(200);
    expect((await a.take(nano(1))).status).toBe(402);
  });

  it('return applies once per version; nothing is given back twice', async () => {
    const { account_id, a } = await world();
    await a.take(nano(40));
    const { id, version } = a.slice!;
    const back = { slices: [{ id, version, amount: nano(15) }] };
    expect((await a.call('return', back)).body.slices).toMatchObject([{ id, version: 2, amount: nano(25) }]);
    expect((await a.call('return', back)).body.slices).toMatchObject([{ id, version: 2, amount: nano(25) }]);
    expect(await leased(account_id)).toBe(nano(25));
    // More than there is gives back what there is; the empty slice lives on and grows again.
    const rest = {
      slices: [
        { id, version: 2, amount: nano(99) },
        { id: randomUUID(), version: 1, amount: '1' },
      ],
    };
    expect((await a.call('return', rest)).body.slices).toMatchObject([{ id, version: 3, amount: '0' }]);
    expect(await leased(account_id)).toBe('0');
    expect((await a.take(nano(5))).body.account).toMatchObject({ id, version: 4, amount: nano(5) });
    const foreign = (await world()).a;
    expect(
      (await foreign.call('return', { slices: [{ id, version: 4, amount: nano(5) }] })).body.slices,
    ).toEqual([]);
    expect((await foreign.call('renew', { slices: [{ id, in_use: '0' }] })).body.slices).toEqual([]);
    expect(await leased(account_id)).toBe(nano(5));
  });

  it('open fences the former life and frees its money', async () => {
    const { account_id, key, a } = await world('100', '90');
    await a.take(nano(40));
    const { slice, keySlice } = a;
    const next = await new TestRouter(billing, account_id, key, true, a.id).open();
    expect(next.epoch).toBe(a.epoch + 1);
    expect([await leased(account_id), await keyMonth(key)]).toEqual([
      '0',
      { used: '0', captured: '0', leased: '0' },
    ]);
    for (const answer of [
      await a.take(nano(1)),
      await a.renew(),
      await a.call('return', { slices: [{ id: slice!.id, version: 1, amount: '1' }] }),
    ])
      expect(answer).toMatchObject({ status: 409, body: { error: { code: 'fenced' } } });
    const renewed = await next.call('renew', {
      slices: [slice, keySlice].map((one) => ({ id: one!.id, in_use: '0' })),
    });
    expect(renewed.body.slices).toEqual([]);
    expect((await next.take(nano(40))).body.account.id).not.toBe(slice!.id);
    const unknown = new TestRouter(billing, account_id, key);
    unknown.epoch = 1;
    expect(await unknown.take(nano(1))).toMatchObject({ status: 409 });
  });

  it('a slice past its term is frozen: leased, shown, not available; its router thaws it', async () => {
    const { account_id, a, b } = await world();
    await a.take(nano(70));
    await a.renew(0n);
    await expire(account_id);
    expect(await billing.balance(account_id)).toMatchObject({ balance: '100.00', available: '30.00' });
    await until(
      async () =>
        (await billing.sql("select 1 from slice where account_id = $1 and state = 'frozen'", [account_id]))
          .length === 1,
    );
    const metrics = async () =>
      (await billing.nebo.request('identity-billing', { path: '/metrics', as: null })).text;
    await until(async () => /nebo_slices_frozen\{.*\} 1/.test(await metrics()));
    expect((await b.take(nano(40))).body.error.code).toBe('held_in_flight');
    const other = await world();
    await other.a.take(nano(5));
    const { body } = await billing.internal('GET', 'operator/slices', undefined, operator);
    expect(body.data[0]).toMatchObject({
      id: a.slice!.id,
      account_id,
      router_id: a.id,
      state: 'frozen',
      amount: '70.00',
    });
    expect(body.data.map(({ state }: { state: string }) => state).lastIndexOf('frozen')).toBe(0);
    expect((await a.renew(BigInt(nano(20)))).body.slices).toMatchObject([
      { id: a.slice!.id, amount: nano(70) },
    ]);
    expect(await billing.balance(account_id)).toMatchObject({ available: '80.00' });
    // An empty slice past its term simply ends.
    await a.renew(0n);
    await a.giveBack();
    await expire(account_id);
    await until(
      async () =>
        (await billing.sql("select 1 from slice where id = $1 and state = 'closed'", [a.slice!.id]))
          .length === 1,
    );
    expect((await a.renew()).body.slices).toEqual([]);
    await addsUp();
  });

  it('write-off frees a frozen slice, once, with an audit entry; 404 and 409 otherwise', async () => {
    const { account_id, as, a, b } = await world();
    await a.take(nano(70));
    const writeOff = () => billing.admin('slice-write-off', { slice: a.slice!.id });
    expect(await writeOff()).toMatchObject({ status: 409, body: { error: { code: 'slice_in_use' } } });
    await expire(account_id);
    expect(await writeOff()).toMatchObject({ status: 200, body: { amount: '70.00', state: 'frozen' } });
    expect(await writeOff()).toMatchObject({ status: 200, body: { state: 'closed' } });
    expect(await leased(account_id)).toBe('0');
    expect((await b.take(nano(100))).status).toBe(200);
    const { data } = (await billing.api('GET', 'audit-log', as)).body;
    expect(data.filter(({ action }: { action: string }) => action === 'slice write-off')).toMatchObject([
      { actor: 'operator', resource: `slice:${a.slice!.id}`, details: { amount: '70.00', router_id: a.id } },
    ]);
    expect((await billing.admin('slice-write-off', { slice: randomUUID() })).status).toBe(404);
    expect((await billing.admin('slice-write-off', { slice: 'x' })).status).toBe(422);
    const list = await billing.internal('GET', `operator/slices?account=${account_id}`, undefined, operator);
    expect(list.body.data).toMatchObject([{ router_id: b.id, state: 'active' }]);
    expect((await billing.internal('GET', 'operator/slices?account=x', undefined, operator)).status).toBe(
      422,
    );
  });

  it('a month that is over: its key slices get no more time, the next take counts in the new month', async () => {
    const { account_id, key, a } = await world('100', '50');
    await a.take(nano(10));
    // The clock of the database is not ours to turn: the slice is moved into the past instead.
    await billing.sql("update slice set month = month - interval '1 month' where key_id = $1", [key]);
    await billing.sql("update key_month set month = month - interval '1 month' where key_id = $1", [key]);
    const old = a.keySlice!;
    const { body } = await a.renew(BigInt(nano(4)));
    expect(body.slices.find(({ id }: { id: string }) => id === old.id).expires_in).toBeLessThan(30_000);
    const [before] = await billing.sql('select expires_at from slice where id = $1', [old.id]);
    await a.renew(BigInt(nano(4)));
    expect(await billing.sql('select expires_at from slice where id = $1', [old.id])).toEqual([before]);
    const fresh = await a.take(nano(10));
    expect(fresh.body.key).toMatchObject({ month: month(), amount: nano(12.5 - 2.5) });
    expect(fresh.body.key.id).not.toBe(old.id);
    // A request of the old month ends: it counts there.
    const ended = a.ended(nano(4), { key_slice_id: old.id });
    expect((await a.settle([ended])).body).toEqual({ settled: [ended.operation_id], refused: [] });
    const months = await billing.sql('select used, leased from key_month where key_id = $1 order by month', [
      key,
    ]);
    expect(months).toEqual([
      { used: nano(4), leased: nano(6) },
      { used: '0', leased: nano(10) },
    ]);
    const last = await a.call('renew', { slices: [{ id: old.id, in_use: '0' }] });
    expect(last.body.slices).toEqual([]);
    expect(await leased(account_id)).toBe(nano(16));
    await addsUp();
  });

  it('404 for an account or key that is gone; its slices get no more time and end when nothing runs', async () => {
    const { account_id, key, a } = await world('100', '50');
    await a.take(nano(10));
    await billing.admin('inference-key-revoke', { key });
    expect(await a.take(nano(1))).toMatchObject({
      status: 404,
      body: { error: { message: 'key_id: not found' } },
    });
    const ids = async () => (await a.renew(0n)).body.slices.map(({ id }: { id: string }) => id);
    expect(await ids()).toEqual([a.slice!.id]);
    expect(await keyMonth(key)).toMatchObject({ leased: '0' });
    await billing.sql("update account set state = 'closed' where id = $1", [account_id]);
    expect(await a.take(nano(1))).toMatchObject({
      status: 404,
      body: { error: { message: 'account_id: not found' } },
    });
    expect((await a.renew(1n)).body.slices).toHaveLength(1);
    expect(await ids()).toEqual([]);
    expect(await leased(account_id)).toBe('0');
    const nobody = await new TestRouter(billing, randomUUID(), key).open();
    expect((await nobody.take(nano(1))).status).toBe(404);
    const control = await world();
    const wrongKind = (await billing.admin('key-create', { account: control.account_id })).body.id;
    const router = await new TestRouter(billing, control.account_id, wrongKind, true).open();
    expect((await router.take(nano(1))).status).toBe(404);
    const foreignKey = await new TestRouter(billing, control.account_id, key, true).open();
    expect((await foreignKey.take(nano(1))).status).toBe(404);
  });

  it('422 for wrong bodies, 400 for a call that is signed for another account', async () => {
    const { account_id, a } = await world();
    for (const [name, body] of [
      ['open', { router_id: 'x' }],
      ['take', { account_id, need: '-1', want: '1' }],
      ['take', { account_id, need: '2', want: '1' }],
      ['take', { account_id, need: '1', want: '1', key: { key_id: a.key, need: '2', want: '1' } }],
      ['take', { account_id, need: '1', want: '1', epoch: 0 }],
      ['renew', { slices: [{ id: 'x', in_use: '0' }] }],
      ['return', { slices: [{ id: account_id, version: 0, amount: '0' }] }],
      ['settle', { settlements: 'x' }],
      ['settle', { settlements: Array.from({ length: 501 }, () => ({})) }],
      ['settle', { router_id: 'x', settlements: [] }],
    ] as const)
      expect([name, (await a.call(name, body)).status]).toEqual([name, 422]);
    const signed = await billing.internal(
      'POST',
      'slices/take',
      { router_id: a.id, epoch: a.epoch, account_id, need: '1', want: '1' },
      { kind: 'service', service: 'inference-router', account_id: randomUUID() },
    );
    expect(signed).toMatchObject({ status: 400, body: { error: { code: 'account_mismatch' } } });
  });
});
