import { randomUUID } from 'node:crypto';
import { type Billing, nano, operator, startBilling } from '../../test/billing.js';

describe('accounts', () => {
  let billing: Billing;
  beforeAll(async () => {
    billing = await startBilling();
  });
  afterAll(() => billing?.close());

  it('201 account-create makes account, owner, project default and first money, with audit rows', async () => {
    const made = await billing.admin('account-create', { name: 'Demo', topup: '1000000', credits: '500.25' });
    expect(made).toMatchObject({
      status: 201,
      body: {
        name: 'Demo',
        balance: {
          balance: '1000000.00',
          credits: '500.25',
          available: '1000500.25',
          credits_unlocked: true,
        },
      },
    });
    const { account_id, project_id } = made.body;
    expect((await billing.internal('GET', `owners/project/${project_id}`)).body.account_id).toBe(account_id);
    expect((await billing.internal('GET', `accounts/${account_id}`)).body).toMatchObject({
      account_id,
      name: 'Demo',
      state: 'active',
      tariff_plan: 'free',
    });
    const audit = await billing.sql<{ action: string }>(
      'select action from audit_entry where account_id = $1 order by seq',
      [account_id],
    );
    expect(audit.map((row) => row.action)).toEqual(['account topup', 'account credits', 'account create']);
    expect((await billing.internal('GET', 'operator/accounts')).body.data).toContainEqual(
      expect.objectContaining({ account_id }),
    );
    for (const body of [
      {},
      { name: '' },
      { name: 'x', topup: '-1' },
      { name: 'x', topup: '1e3' },
      { name: 'x', credits: 5 },
    ]) {
      expect((await billing.admin('account-create', body)).status).toBe(422);
    }
    expect((await billing.internal('GET', `accounts/${randomUUID()}`)).status).toBe(404);
  });

  it('200 top-ups add up; one operation id posts once, also when sent at once; 409 with another amount', async () => {
    const { account_id } = await billing.account();
    const topup = { account: account_id, amount: '10.000000001', operation_id: randomUUID() };
    const answers = await Promise.all(
      Array.from({ length: 10 }, () => billing.admin('account-topup', topup)),
    );
    expect(new Set(answers.map((answer) => `${answer.status} ${answer.body.transfer_id}`)).size).toBe(1);
    expect(await billing.balance(account_id)).toMatchObject({ balance: '10.000000001' });
    expect((await billing.admin('account-topup', { ...topup, amount: '11' })).body.error.code).toBe(
      'operation_reused',
    );
    const byHeader = () =>
      billing.nebo.request('identity-billing', {
        method: 'POST',
        path: '/internal/v1/operator/account-credits',
        as: operator,
        body: { account: account_id, amount: '1' },
        headers: { 'x-nebo-operation': 'op-1' },
      });
    await byHeader();
    expect((await byHeader()).body.balance.credits).toBe('1.00');
    expect((await billing.admin('account-topup', { account: account_id, amount: '0' })).status).toBe(422);
    expect((await billing.admin('account-topup', { account: randomUUID(), amount: '1' })).status).toBe(404);
  });

  it('422, not a failure, when the ledger cannot hold so much', async () => {
    const { account_id } = await billing.account();
    const statuses: number[] = [];
    for (let time = 0; time < 11; time += 1) {
      statuses.push(
        (await billing.admin('account-topup', { account: account_id, amount: '999999999' })).status,
      );
    }
    expect(statuses.at(0)).toBe(200);
    expect(statuses.at(-1)).toBe(422);
  });

  it('200 account answers the identity of the calling key', async () => {
    const { as, account_id } = await billing.account();
    expect(await billing.api('GET', 'account', { ...as, project_ids: ['p'] })).toMatchObject({
      status: 200,
      body: { account_id, key_id: as.key_id, policy: as.policy, project_ids: ['p'] },
    });
    expect(
      (await billing.nebo.request('identity-billing', { path: '/v1/account', as: operator })).status,
    ).toBe(401);
  });

  it('200 audit-log, newest first, for keys that may do everything; 403 for others', async () => {
    const { as, account_id, project_id } = await billing.account();
    const { id } = (await billing.api('POST', 'projects', as, { name: 'p' })).body;
    await billing.api('PATCH', `projects/${id}`, as, { emoji: '🙂' });
    await billing.api('DELETE', `projects/${id}`, as);
    const page = await billing.api('GET', 'audit-log?limit=3', as);
    expect(page).toMatchObject({ status: 200, body: { count: 3, total: 4 } });
    expect(
      page.body.data.map((entry: { actor: string; action: string; resource: string }) => [
        entry.actor,
        entry.action,
        entry.resource,
      ]),
    ).toEqual([
      [`key:${as.key_id}`, 'projects_delete_project', `project:${id}`],
      [`key:${as.key_id}`, 'projects_update_project', `project:${id}`],
      [`key:${as.key_id}`, 'projects_create_project', `project:${id}`],
    ]);
    const policy = [{ effect: 'allow' as const, actions: ['vm:*'], resources: ['*'] }];
    for (const less of [{ policy }, { project_ids: [project_id] }, { role: 'developer' as const }]) {
      expect(await billing.api('GET', 'audit-log', { ...as, ...less })).toMatchObject({
        status: 403,
        body: { error: { code: 'forbidden' } },
      });
    }
    const entry = {
      id: randomUUID(),
      account_id: account_id.toUpperCase(),
      action: 'vms_create_vm',
      resource: 'vm:1',
      details: { a: 1 },
    };
    for (let repeat = 0; repeat < 2; repeat += 1)
      expect((await billing.internal('POST', 'audit', entry)).status).toBe(204);
    expect((await billing.api('GET', 'audit-log', as)).body).toMatchObject({
      total: 5,
      data: expect.arrayContaining([
        expect.objectContaining({ actor: 'service:compute', action: 'vms_create_vm', details: { a: 1 } }),
      ]),
    });
  });

  it('503 billing_unavailable when the balance cannot be read: never zero, never "not enough"', async () => {
    const { as, account_id } = await billing.account('5');
    await billing.sql('alter table balance rename to balance_away');
    try {
      const reserve = { operation_id: 'x', account_id, kind: 'control', amount: nano(1), description: '' };
      for (const answer of [
        await billing.api('GET', 'account/balance', as),
        await billing.money('reserve', reserve),
      ]) {
        expect(answer).toMatchObject({ status: 503, body: { error: { code: 'billing_unavailable' } } });
        expect(answer.headers['retry-after']).toBe('5');
        expect(answer.text).not.toContain('relation');
      }
    } finally {
      await billing.sql('alter table balance_away rename to balance');
    }
    expect((await billing.api('GET', 'account/balance', as)).body.balance).toBe('5.00');
    const unknown = { ...as, account_id: randomUUID() };
    expect((await billing.api('GET', 'account/balance', unknown)).status).toBe(503);
  });
});
