import { randomUUID } from 'node:crypto';
import { type Billing, nano, startBilling } from '../../test/billing.js';

describe('money operations', () => {
  let billing: Billing;
  beforeAll(async () => {
    billing = await startBilling();
  });
  afterAll(() => billing?.close());

  const reserve = (account: string, rubles: number, more: object = {}) =>
    billing.money('reserve', {
      operation_id: randomUUID(),
      account_id: account,
      kind: 'control',
      amount: nano(rubles),
      description: 'a thing',
      ...more,
    });
  const inference = (account: string, rubles: number, more: object = {}) =>
    reserve(account, rubles, { kind: 'inference', ...more });

  it('200 reserves, captures a part and gives the rest back; each call can be repeated', async () => {
    const { account_id } = await billing.account('1000');
    const operation_id = randomUUID();
    const first = await reserve(account_id, 300, { operation_id });
    expect(first).toMatchObject({
      status: 200,
      body: { operation_id, state: 'held', amount: nano(300), captured: '0' },
    });
    expect((await reserve(account_id, 300, { operation_id })).body).toEqual(first.body);
    expect(await billing.balance(account_id)).toMatchObject({ balance: '1000.00', available: '700.00' });
    const capture = { operation_id, account_id, amount: nano(120.5) };
    const captured = await billing.money('capture', capture);
    expect(captured).toMatchObject({ status: 200, body: { state: 'captured', captured: nano(120.5) } });
    expect((await billing.money('capture', capture)).body).toEqual(captured.body);
    expect(await billing.balance(account_id)).toMatchObject({ balance: '879.50', available: '879.50' });
    expect(await billing.money('capture', { ...capture, amount: nano(1) })).toMatchObject({
      status: 409,
      body: { error: { code: 'already_captured' } },
    });
    expect((await billing.money('void', capture)).body.error.code).toBe('already_captured');
  });

  it('200 void gives everything back and can be repeated; 409 capture afterwards', async () => {
    const { account_id } = await billing.account('10');
    const operation_id = randomUUID();
    await reserve(account_id, 10, { operation_id });
    for (let repeat = 0; repeat < 2; repeat += 1) {
      expect(await billing.money('void', { operation_id, account_id })).toMatchObject({
        status: 200,
        body: { state: 'void' },
      });
    }
    expect(await billing.balance(account_id)).toMatchObject({ balance: '10.00', available: '10.00' });
    expect(await billing.money('capture', { operation_id, account_id })).toMatchObject({
      status: 409,
      body: { error: { code: 'already_void' } },
    });
  });

  it('200 refunds once, money first; 409 before the capture or with another amount', async () => {
    const { account_id } = await billing.account('100', '50');
    const operation_id = randomUUID();
    const refund = { operation_id, account_id, description: 'could not be made' };
    await reserve(account_id, 120, { operation_id });
    expect((await billing.money('refund', refund)).body.error.code).toBe('not_captured');
    await billing.money('capture', { operation_id, account_id });
    expect(await billing.balance(account_id)).toMatchObject({ balance: '30.00', credits: '0.00' });
    for (let repeat = 0; repeat < 2; repeat += 1) {
      expect(await billing.money('refund', { ...refund, amount: nano(90) })).toMatchObject({
        status: 200,
        body: { refunded: nano(90) },
      });
    }
    expect(await billing.balance(account_id)).toMatchObject({ balance: '100.00', credits: '20.00' });
    expect((await billing.money('refund', refund)).body.error.code).toBe('already_refunded');
  });

  it('200 pays back an order that cost nothing, again and again: there is no transfer that a repeat could double', async () => {
    const { account_id } = await billing.account();
    const operation_id = randomUUID();
    await reserve(account_id, 0, { operation_id });
    await billing.money('capture', { operation_id, account_id });
    for (let repeat = 0; repeat < 2; repeat += 1) {
      expect(
        await billing.money('refund', { operation_id, account_id, description: 'could not be made' }),
      ).toMatchObject({ status: 200, body: { state: 'captured', captured: '0', refunded: '0' } });
    }
    expect((await billing.internal('POST', 'money/reconcile')).body.differences).toEqual([]);
  });

  it('an order’s reservation stands only for its own project and for prices in force; a repeat stands whatever became of them', async () => {
    const { account_id, project_id } = await billing.account('1000');
    const stranger = await billing.account('1000');
    const id = 'vm.nano.month';
    const price = async () => (await billing.internal('GET', `prices?prefix=${id}`)).body[0];
    const { version, unit } = await price();
    const operation_id = randomUUID();
    const order = (more: object = {}) =>
      reserve(account_id, 100, { project_id, prices: [{ id, version }], operation_id, ...more });
    for (const project of [randomUUID(), stranger.project_id])
      expect(await order({ project_id: project })).toMatchObject({
        status: 404,
        body: { error: { message: 'project_id: not found' } },
      });
    for (const wrong of [
      { id, version: version + 1 },
      { id: 'vm.none.month', version: 1 },
    ])
      expect(await order({ prices: [wrong] })).toMatchObject({
        status: 409,
        body: { error: { code: 'price_changed' } },
      });
    expect(await billing.balance(account_id)).toMatchObject({ available: '1000.00' });
    const first = await order();
    expect(first).toMatchObject({ status: 200, body: { state: 'held', amount: nano(100) } });
    await billing.internal('PUT', 'prices', { prices: [{ id, amount: nano(250), unit }] });
    expect((await price()).version).toBe(version + 1);
    expect((await order()).body).toEqual(first.body);
    expect(await order({ operation_id: randomUUID() })).toMatchObject({
      status: 409,
      body: { error: { code: 'price_changed' } },
    });
    expect(await billing.balance(account_id)).toMatchObject({ available: '900.00' });
  });

  it('402 insufficient_balance names what is available and what is needed, and makes nothing', async () => {
    const { account_id } = await billing.account('5.5');
    const operation_id = randomUUID();
    const answer = await reserve(account_id, 6, { operation_id });
    expect(answer).toMatchObject({ status: 402, body: { error: { code: 'insufficient_balance' } } });
    expect(answer.body.error.message).toContain('5.50 ₽ available, 6.00 ₽ needed');
    expect((await billing.money('void', { operation_id, account_id })).status).toBe(404);
    await billing.admin('account-topup', { account: account_id, amount: '1' });
    expect((await reserve(account_id, 6, { operation_id })).status).toBe(200);
  });

  it('402 held_in_flight with Retry-After when the account would have enough without its own holds', async () => {
    const { account_id } = await billing.account('100');
    await inference(account_id, 80);
    const answer = await inference(account_id, 30);
    expect(answer).toMatchObject({ status: 402, body: { error: { code: 'held_in_flight' } } });
    expect(answer.headers['retry-after']).toBe('2');
    expect((await inference(account_id, 101)).body.error.code).toBe('insufficient_balance');
  });

  it('credits: locked until a top-up of the minimum, spent first on control resources, never on inference', async () => {
    const { account_id } = await billing.account(undefined, '500');
    expect(await billing.balance(account_id)).toEqual({
      currency: 'RUB',
      balance: '0.00',
      credits: '500.00',
      credits_unlocked: false,
      available: '0.00',
      real_topup_min: '100.00',
    });
    expect((await reserve(account_id, 1)).body.error.code).toBe('insufficient_balance');
    expect((await inference(account_id, 1)).body.error.code).toBe('topup_required');
    await billing.admin('account-topup', { account: account_id, amount: '99.99' });
    expect(await billing.balance(account_id)).toMatchObject({ credits_unlocked: false, available: '99.99' });
    await billing.admin('account-topup', { account: account_id, amount: '100' });
    expect(await billing.balance(account_id)).toMatchObject({
      credits_unlocked: true,
      available: '699.99',
      real_topup_min: '0',
    });
    expect((await inference(account_id, 200)).body.error.code).toBe('insufficient_balance');
    const operation_id = randomUUID();
    await reserve(account_id, 600, { operation_id });
    await billing.money('capture', { operation_id, account_id, amount: nano(550) });
    expect(await billing.balance(account_id)).toMatchObject({
      balance: '149.99',
      credits: '0.00',
      available: '149.99',
    });
  });

  it('402 key_limit_reached at the limit of the month, held_in_flight while own holds fill it', async () => {
    const { account_id } = await billing.account('1000');
    const { id: key_id } = (
      await billing.admin('inference-key-create', { account: account_id, monthly_limit: '10' })
    ).body;
    const operation_id = randomUUID();
    expect((await inference(account_id, 8, { key_id, operation_id })).status).toBe(200);
    expect((await inference(account_id, 3, { key_id })).body.error.code).toBe('held_in_flight');
    await billing.money('capture', { operation_id, account_id });
    const over = await inference(account_id, 3, { key_id });
    expect(over).toMatchObject({ status: 402, body: { error: { code: 'key_limit_reached' } } });
    expect(over.body.error.message).toContain('10.00 ₽ is reached: 8.00 ₽ spent, 3.00 ₽ needed');
    expect((await inference(account_id, 2, { key_id })).status).toBe(200);
    // Nothing of what was refused is left behind.
    expect(await billing.balance(account_id)).toMatchObject({ balance: '992.00', available: '990.00' });
  });

  it('a month limit begins anew with the month, and a late capture counts in the month of its reservation', async () => {
    const { account_id } = await billing.account('1000');
    const { id: key_id } = (
      await billing.admin('inference-key-create', { account: account_id, monthly_limit: '10' })
    ).body;
    const operation_id = randomUUID();
    await inference(account_id, 10, { key_id, operation_id });
    // The reservation was made last month.
    await billing.sql(
      "update reservation set month = (month - interval '1 month')::date where operation_id = $1",
      [operation_id],
    );
    await billing.sql("update key_month set month = (month - interval '1 month')::date where key_id = $1", [
      key_id,
    ]);
    expect((await inference(account_id, 10, { key_id })).status).toBe(200);
    await billing.money('capture', { operation_id, account_id });
    const months = await billing.sql(
      'select used, captured from key_month where key_id = $1 order by month',
      [key_id],
    );
    expect(months).toEqual([
      { used: nano(10), captured: nano(10) },
      { used: nano(10), captured: '0' },
    ]);
  });

  it('a reservation expires by database time: 409 expired, and its money does not stand in the way', async () => {
    const { account_id } = await billing.account('10');
    const operation_id = randomUUID();
    await reserve(account_id, 10, { operation_id, expires_in_seconds: 1 });
    expect((await reserve(account_id, 10)).status).toBe(402);
    await new Promise((resolve) => setTimeout(resolve, 1_100));
    expect(await billing.money('capture', { operation_id, account_id })).toMatchObject({
      status: 409,
      body: { error: { code: 'expired' } },
    });
    expect(await billing.money('void', { operation_id, account_id })).toMatchObject({
      status: 200,
      body: { state: 'expired' },
    });
    const again = randomUUID();
    await reserve(account_id, 10, { operation_id: again, expires_in_seconds: 1 });
    await new Promise((resolve) => setTimeout(resolve, 1_100));
    // Not captured, perhaps not swept yet: the next order takes the money all the same.
    expect((await reserve(account_id, 10)).status).toBe(200);
  });

  it('409 operation_reused for the same id with another amount; another account may use the same id', async () => {
    const one = await billing.account('10');
    const two = await billing.account('10');
    const operation_id = randomUUID();
    await reserve(one.account_id, 1, { operation_id });
    expect(await reserve(one.account_id, 2, { operation_id })).toMatchObject({
      status: 409,
      body: { error: { code: 'operation_reused' } },
    });
    expect((await reserve(two.account_id, 2, { operation_id })).status).toBe(200);
    expect((await billing.money('void', { operation_id, account_id: two.account_id })).body.amount).toBe(
      nano(2),
    );
  });

  it('404 for an unknown account, operation or key; a revoked key reserves nothing', async () => {
    const { account_id } = await billing.account('10');
    const other = await billing.account('10');
    expect((await reserve(randomUUID(), 1)).status).toBe(404);
    expect((await billing.money('capture', { operation_id: 'none', account_id })).status).toBe(404);
    const { id: key_id } = (await billing.admin('inference-key-create', { account: account_id })).body;
    expect((await inference(other.account_id, 1, { key_id })).status).toBe(404);
    expect((await inference(account_id, 1, { key_id })).status).toBe(200);
    await billing.admin('inference-key-revoke', { key: key_id });
    expect((await inference(account_id, 1, { key_id })).status).toBe(404);
  });

  it('422 for amounts that are none, capture of more than was reserved; 400 when signed for another account', async () => {
    const { account_id } = await billing.account('10');
    for (const amount of ['-1', '1.5', '', '1'.repeat(19), 5, null]) {
      expect((await reserve(account_id, 1, { amount })).status).toBe(422);
    }
    const operation_id = randomUUID();
    await reserve(account_id, 1, { operation_id });
    expect((await billing.money('capture', { operation_id, account_id, amount: nano(2) })).status).toBe(422);
    const body = { operation_id, account_id };
    const answer = await billing.internal('POST', 'money/void', body, {
      kind: 'service',
      service: 'compute',
      account_id: randomUUID(),
    });
    expect(answer).toMatchObject({ status: 400, body: { error: { code: 'account_mismatch' } } });
  });

  it('the ledger tells each posting, newest first, with what it changed', async () => {
    const { account_id, as } = await billing.account('100', '10');
    const operation_id = randomUUID();
    await reserve(account_id, 50, { operation_id, prices: [{ id: 'vm.small.month', version: 1 }] });
    await billing.money('capture', {
      operation_id,
      account_id,
      amount: nano(20),
      description: 'Machine small',
    });
    const page = await billing.api('GET', 'account/ledger?limit=3', as);
    expect(page).toMatchObject({ status: 200, body: { count: 3, total: 4, limit: 3, offset: 0 } });
    expect(page.body.data).toMatchObject([
      {
        kind: 'capture',
        amount: '-10.00',
        credits_amount: '-10.00',
        held_amount: '-50.00',
        source_id: operation_id,
        description: 'Machine small',
      },
      {
        kind: 'hold',
        amount: '0.00',
        credits_amount: '0.00',
        held_amount: '50.00',
        source_service: 'compute',
        source_id: operation_id,
      },
      { kind: 'credit', amount: '0.00', credits_amount: '10.00', held_amount: '0.00' },
    ]);
    expect((await billing.api('GET', 'account/ledger?offset=9', as)).body).toMatchObject({
      data: [],
      count: 0,
      total: 4,
    });
    expect((await billing.api('GET', 'account/ledger?limit=0', as)).status).toBe(422);
  });
});
