import { sharedPostgres } from '@nebo/test-kit';
import { type Ground, newCaller, type Router, startGround, startRouter, until } from '../../test/harness.js';

/** Parallel requests: 200 in `npm test`, as many as NEBO_PROOF says otherwise (1,000: inference-gateway.md, goal 10). */
const requests = Number(process.env['NEBO_PROOF'] || 200);
const replicas = 3;
const output = 100;
const messages = [{ role: 'user', content: 'hi' }];

describe('money for K of N parallel requests, three routers', () => {
  let ground: Ground;
  let routers: Router[] = [];
  beforeAll(async () => {
    ground = await startGround();
    routers = [];
    for (let index = 0; index < replicas; index += 1) routers.push(await startRouter({ ground }));
  });
  afterAll(async () => {
    for (const router of routers) await router.stop();
    await ground.billing.stop();
    await ground.upstream.stop();
    await (await sharedPostgres()).stop();
  });

  const ask = (index: number) =>
    routers[index % replicas]!.chat({ model: 'glm-5.3', messages, max_tokens: output });

  it.each([
    ['half of them', 2],
    ['a tenth of them', 10],
  ])(
    `never one too many, and at least 95 %% of K: money for %s of ${requests}`,
    async (_what, part) => {
      const { billing, upstream } = ground;
      // Each costs just what is held for it, so that not one more than K can ever be paid.
      const first = newCaller(billing);
      for (const router of routers) router.identity = first;
      await ask(0);
      const hold = [...billing.holds.values()].find(({ account }) => account === first.account_id)!.amount;
      const input = (hold - BigInt(output) * 240_000n) / 60_000n;
      const usage = { prompt_tokens: Number(input), completion_tokens: output };
      upstream.script(() => ({ usage, delay: 20 + Math.random() * 100 }));
      const most = Math.floor(requests / part);
      const identity = newCaller(billing, hold * BigInt(most));
      for (const router of routers) router.identity = identity;
      const answers = await Promise.all(
        Array.from({ length: requests }, async (_, index) => {
          const answer = await ask(index);
          return { status: answer.status, body: (await answer.json()) as { error?: { code: string } } };
        }),
      );
      const admitted = answers.filter(({ status }) => status === 200).length;
      const refused = answers.filter(({ status }) => status === 402);
      expect(admitted + refused.length).toBe(requests);
      for (const { body } of refused)
        expect(['insufficient_balance', 'held_in_flight']).toContain(body.error!.code);
      expect(admitted).toBeLessThanOrEqual(most);
      expect(admitted).toBeGreaterThanOrEqual(Math.floor(most * 0.95));
      const { slices } = billing;
      const account = identity.account_id;
      await until(() => slices.charged(account) === BigInt(admitted) * hold, 'all are charged');
      expect(slices.accounts.get(account)!.balance).toBe(hold * BigInt(most - admitted));
      expect(slices.violations).toEqual([]);
      expect(slices.lost).toBe(0n);
    },
    120_000,
  );
});
