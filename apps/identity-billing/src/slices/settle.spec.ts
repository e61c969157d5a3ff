import { randomUUID } from 'node:crypto';
import type { SliceSettlement } from '@nebo/contracts';
import { type Billing, nano, startBilling } from '../../test/billing.js';
import { settlementOf, TestRouter } from '../../test/routers.js';

describe('settlements of slices', () => {
  let billing: Billing;
  beforeAll(async () => {
    billing = await startBilling();
  });
  afterAll(() => billing?.close());

  const world = async (topup = '100', limit?: string) => {
    const made = await billing.account(topup);
    const key = (
      await billing.admin('inference-key-create', {
        account: made.account_id,
        ...(limit ? { monthly_limit: limit } : {}),
      })
    ).body.id as string;
    const a = await new TestRouter(billing, made.account_id, key, limit !== undefined).open();
    return { ...made, key, a };
  };
  const row = async (account: string) =>
    (await billing.sql('select posted, held, leased from balance where account_id = $1', [account]))[0];
  const addsUp = async () =>
    expect((await billing.internal('POST', 'money/reconcile')).body).toMatchObject({
      ok: true,
      differences: [],
    });
  const metric = async (name: string) => {
    const { text } = await billing.nebo.request('identity-billing', { path: '/metrics', as: null });
    return Number(new RegExp(`^${name}\\{[^}]*\\} (\\S+)$`, 'm').exec(text)?.[1] ?? 0);
  };

  it('charges once: ledger, usage, key, slice and balance, whatever is repeated', async () => {
    const { account_id, as, key, a } = await world('100', '50');
    await a.take(nano(20));
    await a.renew(BigInt(nano(20)));
    const at = new Date(Date.now() - 3_600_000).toISOString();
    const one = a.ended(nano(0.25), { at });
    const two = a.ended('1');
    const free = a.ended('0');
    const ids = [one, two, free].map(({ operation_id }) => operation_id);
    for (const batch of [
      [one, two, one, free],
      [two, one, free],
    ])
      expect((await a.settle(batch)).body).toEqual({
        settled: batch.map(({ operation_id }) => operation_id),
        refused: [],
      });
    const charged = BigInt(nano(0.25)) + 1n;
    expect(await row(account_id)).toEqual({
      posted: `${BigInt(nano(100)) - charged}`,
      held: '0',
      leased: `${BigInt(nano(20)) - charged}`,
    });
    expect(await billing.balance(account_id)).toMatchObject({ balance: '99.749999999', available: '80.00' });
    const slices = await billing.sql('select amount, in_use, version from slice where account_id = $1', [
      account_id,
    ]);
    const rest = `${BigInt(nano(20)) - charged}`;
    expect(slices).toEqual([
      { amount: rest, in_use: rest, version: 1 },
      { amount: rest, in_use: rest, version: 1 },
    ]);
    expect(
      await billing.sql('select used, captured, leased from key_month where key_id = $1', [key]),
    ).toEqual([{ used: `${charged}`, captured: `${charged}`, leased: rest }]);
    const { data } = (await billing.api('GET', 'account/ledger', as)).body;
    expect(data.slice(0, 2)).toMatchObject([
      {
        kind: 'charge',
        amount: '-0.000000001',
        source_service: 'compute',
        source_id: ids[1],
        description: 'glm-5.3',
      },
      { kind: 'charge', amount: '-0.25', held_amount: '0.00', source_id: ids[0] },
    ]);
    expect(data).toHaveLength(3);
    expect(await billing.sql('select prices from transfer where source_id = $1', [ids[0]])).toEqual([
      { prices: one.prices },
    ]);
    const usage = await billing.sql<{ created_at: Date }>(
      'select operation_id, kind, key_id, model, amount, facts, created_at from usage_record where account_id = $1 order by seq',
      [account_id],
    );
    expect(usage.map((record) => record['operation_id' as never])).toEqual(ids);
    expect(usage[0]).toEqual({
      operation_id: ids[0],
      kind: 'inference',
      key_id: key,
      model: 'glm-5.3',
      amount: nano(0.25),
      facts: { ...one.usage, key_id: key },
      created_at: new Date(at),
    });
    await addsUp();
  });

  it('a wrong row stops no other; each is refused with its reason', async () => {
    const { account_id, a } = await world();
    const stranger = await world();
    await a.take(nano(20));
    const good = a.ended(nano(1));
    const wrong = (more: Partial<Record<keyof SliceSettlement, unknown>>) => ({
      ...a.ended(nano(1)),
      ...more,
    });
    const bad = [
      wrong({ amount: '-1' }),
      wrong({ amount: 5 }),
      wrong({ amount: '1'.repeat(19) }),
      wrong({ month: '2026-13' }),
      wrong({ month: '0001-01' }),
      wrong({ slice_id: 'x' }),
      wrong({ key_slice_id: 'x' }),
      wrong({ description: 'a\0b' }),
      wrong({ description: '\ud800' }),
      wrong({ at: 'yesterday' }),
      wrong({ at: '2026-13-01T00:00:00Z' }),
      wrong({ prices: [{ id: 'x' }] }),
      wrong({ prices: null }),
      wrong({ usage: { kind: 'inference', input_tokens: -1 } }),
      wrong({ usage: { kind: 'else' } }),
      wrong({ usage: null }),
      wrong({ account_id: randomUUID() }),
      wrong({ key_id: stranger.key }),
    ];
    const { body } = await a.settle([...bad, null, 7, { operation_id: {} }, good]);
    expect(body.settled).toEqual([good.operation_id]);
    expect(body.refused.map(({ reason }: { reason: string }) => reason)).toEqual([
      ...['amount', 'amount', 'amount', 'month', 'month', 'slice_id', 'key_slice_id'].map(
        (f) => `malformed: ${f}`,
      ),
      ...['description', 'description', 'at', 'at', 'prices', 'prices', 'usage', 'usage', 'usage'].map(
        (f) => `malformed: ${f}`,
      ),
      'malformed: month',
      'malformed: month',
      'malformed: month',
      'unknown account',
      'the account has no such key',
    ]);
    expect(body.refused[0].operation_id).toBe(bad[0]!.operation_id);
    expect(await row(account_id)).toMatchObject({ posted: nano(99) });
    expect(await row(stranger.account_id)).toMatchObject({ posted: nano(100) });
    expect(await metric('nebo_settlements_total')).toBeGreaterThan(0);
    await addsUp();
  });

  it('an operation that was captured already cannot be settled, and holds up no other', async () => {
    const { account_id, key, a } = await world();
    await a.take(nano(20));
    const call = { operation_id: randomUUID(), account_id };
    await billing.money('reserve', {
      ...call,
      kind: 'inference',
      key_id: key,
      amount: nano(1),
      description: '',
    });
    await billing.money('capture', { ...call, usage: { kind: 'inference', model: 'glm-5.3' } });
    const [before, taken, after] = [a.ended(nano(1)), a.ended(nano(1), call), a.ended(nano(1))];
    const { body } = await a.settle([before, taken, after]);
    expect(body).toEqual({
      settled: [before.operation_id, after.operation_id],
      refused: [{ operation_id: call.operation_id, reason: expect.stringContaining('usage_record') }],
    });
    expect(await row(account_id)).toEqual({ posted: nano(97), held: '0', leased: nano(18) });
    await addsUp();
  });

  it('late ones are charged to what is available; the rest is the loss of the operator, never a debt', async () => {
    const { account_id, key, a } = await world('10');
    await a.take(nano(8));
    const late = [nano(4), nano(3), nano(1)].map((amount) => a.ended(amount));
    // A new life: the slice is closed; somebody else takes most of what came free.
    await new TestRouter(billing, account_id, key, false, a.id).open();
    const other = await new TestRouter(billing, account_id, key).open();
    await other.take(nano(5));
    const before = await metric('nebo_settlements_lost_rubles_total');
    expect((await a.settle(late)).body.settled).toHaveLength(3);
    expect((await a.settle(late)).body.settled).toHaveLength(3);
    expect(await row(account_id)).toEqual({ posted: nano(5), held: '0', leased: nano(5) });
    expect(
      await billing.sql('select amount, lost from settlement where account_id = $1 order by amount desc', [
        account_id,
      ]),
    ).toEqual([
      { amount: nano(4), lost: '0' },
      { amount: nano(3), lost: nano(2) },
      { amount: nano(1), lost: nano(1) },
    ]);
    expect(await metric('nebo_settlements_lost_rubles_total')).toBe(before + 3);
    // Sums of usage are those of the ledger: a loss is no usage that anybody paid.
    expect(
      await billing.sql('select sum(amount) as used from usage_record where account_id = $1', [account_id]),
    ).toEqual([{ used: nano(5) }]);
    // Somebody else's slice is no money of this router; more than the slice holds comes from what is available.
    await billing.admin('account-topup', { account: account_id, amount: '2' });
    const foreign = settlementOf({ account_id, key_id: key, slice_id: other.slice!.id, amount: nano(1) });
    await a.settle([foreign]);
    await other.settle([other.ended(nano(5.5)), other.ended(nano(9))]);
    expect(await row(account_id)).toEqual({ posted: '0', held: '0', leased: '0' });
    await addsUp();
  });

  it('an operation that stands in a batch in two ways is charged in the first of them that is right', async () => {
    const { account_id, key, a } = await world();
    await a.take(nano(20));
    const one = a.ended(nano(1));
    const wrongKey = { ...one, key_id: randomUUID() };
    const dearer = { ...one, amount: nano(3), description: 'another' };
    expect((await a.settle([wrongKey, one, dearer, one])).body).toEqual({
      settled: [one.operation_id, one.operation_id, one.operation_id],
      refused: [{ operation_id: one.operation_id, reason: 'the account has no such key' }],
    });
    expect(await row(account_id)).toEqual({ posted: nano(99), held: '0', leased: nano(19) });
    expect(await billing.sql('select used, captured from key_month where key_id = $1', [key])).toEqual([
      { used: nano(1), captured: nano(1) },
    ]);
    await addsUp();
  });

  it('a slice that does not cover its part is no matter of the others in the batch', async () => {
    const [rich, poor] = [await world('100', '50'), await world('10')];
    await rich.a.take(nano(30));
    const router = new TestRouter(billing, poor.account_id, poor.key, false, rich.a.id);
    router.epoch = rich.a.epoch;
    await router.take(nano(2));
    const batch = [
      router.ended(nano(1.5)),
      rich.a.ended(nano(4)),
      router.ended(nano(1.5)),
      router.ended(nano(9)),
      rich.a.ended(nano(5)),
    ];
    expect((await rich.a.settle(batch)).body.settled).toHaveLength(5);
    expect(await row(rich.account_id)).toEqual({ posted: nano(91), held: '0', leased: nano(21) });
    // 1.5 and 0.5 from the slice, 1 and 7 of the other 8 from what is available; 2 are lost.
    expect(await row(poor.account_id)).toEqual({ posted: '0', held: '0', leased: '0' });
    expect(
      await billing.sql(
        'select operation_id, amount, lost from settlement where account_id = $1 and lost > 0',
        [poor.account_id],
      ),
    ).toEqual([{ operation_id: batch[3]!.operation_id, amount: nano(9), lost: nano(2) }]);
    await addsUp();
  });

  it('503 while the database is away, and the same batch settles once afterwards', async () => {
    const { account_id, a } = await world();
    await a.take(nano(20));
    const batch = [a.ended(nano(1)), a.ended(nano(2))];
    await billing.sql('alter table settlement rename to settlement_away');
    const calls = [await a.settle(batch)];
    await billing.sql('alter table settlement_away rename to settlement');
    for (const answer of calls)
      expect(answer).toMatchObject({ status: 503, body: { error: { code: 'billing_unavailable' } } });
    expect((await a.settle(batch)).body.settled).toHaveLength(2);
    expect(await row(account_id)).toMatchObject({ posted: nano(97) });
  });

  it('500 of many accounts at once: each account gets its own', async () => {
    const worlds = await Promise.all([1, 2, 3, 4, 5].map(() => world()));
    const router = await new TestRouter(billing, worlds[0]!.account_id, worlds[0]!.key).open();
    const slices: string[] = [];
    for (const { account_id } of worlds) {
      const { body } = await router.call('take', { account_id, need: nano(50), want: nano(50) });
      slices.push(body.account.id as string);
    }
    const batch = Array.from({ length: 500 }, (_, index) => {
      const { account_id, key } = worlds[index % 5]!;
      return settlementOf({ account_id, key_id: key, slice_id: slices[index % 5]!, amount: nano(0.01) });
    });
    expect((await router.settle(batch)).body.settled).toHaveLength(500);
    for (const { account_id } of worlds)
      expect(await row(account_id)).toEqual({ posted: nano(99), held: '0', leased: nano(49) });
    await addsUp();
  });
});
