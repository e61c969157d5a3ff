import { randomUUID } from 'node:crypto';
import { type Billing, nano, startBilling } from '../../test/billing.js';
import { TestRouter } from '../../test/routers.js';

describe('reconciliation', () => {
  let billing: Billing;
  let account: string;
  let key: string;
  beforeAll(async () => {
    billing = await startBilling();
    account = (await billing.account('1000', '100')).account_id;
    key = (await billing.admin('inference-key-create', { account, monthly_limit: '50' })).body.id;
    for (const [kind, end] of [
      ['control', 'capture'],
      ['control', 'void'],
      ['inference', 'capture'],
      ['inference', ''],
      ['control', 'refund'],
    ]) {
      const call = { operation_id: randomUUID(), account_id: account, description: 'x' };
      await billing.money('reserve', {
        ...call,
        kind,
        amount: nano(10),
        ...(kind === 'inference' ? { key_id: key } : {}),
        expires_in_seconds: 3_600,
      });
      if (end === 'refund') await billing.money('capture', call);
      if (end) await billing.money(end, call);
    }
    const router = await new TestRouter(billing, account, key, true).open();
    await router.take(nano(4));
    await router.settle([router.ended(nano(1))]);
    const span = {
      operation_id: 's',
      account_id: account,
      resource: 'r',
      amount_per_month: nano(5),
      description: '',
    };
    await billing.money('span-open', { ...span, started_at: new Date(Date.now() - 9_000_000).toISOString() });
    await billing.money('span-close', { ...span, ended_at: new Date().toISOString() });
  });
  afterAll(() => billing?.close());

  const run = async () => (await billing.internal('POST', 'money/reconcile')).body;
  const health = async () => {
    const { parts } = (await billing.nebo.request('identity-billing', { path: '/healthz', as: null })).body;
    return parts.find((part: { name: string }) => part.name === 'ledger');
  };

  it('finds nothing where nothing was touched', async () => {
    expect(await run()).toMatchObject({ ok: true, differences: [] });
    expect(await health()).toMatchObject({
      ok: true,
      required: false,
      detail: expect.stringContaining('reconciled at'),
    });
  });

  it.each([
    ['posted money', 'update balance set posted = posted + 1', ['balance.posted']],
    ['held money', 'update balance set held = held + 1', ['balance.held', 'balance.held by reservations']],
    ['credits', 'update balance set credits = credits + 1', ['balance.credits']],
    ['the sum of top-ups', 'update balance set topup_total = topup_total + 1', ['balance.topup_total']],
    [
      'a reservation',
      "update reservation set amount = amount + 1 where state = 'held'",
      ['balance.held by reservations', /^key month .* used$/],
    ],
    ['the spending of a key', 'update key_month set used = used + 1', [/^key month .* used$/]],
    ['leased money', 'update balance set leased = leased + 1', ['balance.leased by slices']],
    ['leased limit', 'update key_month set leased = leased + 1', [/^key month .* leased by slices$/]],
    ['a slice', 'update slice set amount = amount + 1 where key_id is null', ['balance.leased by slices']],
    ['a span', 'update span set charged = charged + 1', ['span s']],
  ])('finds a changed %s, tells it and mends nothing', async (_name, change, subjects) => {
    const undo = change.replace(' + 1', ' - 1');
    await billing.sql(change);
    const report = await run();
    expect(report.ok).toBe(false);
    expect(report.differences.map((row: { subject: string }) => row.subject)).toEqual(
      subjects.map((subject) => (subject instanceof RegExp ? expect.stringMatching(subject) : subject)),
    );
    for (const { account_id, recorded, computed } of report.differences) {
      expect(account_id).toBe(account);
      expect(recorded).not.toBe(computed);
    }
    expect(await health()).toMatchObject({ ok: false, detail: expect.stringContaining('differences') });
    const { text } = await billing.nebo.request('identity-billing', { path: '/metrics', as: null });
    expect(text).toContain(`nebo_ledger_differences{service="identity-billing"} ${subjects.length}`);
    expect((await run()).differences).toEqual(report.differences);
    await billing.sql(undo);
    expect(await run()).toMatchObject({ ok: true });
  });

  it('finds a line that was slipped in past the triggers', async () => {
    await billing.sql('alter table ledger_line disable trigger all');
    const [line] = await billing.sql<{ id: string }>(
      `insert into ledger_line (transfer_id, account_id, book, amount)
       select id, account_id, 'money', 7 from transfer where kind = 'topup' limit 1 returning id`,
    );
    const report = await run();
    expect(report.differences.map((row: { subject: string }) => row.subject)).toEqual([
      'balance.posted',
      'sum of all lines',
      expect.stringMatching(/^transfer /),
    ]);
    await billing.sql('delete from ledger_line where id = $1', [line!.id]);
    await billing.sql('alter table ledger_line enable trigger all');
    expect(await run()).toMatchObject({ ok: true });
  });
});
