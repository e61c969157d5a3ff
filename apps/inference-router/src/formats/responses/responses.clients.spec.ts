import { createOpenAI } from '@ai-sdk/openai';
import { AIMessage, HumanMessage, ToolMessage, type BaseMessage } from '@langchain/core/messages';
import { ChatOpenAI } from '@langchain/openai';
import { sharedPostgres } from '@nebo/test-kit';
import { generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { newCaller, type Router, startRouter } from '../../../test/harness.js';
import { callPiece, chunk } from '../../../test/responses.js';

const usage = { prompt_tokens: 120, completion_tokens: 9, prompt_tokens_details: { cached_tokens: 64 } };
const end = (finish = 'stop') => [chunk({}, finish, usage), 'data: [DONE]\n\n'];
const parameters = {
  type: 'object' as const,
  properties: { city: { type: 'string' as const } },
  required: ['city'],
};
const weather = {
  type: 'function' as const,
  name: 'weather',
  description: 'Weather',
  parameters,
  strict: false,
};
type Json = Record<string, unknown>;

/** A loop of three turns: two calls that the vendor mixes, one more call, the answer; each with its reasoning. */
const turns = [
  [
    chunk({ reasoning_content: 'Two ' }),
    chunk({ reasoning_content: 'cities.' }),
    chunk({ content: 'I look.' }),
    callPiece(0, '', 'functions.weather:0', 'weather'),
    callPiece(1, '', 'functions.weather:1', 'weather'),
    callPiece(1, '{"city":"Омск'),
    callPiece(0, '{"city":'),
    callPiece(1, '"}'),
    callPiece(0, '"Paris"}'),
    ...end('tool_calls'),
  ],
  [
    chunk({ reasoning_content: 'One more.' }),
    callPiece(0, '{"city":"Rome"}', 'functions.weather:2', 'weather'),
    ...end('tool_calls'),
  ],
  [
    chunk({ reasoning_content: 'Enough.' }),
    chunk({ content: 'Sun ' }),
    chunk({ content: 'everywhere 🙂' }),
    ...end(),
  ],
];
const call = (number: number, city: string) => ({
  id: `functions.weather:${number}`,
  type: 'function',
  function: { name: 'weather', arguments: `{"city":"${city}"}` },
});
/** What the vendor must have got by the third turn, with whatever words in the results. */
const history = [
  { role: 'user', content: 'Weather?' },
  {
    role: 'assistant',
    content: 'I look.',
    reasoning_content: 'Two cities.',
    tool_calls: [call(0, 'Paris'), call(1, 'Омск')],
  },
  { role: 'tool', tool_call_id: 'functions.weather:0', content: expect.stringContaining('sun in Paris') },
  { role: 'tool', tool_call_id: 'functions.weather:1', content: expect.stringContaining('sun in Омск') },
  { role: 'assistant', content: null, reasoning_content: 'One more.', tool_calls: [call(2, 'Rome')] },
  { role: 'tool', tool_call_id: 'functions.weather:2', content: expect.stringContaining('sun in Rome') },
];

describe('clients of the responses format', () => {
  let router: Router;
  /** Bodies that the clients sent: what they bring back themselves. */
  const sent: Json[] = [];
  const recording: typeof fetch = (url, init) => {
    sent.push(JSON.parse(init!.body as string) as Json);
    return fetch(url, init);
  };
  beforeAll(async () => {
    router = await startRouter();
  });
  beforeEach(() => {
    router.upstream.reset();
    router.billing.reset();
    router.identity = newCaller(router.billing);
    sent.length = 0;
  });
  afterAll(async () => {
    await router?.stop();
    await (await sharedPostgres()).stop();
  });

  const settings = () => ({ baseURL: `${router.url}/v1`, apiKey: 'signed by the front', fetch: recording });
  const loop = () => router.upstream.next(...turns.map((raw) => ({ raw })));
  const lastMessages = () => router.upstream.requests.at(-1)!.body!['messages'];
  /** Items of a kind in the last request of the client. */
  const broughtBack = (type: string) =>
    (sent.at(-1)!['input'] as Json[]).filter((item) => item['type'] === type);

  describe('the OpenAI client', () => {
    const client = () => new OpenAI({ ...settings(), maxRetries: 0 });

    it('plain: text, reasoning, counters', async () => {
      router.upstream.next({ raw: turns[2]! });
      const response = await client().responses.create({ model: 'kimi-k3', input: 'Weather?' });
      expect(response).toMatchObject({
        object: 'response',
        status: 'completed',
        output_text: 'Sun everywhere 🙂',
        output: [
          { type: 'reasoning', summary: [{ type: 'summary_text', text: 'Enough.' }] },
          { type: 'message', role: 'assistant' },
        ],
        usage: {
          input_tokens: 120,
          input_tokens_details: { cached_tokens: 64 },
          output_tokens: 9,
          output_tokens_details: { reasoning_tokens: 0 },
          total_tokens: 129,
        },
      });
    });

    it.each([false, true])(
      'a loop of three turns that gives back its output, streamed: %s',
      async (streamed) => {
        loop();
        const input: OpenAI.Responses.ResponseInputItem[] = [{ role: 'user', content: 'Weather?' }];
        const request = {
          model: 'kimi-k3',
          input,
          tools: [weather],
          store: false,
          include: ['reasoning.encrypted_content' as const],
        };
        for (;;) {
          const response = streamed
            ? await client().responses.stream(request).finalResponse()
            : await client().responses.create(request);
          input.push(...(response.output as OpenAI.Responses.ResponseInputItem[]));
          const calls = response.output.flatMap((item) => (item.type === 'function_call' ? [item] : []));
          if (calls.length === 0) {
            expect(response.output_text).toBe('Sun everywhere 🙂');
            break;
          }
          for (const { call_id, arguments: args } of calls) {
            const { city } = JSON.parse(args) as { city: string };
            input.push({ type: 'function_call_output', call_id, output: `sun in ${city}` });
          }
        }
        expect(lastMessages()).toEqual(history);
        expect(broughtBack('reasoning')).toMatchObject([
          { encrypted_content: expect.stringMatching(/^nebo1\./) },
          { encrypted_content: expect.stringMatching(/^nebo1\./) },
        ]);
      },
    );

    it('parses the text and the arguments of strict tools', async () => {
      router.upstream.next({ chunks: ['{"ok":', 'true}'], usage });
      const text = await client().responses.parse({
        model: 'kimi-k3',
        input: 'hi',
        text: { format: { type: 'json_schema', name: 'out', schema: { type: 'object' }, strict: true } },
      });
      expect(text.output_parsed).toEqual({ ok: true });
      router.upstream.next({ raw: turns[1]! });
      const called = await client().responses.parse({
        model: 'kimi-k3',
        input: 'hi',
        tools: [{ ...weather, strict: true }],
      });
      expect(called.output[1]).toMatchObject({ parsed_arguments: { city: 'Rome' } });
    });

    it('free-input tools and tools of a namespace', async () => {
      router.upstream.next({
        raw: [
          callPiece(0, '{"input":"*** Begin\\nя"}', 'c0', 'apply_patch'),
          callPiece(1, '{"city":"Rome"}', 'c1', 'maps__weather'),
          ...end('tool_calls'),
        ],
      });
      const response = await client()
        .responses.stream({
          model: 'kimi-k3',
          input: 'hi',
          tools: [
            { type: 'custom', name: 'apply_patch' },
            { type: 'namespace', name: 'maps', description: 'Maps', tools: [weather] },
          ],
        })
        .finalResponse();
      expect(response.output).toMatchObject([
        { type: 'custom_tool_call', name: 'apply_patch', call_id: 'c0', input: '*** Begin\nя' },
        { type: 'function_call', namespace: 'maps', name: 'weather', call_id: 'c1' },
      ]);
    });

    it('a cut by the ceiling is incomplete; a broken answer failed; an error throws its class with our words', async () => {
      const stream = (body: object) =>
        client()
          .responses.stream({ model: 'kimi-k3', input: 'hi', tools: [weather], ...body })
          .finalResponse();
      router.upstream.next({ raw: [callPiece(0, '{"ci', 'c0', 'weather'), ...end('length')] });
      expect(await stream({})).toMatchObject({
        status: 'incomplete',
        incomplete_details: { reason: 'max_output_tokens' },
        output: [{ status: 'incomplete' }],
      });
      router.upstream.next({ raw: [...turns[0]!.slice(0, 6)], cutAfter: 6, chunkDelay: 20 });
      expect(await stream({})).toMatchObject({ status: 'failed', error: { code: 'upstream_broken' } });
      await expect(stream({ previous_response_id: 'resp_1' })).rejects.toThrow(/previous_response_id/);
      await expect(stream({ previous_response_id: 'resp_1' })).rejects.toBeInstanceOf(OpenAI.BadRequestError);
    });
  });

  describe('the AI SDK', () => {
    const model = () => createOpenAI(settings()).responses('kimi-k3');
    const tools = {
      weather: tool({
        description: 'Weather',
        inputSchema: jsonSchema<{ city: string }>(parameters),
        execute: ({ city }) => Promise.resolve(`sun in ${city}`),
      }),
    };
    const request = () => ({
      model: model(),
      prompt: 'Weather?',
      tools,
      stopWhen: stepCountIs(5),
      maxRetries: 0,
      providerOptions: { openai: { store: false } },
    });

    it('generateText: a loop of three turns, reasoning and counters', async () => {
      loop();
      const { text, reasoningText, steps, usage: counted } = await generateText(request());
      expect([text, reasoningText, steps.length]).toEqual(['Sun everywhere 🙂', 'Enough.', 3]);
      expect(steps.map((step) => step.finishReason)).toEqual(['tool-calls', 'tool-calls', 'stop']);
      expect(counted).toMatchObject({ inputTokens: expect.any(Number), outputTokens: expect.any(Number) });
      expect(lastMessages()).toEqual(history);
      expect(broughtBack('reasoning')).toMatchObject([
        { summary: [{ text: 'Two cities.' }], encrypted_content: expect.stringMatching(/^nebo1\./) },
        { summary: [{ text: 'One more.' }], encrypted_content: expect.stringMatching(/^nebo1\./) },
      ]);
    });

    it('streamText: the same, piece by piece', async () => {
      loop();
      const result = streamText(request());
      let reasoning = '';
      let text = '';
      for await (const part of result.fullStream) {
        if (part.type === 'reasoning-delta') reasoning += part.text;
        if (part.type === 'text-delta') text += part.text;
        if (part.type === 'error') throw part.error;
      }
      expect(reasoning).toBe('Two cities.One more.Enough.');
      expect(text).toBe('I look.Sun everywhere 🙂');
      expect(await result.finishReason).toBe('stop');
      expect(lastMessages()).toEqual(history);
      expect(broughtBack('reasoning')).toHaveLength(2);
    });

    it('a free-input tool, plain and streamed', async () => {
      const openai = createOpenAI(settings());
      const patch = openai.tools.customTool({ description: 'Patches', format: { type: 'text' } });
      const raw = [callPiece(0, '{"input":"a\\n', 'c0', 'patch'), callPiece(0, 'b"}'), ...end('tool_calls')];
      router.upstream.next({ raw }, { raw });
      const body = { model: model(), prompt: 'hi', tools: { patch }, maxRetries: 0 };
      const plain = await generateText(body);
      expect(plain.toolCalls).toMatchObject([{ toolCallId: 'c0', toolName: 'patch', input: 'a\nb' }]);
      const streamed = streamText(body);
      expect(await streamed.toolCalls).toMatchObject([
        { toolCallId: 'c0', toolName: 'patch', input: 'a\nb' },
      ]);
    });

    it('a cut call is not run; a broken answer is an error', async () => {
      router.upstream.next({ raw: [callPiece(0, '{"ci', 'c0', 'weather'), ...end('length')] });
      const cut = streamText(request());
      expect(await cut.finishReason).toBe('length');
      expect(await cut.toolCalls).toEqual([]);
      router.upstream.next({ raw: turns[0]!.slice(0, 6), cutAfter: 6, chunkDelay: 20 });
      const errors: unknown[] = [];
      const broken = streamText({ ...request(), onError: ({ error }) => void errors.push(error) });
      await broken.consumeStream({ onError: () => {} });
      expect(JSON.stringify(errors[0])).toContain('broke off');
    });

    it('items by reference, which it sends unless store is false, are refused with the way out', async () => {
      loop();
      await expect(generateText({ ...request(), providerOptions: {} })).rejects.toThrow(/store: false/);
    });
  });

  describe('LangChain', () => {
    const model = (more: object = {}) =>
      new ChatOpenAI({
        model: 'kimi-k3',
        apiKey: 'signed by the front',
        useResponsesApi: true,
        maxRetries: 0,
        configuration: { baseURL: `${router.url}/v1`, fetch: recording },
        ...more,
      }).bindTools([weather]);

    it.each([
      ['plain', {}],
      ['plain, nothing stored', { zdrEnabled: true }],
      ['streamed', { streaming: true }],
    ])('a loop of three turns, %s', async (_what, more) => {
      loop();
      const messages: BaseMessage[] = [new HumanMessage('Weather?')];
      for (;;) {
        const answer = await model(more).invoke(messages);
        messages.push(answer);
        if (!answer.tool_calls?.length) {
          expect(answer.text).toBe('Sun everywhere 🙂');
          expect(answer.usage_metadata).toMatchObject({ input_tokens: 120, output_tokens: 9 });
          break;
        }
        for (const { id, args } of answer.tool_calls)
          messages.push(new ToolMessage({ tool_call_id: id!, content: `sun in ${String(args['city'])}` }));
      }
      expect(AIMessage.isInstance(messages.at(-1))).toBe(true);
      expect(lastMessages()).toEqual(history);
      expect(broughtBack('reasoning')).toHaveLength(2);
    });
  });
});
