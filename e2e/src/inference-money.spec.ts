import { formatRubles, type InferenceIdentity, parseRubles } from '@nebo/contracts';
import { until } from '../harness/nebo.js';
import { MoneyGround } from '../harness/routers.js';

/** Parallel requests; kills of everything: 3, or a twentieth of NEBO_PROOF when that is more. */
const requests = Number(process.env['NEBO_PROOF'] || 200);
const kills = Math.max(3, Math.floor(Number(process.env['NEBO_PROOF'] || 0) / 20));
const output = 100;
const usage = { prompt_tokens: 10, completion_tokens: 5 };
const cost = 10n * 60_000n + 5n * 240_000n;

interface Account {
  posted: string;
  held: string;
  leased: string;
}

/** The real identity-billing and three real routers, each a process of its own. */
describe('money of inference, between the real services', () => {
  let ground: MoneyGround;
  beforeAll(async () => {
    ground = await MoneyGround.start();
  });
  afterAll(() => ground?.dispose());

  const money = async ({ account_id: id }: InferenceIdentity) => {
    const [row] = await ground.sql<Account>(
      'select posted, held, leased from balance where account_id = $1',
      [id],
    );
    return { posted: BigInt(row!.posted), held: BigInt(row!.held), leased: BigInt(row!.leased) };
  };
  const settled = ({ account_id: id }: InferenceIdentity) =>
    ground.sql<{ operation_id: string; amount: string; lost: string }>(
      'select operation_id, amount, lost from settlement where account_id = $1',
      [id],
    );

  it(`money for K of ${requests} parallel requests: not one too many, at least 95 % of K`, async () => {
    // A hold is input bound and ceiling at their prices; with usage at both bounds a request costs what it holds.
    const bound = 1_024 + 64 + 'hi'.length;
    const hold = BigInt(bound) * 60_000n + BigInt(output) * 240_000n;
    ground.upstream.script(() => ({
      usage: { prompt_tokens: bound, completion_tokens: output },
      delay: 20 + Math.random() * 100,
    }));
    const most = Math.floor(requests / 2);
    const identity = await ground.account(formatRubles(hold * BigInt(most)));
    const answers = await Promise.all(
      Array.from({ length: requests }, async (_, index) => {
        const answer = await ground.chat(ground.routers[index % 3]!, identity, { max_tokens: output });
        return { status: answer.status, cost: answer.headers.get('x-nebo-cost'), text: await answer.text() };
      }),
    );
    const paid = answers.filter(({ status }) => status === 200);
    for (const { status, text } of answers)
      if (status !== 200) expect([status, text]).toEqual([402, expect.stringContaining('billing_error')]);
    for (const { cost: price } of paid) expect(parseRubles(price!)).toBe(hold);
    expect(paid.length).toBeLessThanOrEqual(most);
    expect(paid.length).toBeGreaterThanOrEqual(Math.floor(most * 0.95));
    await until(async () => (await settled(identity)).length === paid.length, 15_000);
    const rows = await settled(identity);
    expect(rows.filter(({ lost }) => lost !== '0')).toEqual([]);
    expect((await money(identity)).posted).toBe(hold * BigInt(most - paid.length));
  }, 180_000);

  it(`kill -9 of routers, of identity-billing and of PostgreSQL, ${kills} times under streams`, async () => {
    const identity = await ground.account('100000');
    const before = (await money(identity)).posted;
    ground.upstream.script(() => ({ chunks: ['a', 'b'], usage, chunkDelay: Math.floor(Math.random() * 8) }));
    const complete = new Set<string>();
    for (let round = 0; round < kills; round += 1) {
      let over = false;
      const client = async (index: number) => {
        while (!over) {
          try {
            const answer = await ground.chat(ground.routers[index % 3]!, identity, { stream: true });
            const text = await answer.text();
            if (answer.status === 200 && text.endsWith('data: [DONE]\n\n'))
              complete.add(answer.headers.get('x-nebo-ledger-id')!);
            else await new Promise((resolve) => setTimeout(resolve, 20));
          } catch {
            await new Promise((resolve) => setTimeout(resolve, 20));
          }
        }
      };
      const had = complete.size;
      const load = Array.from({ length: 12 }, (_, index) => client(index));
      await until(() => complete.size > had + 24, 60_000);
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 300));
      const router = ground.routers[round % 3]!;
      const others = round % 3;
      if (others === 1) await ground.billing.end('SIGKILL');
      if (others === 2) await ground.postgres.kill();
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 200));
      await router.end('SIGKILL');
      over = true;
      await Promise.all(load);
      if (others === 2) await ground.postgres.restart();
      if (others === 1) await ground.billing.up();
      await ground.billing.ready();
      await router.up();
      await router.ready();
    }
    // A stop delivers and gives back; what a killed one held was freed by its next life.
    for (const router of ground.routers) await router.end('SIGTERM');
    const rows = await settled(identity);
    const ledger = new Set(rows.map(({ operation_id }) => operation_id));
    expect([...complete].filter((id) => !ledger.has(id))).toEqual([]);
    expect(ledger.size).toBe(rows.length);
    for (const row of rows) expect(row).toMatchObject({ amount: cost.toString(), lost: '0' });
    expect(await money(identity)).toEqual({
      posted: before - BigInt(rows.length) * cost,
      held: 0n,
      leased: 0n,
    });
    expect(await ground.internal('POST', 'money/reconcile', {})).toMatchObject({ ok: true, differences: [] });
    for (const router of ground.routers) await router.up();
  }, 900_000);
});
