import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { sharedPostgres } from '@nebo/test-kit';
import { type Billing, nano, startBilling } from '../../test/billing.js';

const script = fileURLToPath(new URL('../../test/slice-spender.mjs', import.meta.url));
/** Rounds of each kill: 2, or a hundredth of NEBO_PROOF when that is more. */
const rounds = Math.max(2, Math.floor(Number(process.env['NEBO_PROOF'] || 0) / 100));

interface End {
  operation_id: string;
  amount: string;
  month: string;
}

describe('kill -9 of routers with slices', () => {
  let billing: Billing;
  beforeAll(async () => {
    billing = await startBilling();
  });
  afterAll(() => billing?.close());

  interface Life {
    child: ChildProcess;
    ended: Promise<void>;
    lines(): string[];
  }

  const start = (router: string, account: string, key: string): Life => {
    const url = billing.nebo.runtime.databaseUrl('identity_billing');
    const child = spawn(process.execPath, [script, url, router, account, key], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let text = '';
    child.stdout.on('data', (chunk: Buffer) => (text += chunk.toString()));
    const ended = new Promise<void>((resolve) => child.once('close', () => resolve()));
    return { child, ended, lines: () => text.split('\n').slice(0, -1) };
  };
  const until = async (condition: () => boolean | Promise<boolean>) => {
    for (let waited = 0; !(await condition()); waited += 20) {
      if (waited > 20_000) throw new Error('waited for 20 s');
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };
  const world = async () => {
    const { account_id } = await billing.account('100000');
    const key = (
      await billing.admin('inference-key-create', { account: account_id, monthly_limit: '100000' })
    ).body.id as string;
    return { account_id, key, ids: [randomUUID(), randomUUID()] };
  };

  /** Sends each log again, begins a new life, and looks that everything was charged once and all money is back. */
  const replay = async (account: string, key: string, ids: string[], logs: string[][]) => {
    for (const [index, router_id] of ids.entries()) {
      const ends = logs[index]!.filter((line) => line.startsWith('end ')).map(
        (line) => JSON.parse(line.slice(4)) as End,
      );
      for (let from = 0; from < ends.length; from += 500) {
        const settlements = ends
          .slice(from, from + 500)
          .map((end) => ({ ...end, month: end.month.slice(0, 7) }));
        const { body } = await billing.internal('POST', 'slices/settle', { router_id, settlements });
        expect(body).toEqual({ settled: settlements.map((end) => end.operation_id), refused: [] });
      }
      expect((await billing.internal('POST', 'slices/open', { router_id })).status).toBe(200);
    }
    const lines = logs.flat();
    const ends = lines
      .filter((line) => line.startsWith('end '))
      .map((line) => JSON.parse(line.slice(4)) as End);
    const rows = await billing.sql<{ operation_id: string; amount: string; lost: string }>(
      'select operation_id, amount, lost from settlement where account_id = $1',
      [account],
    );
    expect(rows.map((row) => row.operation_id).sort()).toEqual(ends.map((end) => end.operation_id).sort());
    expect(rows.filter((row) => row.lost !== '0')).toEqual([]);
    const spent = ends.reduce((sum, end) => sum + BigInt(end.amount), 0n);
    expect(
      await billing.sql('select posted, held, leased from balance where account_id = $1', [account]),
    ).toEqual([{ posted: `${BigInt(nano(100_000)) - spent}`, held: '0', leased: '0' }]);
    expect(await billing.sql('select used, leased from key_month where key_id = $1', [key])).toEqual([
      { used: `${spent}`, leased: '0' },
    ]);
    expect((await billing.internal('POST', 'money/reconcile')).body).toMatchObject({
      ok: true,
      differences: [],
    });
  };
  /** What PostgreSQL has acknowledged is there before anything is sent again. */
  const acknowledged = async (account: string, logs: string[][]) => {
    const rows = await billing.sql<{ operation_id: string }>(
      'select operation_id from settlement where account_id = $1',
      [account],
    );
    const known = new Set(rows.map((row) => row.operation_id));
    const lost = logs.flat().filter((line) => line.startsWith('settled ') && !known.has(line.slice(8)));
    expect(lost).toEqual([]);
  };

  it(
    'each settlement of the log is charged once, and the next life has all the money',
    async () => {
      const { account_id, key, ids } = await world();
      const logs: string[][] = ids.map(() => []);
      for (let round = 0; round < rounds; round += 1) {
        const lives = ids.map((id) => start(id, account_id, key));
        await until(() => lives.every((life) => life.lines().length > 12 + 5 * round));
        for (const { child } of lives) child.kill('SIGKILL');
        await Promise.all(lives.map((life) => life.ended));
        lives.forEach((life, index) => logs[index]!.push(...life.lines()));
        // The killed processes' connections end with their last statement.
        await until(
          async () =>
            (
              await billing.sql(
                "select 1 from pg_stat_activity where query like '%slice_%' and application_name = '' and state = 'active' and pid <> pg_backend_pid()",
              )
            ).length === 0,
        );
        await acknowledged(account_id, logs);
        await replay(account_id, key, ids, logs);
      }
    },
    60_000 + rounds * 5_000,
  );

  it(
    'the same when PostgreSQL is killed: 503 meanwhile, nothing acknowledged is lost, nothing is charged twice',
    async () => {
      const { account_id, key, ids } = await world();
      const postgres = await sharedPostgres();
      const logs: string[][] = ids.map(() => []);
      for (let round = 0; round < rounds; round += 1) {
        const lives = ids.map((id) => start(id, account_id, key));
        await until(() => lives.every((life) => life.lines().length > 12 + 5 * round));
        await postgres.kill();
        await Promise.all(lives.map((life) => life.ended));
        lives.forEach((life, index) => logs[index]!.push(...life.lines()));
        const caller = { router_id: ids[0], epoch: 1 };
        for (const [name, body] of [
          ['open', { router_id: ids[0] }],
          ['take', { ...caller, account_id, need: '1', want: '1' }],
          ['renew', { ...caller, slices: [] }],
          ['return', { ...caller, slices: [] }],
          [
            'settle',
            {
              router_id: ids[0],
              settlements: [{ ...(JSON.parse(logs[0]![0]!.slice(4)) as End), month: '2026-11' }],
            },
          ],
        ] as const)
          expect(await billing.internal('POST', `slices/${name}`, body)).toMatchObject({
            status: 503,
            body: { error: { code: 'billing_unavailable' } },
          });
        await postgres.restart();
        await until(
          async () => (await billing.internal('GET', `money/balance/${account_id}`)).status === 200,
        );
        await acknowledged(account_id, logs);
        await replay(account_id, key, ids, logs);
      }
    },
    60_000 + rounds * 20_000,
  );
});
