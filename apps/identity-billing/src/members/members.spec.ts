import { type Billing, startBilling } from '../../test/billing.js';

describe('the roles of members', () => {
  let billing: Billing;
  beforeAll(async () => {
    billing = await startBilling();
  }, 60_000);
  afterAll(() => billing?.close());

  it('of several changes at once none leaves the account without an owner', async () => {
    const { account_id, owner_id } = await billing.account();
    const other = (await billing.admin('member-add', { account: account_id, name: 'B', role: 'reader' })).body
      .id as string;
    const client = await billing.connect();
    try {
      await client.query('begin');
      await client.query('select id from account where id = $1::uuid for update', [account_id]);
      // It has looked at the member, who is a reader still, and waits for its turn.
      const last = billing.admin('member-role', { member: other, role: 'reader' });
      for (let waits = false; !waits;) {
        const { rows } = await client.query<{ waits: boolean }>(
          'select count(*) > 0 as waits from pg_locks where not granted',
        );
        waits = rows[0]!.waits;
        if (!waits) await new Promise((resolve) => setTimeout(resolve, 10));
      }
      // Meanwhile the other one has become the only owner.
      await client.query(`update member set role = 'owner' where id = $1::uuid`, [other]);
      await client.query(`update member set role = 'reader' where id = $1::uuid`, [owner_id]);
      await client.query('commit');
      expect((await last).body.error.code).toBe('last_owner');
      const { rows } = await client.query('select id from member where account_id = $1::uuid and role = $2', [
        account_id,
        'owner',
      ]);
      expect(rows).toEqual([{ id: other }]);
    } finally {
      client.release();
    }
  });
});
