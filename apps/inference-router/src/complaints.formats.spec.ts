/**
 * What users of other gateways complain about, each as a test: translation that loses reasoning or tools, and fallback.
 * Money, hang-ups and weight: complaints.spec.ts. Where a complaint has had its test all along, it is this one:
 *
 * | complaint | spec |
 * | --- | --- |
 * | maximhq/bifrost#2093, #3802: reasoning dropped from tool turns, the next turn is 400 | formats/messages/messages.sdk.spec.ts, formats/responses/responses.clients.spec.ts, formats/chat/chat.clients.spec.ts: loops of three turns |
 * | maximhq/bifrost#6342: replayed thinking in another order | formats/messages/messages.property.spec.ts, formats/responses/responses.property.spec.ts ("what goes in comes out, in order") |
 * | maximhq/bifrost#3511: every request with tools broken | dialects/vendors.spec.ts ("takes what agents send"), each vendor refusing what it really refuses |
 * | count_tokens that is 404 for some models | formats/messages/messages.statuses.spec.ts ("an estimate of every model") |
 * | Portkey-AI/gateway#1389, #1550: streams that fail with current packages | every *.clients.spec.ts, messages.sdk.spec.ts, e2e/src/inference.spec.ts |
 */
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { sharedPostgres, startUpstreamModel, type UpstreamModel } from '@nebo/test-kit';
import { anyFormat, askIn } from '../test/formats.js';
import { newCaller, plenty, type Router, startRouter, testConfig } from '../test/harness.js';
import { messageEvents } from '../test/messages.js';
import { callPiece, chunk } from '../test/responses.js';

const usage = { prompt_tokens: 100, completion_tokens: 30, prompt_tokens_details: { cached_tokens: 64 } };
const end = (finish: string) => [chunk({}, finish, usage), 'data: [DONE]\n\n'];
const hi = [{ role: 'user' as const, content: 'hi' }];
const [chat, messages] = anyFormat as [(typeof anyFormat)[0], (typeof anyFormat)[0]];
const byFormat = anyFormat.map((format) => [format.name, format] as const);

describe('complaints about translation', () => {
  let router: Router;
  let openai: OpenAI;
  let anthropic: Anthropic;
  beforeAll(async () => {
    router = await startRouter();
    openai = new OpenAI({ baseURL: `${router.url}/v1`, apiKey: 'x', maxRetries: 0 });
    anthropic = new Anthropic({ baseURL: router.url, apiKey: 'x', maxRetries: 0 });
  });
  beforeEach(() => {
    router.upstream.reset();
    router.identity = newCaller(router.billing);
  });
  afterAll(() => router?.stop());
  const messagesStream = async () => {
    const answer = await askIn(router, messages, { stream: true });
    return messageEvents(await answer.text()).filter(({ type }) => type !== 'ping');
  };

  it('reasoning of a vendor becomes thinking, and the first text after it is not lost (BerriAI/litellm#29518, #30765)', async () => {
    for (const switchover of [
      [chunk({ reasoning_content: 'hm' }), chunk({ content: 'First' })],
      // Both in one piece.
      [chunk({ reasoning_content: 'hm', content: 'First' })],
    ]) {
      router.upstream.next({ raw: [...switchover, chunk({ content: ' word' }), ...end('stop')] });
      const { content } = await anthropic.messages
        .stream({ model: 'glm-5.3', max_tokens: 100, messages: hi })
        .finalMessage();
      expect(content).toEqual([
        { type: 'thinking', thinking: 'hm', signature: '' },
        { type: 'text', text: 'First word' },
      ]);
    }
  });

  it('a messages stream begins with its input and ends with the counters, those of the cache among them (BerriAI/litellm#31069, envoyproxy/ai-gateway#2352)', async () => {
    router.upstream.next({ chunks: ['Hi'], usage });
    const events = await messagesStream();
    const begun = events[0]!['message'] as { usage: Record<string, number> };
    expect(begun.usage['input_tokens']).toBeGreaterThan(0);
    expect(events.find(({ type }) => type === 'message_delta')!['usage']).toMatchObject({
      input_tokens: 36,
      cache_read_input_tokens: 64,
      output_tokens: 30,
    });
  });

  it('calls whose pieces a vendor mixes keep their places and their arguments (Portkey-AI/gateway#1275)', async () => {
    const raw = [
      callPiece(0, '', 'a', 'look'),
      callPiece(1, '{"path":', 'b', 'write'),
      callPiece(0, '{"path":"x"}'),
      callPiece(1, '"y"}'),
      ...end('tool_calls'),
    ];
    const functions = ['look', 'write'].map((name) => ({
      type: 'function' as const,
      function: { name, parameters: { type: 'object' } },
    }));
    router.upstream.next({ raw }, { raw });
    const { choices } = await openai.chat.completions
      .stream({ model: 'kimi-k3', messages: hi, tools: functions })
      .finalChatCompletion();
    const calls = [
      ['a', 'look', { path: 'x' }],
      ['b', 'write', { path: 'y' }],
    ];
    expect(
      choices[0]!.message.tool_calls!.map((call) =>
        call.type === 'function'
          ? [call.id, call.function.name, JSON.parse(call.function.arguments) as unknown]
          : call,
      ),
    ).toEqual(calls);
    const { content } = await anthropic.messages
      .stream({
        model: 'kimi-k3',
        max_tokens: 100,
        messages: hi,
        tools: functions.map(({ function: { name } }) => ({ name, input_schema: { type: 'object' } })),
      })
      .finalMessage();
    expect(
      content.flatMap((block) => (block.type === 'tool_use' ? [[block.id, block.name, block.input]] : [])),
    ).toEqual(calls);
  });

  it.each(byFormat)(
    'counters come with every stream that can have them: %s (Portkey-AI/gateway#1259)',
    async (_name, format) => {
      router.upstream.next({ chunks: ['Hi'], usage });
      const more = format === chat ? { stream_options: { include_usage: true } } : {};
      const text = await (await askIn(router, format, { stream: true, more })).text();
      expect(text).toMatch(/"(completion|output)_tokens":30\b/);
    },
  );

  it('a tool goes to glm-5.2 with its schema, and its arguments come back as an object, whole or in pieces', async () => {
    const schema = {
      type: 'object' as const,
      properties: {
        edits: { type: 'array', items: { type: 'object', properties: { to: { type: 'string' } } } },
      },
      required: ['edits'],
    };
    const input = { edits: [{ to: 'a "quoted"\nline' }] };
    const args = JSON.stringify(input);
    const call = (pieces: string[]) => ({
      raw: [
        callPiece(0, pieces[0]!, 'call_1', 'edit'),
        ...pieces.slice(1).map((piece) => callPiece(0, piece)),
        ...end('tool_calls'),
      ],
    });
    for (const pieces of [[args], ['', ...args]]) {
      router.upstream.next(call(pieces));
      const { content, stop_reason: reason } = await anthropic.messages
        .stream({
          model: 'glm-5.2',
          max_tokens: 1_000,
          messages: hi,
          tools: [{ name: 'edit', description: 'edits', input_schema: schema }],
        })
        .finalMessage();
      expect([content, reason]).toEqual([
        [expect.objectContaining({ type: 'tool_use', id: 'call_1', name: 'edit', input })],
        'tool_use',
      ]);
      expect(router.upstream.requests.at(-1)!.body!['tools']).toEqual([
        { type: 'function', function: { name: 'edit', description: 'edits', parameters: schema } },
      ]);
    }
  });

  it('an error in a messages stream is an event that its clients hear (mlflow/mlflow#25897)', async () => {
    router.upstream.next({ chunks: ['a', 'b', 'c'], cutAfter: 2 });
    const events = await messagesStream();
    expect(events.at(-1)).toMatchObject({
      type: 'error',
      error: { type: 'api_error', code: 'upstream_broken' },
    });
    router.upstream.next({ chunks: ['a', 'b', 'c'], cutAfter: 2 });
    await expect(
      anthropic.messages.stream({ model: 'glm-5.3', max_tokens: 100, messages: hi }).finalMessage(),
    ).rejects.toBeInstanceOf(Anthropic.APIError);
  });
});

describe('complaints about fallback', () => {
  let router: Router;
  let second: UpstreamModel;
  beforeAll(async () => {
    second = await startUpstreamModel();
    router = await startRouter({
      config: testConfig
        .replace(
          'upstreams: [{ provider: glm, model: vendor-glm }]',
          `upstreams: [{ provider: glm, priority: 1 }, { provider: other, priority: 2 }]`,
        )
        .replace('models:', `  other: { base_url: "${second.url}", dialect: openai }\nmodels:`),
    });
  });
  beforeEach(() => {
    router.upstream.reset();
    second.reset();
    router.billing.reset();
    router.identity = newCaller(router.billing);
  });
  afterAll(async () => {
    await router?.stop();
    await second?.stop();
    await (await sharedPostgres()).stop();
  });
  const left = () => router.billing.available(router.identity.account_id);

  it.each(byFormat)('streams are tried elsewhere too: %s (BerriAI/litellm#29808)', async (_name, format) => {
    router.upstream.next({ status: 503 });
    second.next({ chunks: ['Hi'], usage });
    const answer = await askIn(router, format, { stream: true });
    expect(answer.status).toBe(200);
    expect(format.isWhole(await answer.text())).toBe(true);
    expect([router.upstream.calls(), second.calls()]).toEqual([1, 1]);
  });

  it.each(byFormat)(
    'a stream begins when a vendor has begun: where all fail it is a plain error, never 200: %s (BerriAI/litellm#38610)',
    async (_name, format) => {
      router.upstream.next({ status: 500 });
      second.next({ status: 500 });
      const answer = await askIn(router, format, { stream: true });
      expect([answer.status, answer.headers.get('content-type')]).toEqual([
        502,
        'application/json; charset=utf-8',
      ]);
      expect(await answer.json()).toMatchObject({ error: { type: 'api_error' } });
      expect(left()).toBe(plenty);
    },
  );

  it.each(byFormat)(
    'a 429 in the middle of a stream ends it at once, and the next request is answered: %s (BerriAI/litellm#26015)',
    async (_name, format) => {
      router.upstream.next({
        raw: [
          chunk({ content: 'a' }),
          `data: ${JSON.stringify({ error: { message: 'slow down', code: 429 } })}\n\n`,
        ],
        // Apart, or it would be an answer that never began.
        chunkDelay: 200,
      });
      const began = Date.now();
      const text = await (await askIn(router, format, { stream: true })).text();
      expect(Date.now() - began).toBeLessThan(5_000);
      expect(format.isWhole(text)).toBe(false);
      expect(text).toContain('error');
      expect([second.calls(), left()]).toEqual([0, plenty]);
      expect((await askIn(router, format)).status).toBe(200);
    },
  );
});
