import { sharedPostgres } from '@nebo/test-kit';
import { newCaller, plenty, type Router, startRouter, until } from '../../test/harness.js';

const messages = [{ role: 'user', content: 'hi' }];

/** inference-gateway.md, 4. */
describe('a client that hangs up', () => {
  let router: Router;
  beforeAll(async () => void (router = await startRouter()));
  beforeEach(() => {
    router.upstream.reset();
    router.billing.reset();
    router.identity = newCaller(router.billing);
  });
  afterAll(async () => {
    await router?.stop();
    await (await sharedPostgres()).stop();
  });

  /** Asks and leaves, before the first byte or after the first piece; answers how long the upstream stayed open. */
  async function leave(stream: boolean, when: 'before' | 'after'): Promise<number> {
    const client = new AbortController();
    const known = router.upstream.requests.length;
    const answer = router.chat({ model: 'glm-5.3', messages, stream }, { signal: client.signal });
    answer.catch(() => undefined);
    const seen = await until(() => router.upstream.requests[known], 'the upstream is asked');
    if (stream && when === 'after') {
      const reader = (await answer).body!.getReader();
      await reader.read();
      reader.closed.catch(() => undefined);
    } else {
      await new Promise((resolve) => setTimeout(resolve, when === 'after' ? 100 : 20));
    }
    const left = Date.now();
    client.abort();
    await Promise.race([seen.answered, new Promise((resolve) => setTimeout(resolve, 3_000).unref())]);
    return Date.now() - left;
  }
  const settled = () => until(() => router.billing.inState('held').length === 0, 'nothing is held');

  it.each([
    ['streamed, before the first byte', true, 'before', { hang: true }],
    ['streamed, in the middle', true, 'after', { chunkDelay: 200 }],
    ['plain, before the first byte', false, 'before', { hang: true }],
    ['plain, in the middle', false, 'after', { chunkDelay: 200 }],
  ] as const)('closes the upstream within 200 ms and is free: %s', async (_what, stream, when, answer) => {
    router.upstream.next(answer);
    expect(await leave(stream, when)).toBeLessThan(200);
    expect(router.upstream.requests.at(-1)!.aborted).toBe(true);
    await settled();
    expect(router.billing.available(router.identity.account_id)).toBe(plenty);
    const rows = await until(async () => {
      const found = await router.rows<{ outcome: string; status: number }>(
        `select outcome, status from request_log where key_id = '${router.identity.key_id}'`,
      );
      return found.length > 0 ? found : null;
    }, 'the row of the log');
    expect(rows).toEqual([{ outcome: 'aborted', status: 499 }]);
  });

  it('counters that had come before it left are billed', async () => {
    const piece = `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: 'x' } }], usage: { prompt_tokens: 10, completion_tokens: 1 } })}\n\n`;
    router.upstream.next({ raw: Array.from({ length: 50 }, () => piece), chunkDelay: 100 });
    await leave(true, 'after');
    await settled();
    expect(router.billing.inState('captured')[0]!.captured).toBeGreaterThanOrEqual(10n * 60_000n + 240_000n);
  });

  it('a key that does so again and again is read to its counters, and pays by them', async () => {
    for (let index = 0; index < 6; index += 1) {
      router.upstream.next({ chunkDelay: 200 });
      await leave(true, 'after');
      await settled();
    }
    expect(router.billing.available(router.identity.account_id)).toBe(plenty);
    router.upstream.next({
      chunks: ['a', 'b', 'c'],
      chunkDelay: 50,
      usage: { prompt_tokens: 10, completion_tokens: 3 },
    });
    await leave(true, 'after');
    await settled();
    expect(router.upstream.requests.at(-1)!.aborted).toBe(false);
    expect(router.billing.available(router.identity.account_id)).toBe(plenty - 10n * 60_000n - 3n * 240_000n);
    await until(
      async () =>
        (
          await router.rows(
            `select 1 from request_log where outcome = 'drained' and key_id = '${router.identity.key_id}'`,
          )
        ).length,
      'the row',
    );
  });
});
