import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { sharedPostgres } from '@nebo/test-kit';
import { type Billing, nano, startBilling } from '../../test/billing.js';

const script = fileURLToPath(new URL('../../test/spender.mjs', import.meta.url));
/** Rounds of each kill: 3, or a hundredth of NEBO_PROOF when that is more. */
const rounds = Math.max(3, Math.floor(Number(process.env['NEBO_PROOF'] || 0) / 100));

describe('kill -9 in the middle of spending', () => {
  let billing: Billing;
  beforeAll(async () => {
    billing = await startBilling();
  });
  afterAll(() => billing?.close());

  interface Spender {
    child: ChildProcess;
    ended: Promise<void>;
    acknowledged(): string[];
  }

  function startSpender(account: string, name: string): Spender {
    const url = billing.nebo.runtime.databaseUrl('identity_billing');
    const child = spawn(process.execPath, [script, url, account, name], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let text = '';
    child.stdout.on('data', (chunk: Buffer) => (text += chunk.toString()));
    const ended = new Promise<void>((resolve) => child.once('close', () => resolve()));
    return { child, ended, acknowledged: () => text.split('\n').slice(0, -1) };
  }

  const until = async (condition: () => boolean | Promise<boolean>) => {
    for (let waited = 0; !(await condition()); waited += 20) {
      if (waited > 20_000) throw new Error('waited for 20 s');
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };

  /** Everything that was acknowledged is there, nothing is half done, and the ledger adds up. */
  async function check(account: string, acknowledged: string[]): Promise<void> {
    const rows = await billing.sql<{ operation_id: string; state: string }>(
      'select operation_id, state from reservation where account_id = $1',
      [account],
    );
    const states = new Map(rows.map((row) => [row.operation_id, row.state]));
    for (const line of acknowledged) {
      const [step, id] = line.split(' ') as [string, string];
      expect([line, states.get(id)]).toEqual([
        line,
        step === 'capture' ? 'captured' : expect.stringMatching(/held|captured/),
      ]);
    }
    expect((await billing.internal('POST', 'money/reconcile')).body).toMatchObject({
      ok: true,
      differences: [],
    });
  }

  it(
    'of spenders: at most the step at hand is open, and it gives its money back when its time is over',
    async () => {
      const { account_id } = await billing.account('1000000');
      const acknowledged: string[] = [];
      for (let round = 0; round < rounds; round += 1) {
        const spenders = [1, 2].map((number) => startSpender(account_id, `${round}-${number}`));
        await until(() => spenders.every((spender) => spender.acknowledged().length > 5 + round));
        for (const { child } of spenders) child.kill('SIGKILL');
        await Promise.all(spenders.map((spender) => spender.ended));
        acknowledged.push(...spenders.flatMap((spender) => spender.acknowledged()));
      }
      // The killed processes' connections end with their last statement.
      await until(
        async () =>
          (
            await billing.sql(
              "select 1 from pg_stat_activity where query like '%money_%' and application_name = '' and state = 'active' and pid <> pg_backend_pid()",
            )
          ).length === 0,
      );
      await check(account_id, acknowledged);
      const held = await billing.sql("select 1 from reservation where account_id = $1 and state = 'held'", [
        account_id,
      ]);
      expect(held.length).toBeLessThanOrEqual(2 * rounds);
      await billing.sql(
        "update reservation set expires_at = now() where state = 'held' and account_id = $1",
        [account_id],
      );
      await until(
        async () =>
          (
            await billing.sql("select 1 from reservation where account_id = $1 and state = 'held'", [
              account_id,
            ])
          ).length === 0,
      );
      const { balance, available } = await billing.balance(account_id);
      expect(available).toBe(balance);
      await check(
        account_id,
        acknowledged.filter((line) => line.startsWith('capture')),
      );
    },
    60_000 + rounds * 5_000,
  );

  it(
    'of PostgreSQL: nothing that was acknowledged is lost, calls answer 503 meanwhile, and the service goes on by itself',
    async () => {
      const { account_id, as } = await billing.account('1000000');
      const postgres = await sharedPostgres();
      const acknowledged: string[] = [];
      for (let round = 0; round < rounds; round += 1) {
        const spenders = [1, 2].map((number) => startSpender(account_id, `${round}-${number}`));
        await until(() => spenders.every((spender) => spender.acknowledged().length > 5 + round));
        await postgres.kill();
        await Promise.all(spenders.map((spender) => spender.ended));
        const reserve = {
          operation_id: `away-${round}`,
          account_id,
          kind: 'control',
          amount: nano(1),
          description: '',
        };
        expect(await billing.money('reserve', reserve)).toMatchObject({
          status: 503,
          body: { error: { code: 'billing_unavailable' } },
        });
        await postgres.restart();
        acknowledged.push(...spenders.flatMap((spender) => spender.acknowledged()));
        await until(async () => (await billing.money('reserve', reserve)).status === 200);
        await until(async () => (await billing.api('GET', 'account/ledger', as)).status === 200);
        await check(account_id, acknowledged);
      }
    },
    60_000 + rounds * 20_000,
  );
});
