/**
 * What users of other gateways complain about, each as a test: money, hang-ups, weight. What their formats lose, and what
 * fallback gets wrong: complaints.formats.spec.ts. Where a complaint has had its test all along, it is this one:
 *
 * | complaint | spec |
 * | --- | --- |
 * | BerriAI/litellm#34732, membrane/api-gateway#3210, danny-avila/LibreChat#15879: parallel requests all pass the check | money/overspend.spec.ts; e2e/src/inference-money.spec.ts with 1,000 of them |
 * | songquanpeng/one-api#2440, QuantumNous/new-api#5690: a deduction without a guard | slices.races.spec.ts of identity-billing |
 * | theopenco/llmgateway#3331: the answer is read, the counters are not waited for, nothing is paid | completions/hang-up.spec.ts (drain mode), requests/drain-mode.spec.ts |
 * | theopenco/llmgateway#3443, #3505, #3546, QuantumNous/new-api#4168, #5288: broken streams billed by an estimate | formats/chat/chat.stream.spec.ts ("a cut …"), completions/hang-up.spec.ts |
 * | BerriAI/litellm#13546, songquanpeng/one-api#414: latency and a database write with each request | money/settlements.spec.ts ("cost no call on the way"), tools/bench/inference |
 * | maximhq/bifrost#5673: a budget by another name is silently none | keys.spec.ts of identity-billing ("422 for a field that is none") |
 * | BerriAI/litellm#18708, #6895: deadlocks of those who write what was spent | slices.races.spec.ts of identity-billing ("no deadlock") |
 * | BerriAI/litellm#12685: memory that grows while the database hangs | requests/request-log.spec.ts |
 */
import { formatRubles } from '@nebo/contracts';
import { sharedPostgres } from '@nebo/test-kit';
import { generationRoutes } from './formats/formats.js';
import { Purses } from './money/purses.js';
import { type AnyFormat, anyFormat, askIn, type AskOptions } from '../test/formats.js';
import { hangInTheMiddle, newCaller, plenty, type Router, startRouter, until } from '../test/harness.js';

const usage = { prompt_tokens: 10, completion_tokens: 3 };
/** Of glm-5.3, 10⁻⁹ rubles. */
const cost = 10n * 60_000n + 3n * 240_000n;
const [chat] = anyFormat as [AnyFormat];
const byStream = anyFormat.flatMap((format) =>
  [false, true].map((stream) => [format.name, stream ? 'streamed' : 'plain', format, stream] as const),
);

interface Refusal {
  error: { type: string; code: string; message: string; affordable_max_tokens?: number };
}

describe('complaints about money', () => {
  let router: Router;
  beforeAll(async () => {
    router = await startRouter({ env: { NEBO_UPSTREAM_IDLE_TIMEOUT: '1' } });
  });
  beforeEach(() => {
    router.upstream.reset();
    router.upstream.script(() => ({ usage }));
    router.billing.reset();
    router.identity = newCaller(router.billing);
  });
  afterAll(async () => {
    await router?.stop();
    await (await sharedPostgres()).stop();
  });

  const ask = (options: AskOptions = {}, format = chat) => askIn(router, format, options);
  const held = () =>
    router.nebo.services.get('inference-router')!.app.get(Purses).sums(router.identity.account_id).held;
  const left = () => router.billing.available(router.identity.account_id);
  /** The worst case of `hi` with so much output, as it is held. */
  const holdOf = async (options: AskOptions, format = chat) => {
    const former = router.identity;
    router.identity = newCaller(router.billing);
    await (await ask(options, format)).text();
    const { account_id: account } = router.identity;
    const hold = [...router.billing.holds.values()].find((one) => one.account === account)!;
    router.identity = former;
    return hold.amount;
  };
  /** From now on a key whose month ends with so much. */
  const useKey = (available: bigint, limit: bigint) => {
    router.identity = newCaller(router.billing, available, { monthly_limit: formatRubles(limit) });
    router.billing.slices.limits.set(router.identity.key_id, limit);
  };
  const refusalOf = async (answer: Response) => (await answer.json()) as Refusal;

  it('money is held for rich accounts too, not only for those near zero (songquanpeng/one-api#2440)', async () => {
    router.upstream.next({ hang: true });
    const gone = new AbortController();
    const asked = ask({ signal: gone.signal }).catch(() => 'left');
    await until(() => router.upstream.calls() === 1, 'the vendor is asked');
    expect(left()).toBe(plenty);
    expect(held()).toBeGreaterThan(4_096n * 240_000n);
    gone.abort();
    expect(await asked).toBe('left');
    await until(() => held() === 0n, 'nothing is held');
  });

  it('the first requests of a new customer, all at once, do not all pass (BerriAI/litellm#40095)', async () => {
    const hold = await holdOf({ maxTokens: 100 });
    useKey(2n * hold, plenty);
    const calls = router.upstream.calls();
    router.upstream.script(() => ({ usage, delay: 300 }));
    const answers = await Promise.all(Array.from({ length: 20 }, () => ask({ maxTokens: 100 })));
    const admitted = answers.filter(({ status }) => status === 200).length;
    expect(answers.every(({ status }) => status === 200 || status === 402)).toBe(true);
    expect(admitted).toBeGreaterThanOrEqual(2);
    expect(router.upstream.calls() - calls).toBe(admitted);
    expect(cost * BigInt(admitted)).toBeLessThanOrEqual(2n * hold);
    await until(() => left() === 2n * hold - cost * BigInt(admitted), 'each is paid');
  });

  it.each(byStream)(
    'a limit holds on every path that asks a model: %s, %s (BerriAI/litellm#27381, #26672, maximhq/bifrost#2873)',
    async (_name, _way, format, stream) => {
      useKey(plenty, 50_000_000n);
      const limited = await ask({ stream, maxTokens: 4_096 }, format);
      expect(limited.status).toBe(402);
      expect(await refusalOf(limited)).toMatchObject({
        error: { type: 'billing_error', code: 'key_limit_reached' },
      });
      router.identity = newCaller(router.billing, 1_000n);
      expect((await ask({ stream }, format)).status).toBe(402);
      expect(router.upstream.calls()).toBe(0);
    },
  );

  it('there is no path to a model beside those that hold money (maximhq/bifrost#2873)', async () => {
    expect(generationRoutes.map(({ path }) => path)).toEqual(anyFormat.map(({ path }) => path));
    router.identity = newCaller(router.billing, 0n);
    for (const path of ['/v1/completions', '/v1/chat/completions/x', '/v1/embeddings', '/v1/responses/x']) {
      const answer = await fetch(`${router.url}${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ model: 'glm-5.3', ...chat.body(10) }),
      });
      expect([path, answer.status]).toEqual([path, 404]);
    }
    expect(router.upstream.calls()).toBe(0);
  });

  it('what a request did not use is free for the next at once: nothing adds up beside the bill (BerriAI/litellm#40020)', async () => {
    const hold = await holdOf({ maxTokens: 1_000 });
    const calls = router.upstream.calls();
    // Money, and a limit, for one of them at a time; their bills together are less than one hold.
    useKey(hold + 30n * cost, hold + 30n * cost);
    for (let index = 0; index < 30; index += 1) expect((await ask({ maxTokens: 1_000 })).status).toBe(200);
    expect(router.upstream.calls() - calls).toBe(30);
    await until(() => left() === hold, 'thirty bills, and nothing else, are gone');
  });

  it.each([
    ['an answer', { usage }, true],
    ['an answer without counters', { usage: null }, true],
    ['a connection that is refused', { refuse: true }, false],
    ['a 400 of the vendor', { status: 400 }, false],
    ['a 500 of the vendor', { status: 500 }, false],
    ['a stream that is cut', { cutAfter: 2 }, true],
    ['a stream that stops coming', { handle: hangInTheMiddle }, true],
  ])('nothing stays held after %s (BerriAI/litellm#27639)', async (_what, answer, isStream) => {
    for (const format of anyFormat) {
      router.upstream.next(answer, answer);
      await (await ask({ stream: isStream }, format)).text().catch(() => undefined);
      router.upstream.reset();
    }
    await until(() => held() === 0n, 'nothing is held');
    await until(() => router.billing.inState('held').length === 0, 'nothing is held');
  });

  it('a request without a ceiling holds its format’s, and leaves the rest to others (BerriAI/litellm#27509)', async () => {
    const tokens = { chat: 4_096n, messages: 4_096n, responses: 32_000n };
    for (const format of anyFormat) {
      const hold = await holdOf({}, format);
      const output = tokens[format.name] * 240_000n;
      expect(hold).toBeGreaterThan(output);
      // The input is two letters, and what a vendor's template may put around them.
      expect(hold).toBeLessThan(output + 2_000n * 60_000n);
    }
    const hold = await holdOf({});
    router.identity = newCaller(router.billing, 3n * hold);
    router.upstream.script(() => ({ usage, delay: 200 }));
    const answers = await Promise.all([ask(), ask(), ask()]);
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
  });

  it('large ceilings in parallel are told apart from an empty purse, and pass when the others have ended (BerriAI/litellm#38647, justrach/codegraff#269, aiosbrain/aios-team-brain#658)', async () => {
    const hold = await holdOf({ maxTokens: 100_000 });
    router.identity = newCaller(router.billing, hold + 10n * cost);
    let answerNow = () => undefined as void;
    const isTime = new Promise<void>((resolve) => (answerNow = resolve));
    router.upstream.script(async () => {
      await isTime;
      return { usage };
    });
    const first = ask({ maxTokens: 100_000 });
    await until(() => held() > 0n, 'the first one runs');
    const second = await ask({ maxTokens: 100_000 });
    expect([second.status, second.headers.get('retry-after')]).toEqual([402, '5']);
    expect(await refusalOf(second)).toMatchObject({ error: { code: 'held_in_flight' } });
    answerNow();
    expect((await first).status).toBe(200);
    expect((await ask({ maxTokens: 100_000 })).status).toBe(200);
    router.identity = newCaller(router.billing, hold / 2n);
    const poor = await ask({ maxTokens: 100_000 });
    expect([poor.status, poor.headers.get('retry-after')]).toEqual([402, null]);
    expect(await refusalOf(poor)).toMatchObject({ error: { code: 'insufficient_balance' } });
  });

  it.each(anyFormat.map((format) => [format.name, format] as const))(
    'a refusal names the max_tokens that would do, and that much does: %s (can1357/oh-my-pi#9569)',
    async (_name, format) => {
      router.identity = newCaller(router.billing, 1_000n * 240_000n);
      const refused = await ask({ maxTokens: 100_000 }, format);
      const { error } = await refusalOf(refused);
      const most = error.affordable_max_tokens!;
      expect(refused.status).toBe(402);
      expect(most).toBeGreaterThan(500);
      expect(error.message).toContain(`max_tokens up to ${most}`);
      expect((await ask({ maxTokens: most + 1 }, format)).status).toBe(402);
      expect((await ask({ maxTokens: most }, format)).status).toBe(200);
    },
  );

  it.each(byStream)(
    'an answer that arrived is paid although its client, or its vendor, goes away right after: %s, %s (QuantumNous/new-api#5235, #7062)',
    async (_name, _way, format, stream) => {
      const leave = new AbortController();
      const answer = await ask({ stream, signal: leave.signal }, format);
      const text = await answer.text();
      if (stream) expect(format.isWhole(text)).toBe(true);
      leave.abort();
      await until(() => left() === plenty - cost, 'it is paid');
      // The vendor's connection breaks behind the end of its answer.
      const done = `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: 'x' }, finish_reason: 'stop' }], usage })}\n\ndata: [DONE]\n\n`;
      router.upstream.next({
        handle: (_request, response) => {
          response.writeHead(200, { 'content-type': 'text/event-stream' });
          response.write(done, () => setTimeout(() => response.destroy(), 50));
        },
      });
      expect((await ask({ stream }, format)).status).toBe(200);
      await until(() => left() === plenty - 2n * cost, 'it is paid');
    },
  );

  it.each(anyFormat.map((format) => [format.name, format] as const))(
    'an interrupted stream is in the log as what it is, with about what it took, never as a free answer: %s (maximhq/bifrost#4575, BerriAI/litellm#35958)',
    async (name, format) => {
      router.upstream.next({ handle: hangInTheMiddle });
      const leave = new AbortController();
      const answer = await ask({ stream: true, signal: leave.signal }, format);
      const reader = answer.body!.getReader();
      await reader.read();
      reader.closed.catch(() => undefined);
      leave.abort();
      const { key_id: key } = router.identity;
      const [row] = await until(async () => {
        const rows = await router.rows(
          `select format, outcome, status, cost::text, forgone > 0 as noted from request_log r
             left join key_month using (key_id) where r.key_id = '${key}'`,
        );
        return rows.length > 0 ? rows : null;
      }, 'its row');
      expect(row).toEqual({ format: name, outcome: 'aborted', status: 499, cost: '0', noted: true });
      expect(left()).toBe(plenty);
    },
  );

  it.each(
    byStream.flatMap(([name, way, format, stream]) =>
      (['before', 'after'] as const).map((when) => [name, way, when, format, stream] as const),
    ),
  )(
    'a client that leaves ends the work at the vendor: %s, %s, %s its first byte (BerriAI/litellm#30244, #37140, #36123, maximhq/bifrost#828)',
    async (_name, _way, when, format, stream) => {
      router.upstream.next(when === 'after' ? { handle: hangInTheMiddle } : { hang: true });
      const leave = new AbortController();
      const asked = ask({ stream, signal: leave.signal }, format).catch(() => undefined);
      const seen = await until(() => router.upstream.requests[0], 'the vendor is asked');
      if (when === 'after') await new Promise((resolve) => setTimeout(resolve, 50));
      leave.abort();
      await asked;
      await seen.answered;
      expect(seen.aborted).toBe(true);
      await until(() => held() === 0n, 'nothing is held');
      expect(left()).toBe(plenty);
    },
  );

  it('many at once wait for their vendor, not for each other, and leave nothing behind (BerriAI/litellm#27954, #15128, #1714)', async () => {
    const services = router.nebo.services.get('inference-router')!;
    router.upstream.script(({ number }) => ({
      usage,
      delay: 250,
      ...(number % 10 === 0 ? { status: 500 } : {}),
      ...(number % 10 === 1 ? { cutAfter: 1 } : {}),
    }));
    const began = Date.now();
    await Promise.all(
      Array.from({ length: 200 }, async (_, index) =>
        (await ask({ stream: index % 2 === 0 }, anyFormat[index % 3]!)).text().catch(() => undefined),
      ),
    );
    // One after the other would take 50 s.
    expect(Date.now() - began).toBeLessThan(20_000);
    await until(() => services.app.get(Purses).holds === 0, 'nothing is held');
    expect(router.upstream.calls()).toBeGreaterThanOrEqual(200);
  });
});
