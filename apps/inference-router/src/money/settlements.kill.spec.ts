import { sharedPostgres } from '@nebo/test-kit';
import { account, type Ground, plenty, startGround, until } from '../../test/harness.js';
import { RouterProcess } from '../../test/router-process.js';

/** Kills: 3, or a twentieth of NEBO_PROOF when that is more (`npm run proof -- inference`). */
const rounds = Math.max(3, Math.floor(Number(process.env['NEBO_PROOF'] || 0) / 20));
const clients = 16;
const usage = { prompt_tokens: 10, completion_tokens: 5 };
const cost = 10n * 60_000n + 5n * 240_000n;

describe('a router that is killed', () => {
  let ground: Ground;
  let router: RouterProcess;
  beforeAll(async () => {
    ground = await startGround();
    router = new RouterProcess(ground);
  });
  afterAll(async () => {
    await router?.dispose();
    await ground?.billing.stop();
    await ground?.upstream.stop();
    await (await sharedPostgres()).stop();
  });

  /** One client: asks again and again until nobody answers. Notes each answer whose last byte came. */
  async function client(complete: Set<string>, isOver: () => boolean): Promise<void> {
    while (!isOver()) {
      try {
        const isStream = Math.random() < 0.7;
        const answer = await router.chat({ stream: isStream });
        const text = await answer.text();
        const isWhole = isStream ? text.endsWith('data: [DONE]\n\n') : text.endsWith('}');
        if (answer.status === 200 && isWhole) complete.add(answer.headers.get('x-nebo-ledger-id')!);
      } catch {
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    }
  }

  it(`loses no answer whose last byte came, charges none twice, leaves nothing leased: ${rounds} kills`, async () => {
    ground.upstream.script(() => ({
      chunks: ['a', 'b', 'c'],
      usage,
      chunkDelay: Math.floor(Math.random() * 8),
    }));
    const { billing } = ground;
    const complete = new Set<string>();
    await router.start();
    for (let round = 0; round < rounds; round += 1) {
      await until(() => router.isReady(), 'ready', 30_000);
      // Whatever a former life had was freed by the opening of this one.
      expect(billing.slices.leased(account)).toBe(0n);
      const before = complete.size;
      let over = false;
      const load = Array.from({ length: clients }, () => client(complete, () => over));
      await until(() => complete.size > before + clients, 'answers come', 30_000);
      // In some rounds nothing reaches the ledger before the kill, or only the answers are lost.
      if (round % 3 === 1) billing.away = /settle/;
      if (round % 3 === 2) billing.mute = /settle/;
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 500));
      await router.end('SIGKILL');
      over = true;
      await Promise.all(load);
      billing.away = billing.mute = null;
      await router.start();
    }
    await until(() => router.isReady(), 'ready', 30_000);
    const missing = [...complete].filter((id) => billing.times(id) === 0);
    expect(missing).toEqual([]);
    expect(complete.size).toBeGreaterThan(rounds * clients);
    for (const { settlement } of billing.slices.ledger.values()) expect(BigInt(settlement.amount)).toBe(cost);
    expect(billing.available(account)).toBe(plenty - BigInt(billing.slices.ledger.size) * cost);
    expect(billing.slices.leased(account)).toBe(0n);
    expect(billing.slices.violations).toEqual([]);
    expect(billing.slices.lost).toBe(0n);
    // It still works, and SIGTERM leaves nothing behind either.
    expect((await router.chat({})).status).toBe(200);
    expect(await router.end('SIGTERM')).toBe(0);
    expect(billing.slices.leased(account)).toBe(0n);
  }, 1_200_000);
});
