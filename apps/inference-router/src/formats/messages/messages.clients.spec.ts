import { createAnthropic } from '@ai-sdk/anthropic';
import { ChatAnthropic } from '@langchain/anthropic';
import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { sharedPostgres } from '@nebo/test-kit';
import { generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';
import { newCaller, type Router, startRouter } from '../../../test/harness.js';
import { callPiece, chunk } from '../../../test/responses.js';

const usage = { prompt_tokens: 120, completion_tokens: 30, prompt_tokens_details: { cached_tokens: 64 } };
const weather = {
  description: 'the weather of a city',
  inputSchema: jsonSchema<{ city: string }>({
    type: 'object',
    properties: { city: { type: 'string' } },
    required: ['city'],
  }),
};
const calls = {
  raw: [
    chunk({ reasoning_content: 'I need the weather' }),
    chunk({ content: 'A moment.' }),
    callPiece(0, '{"city":', 'weather:0', 'weather'),
    callPiece(1, '{"city":"Tver"}', 'weather:1', 'weather'),
    callPiece(0, '"Perm"}'),
    chunk({}, 'tool_calls', usage),
  ],
};
const answer = { reasoning: ['so'], chunks: ['Rain ', 'in both.'], usage };

describe('the messages format with other clients', () => {
  let router: Router;
  beforeAll(async () => void (router = await startRouter({ env: { NEBO_INFERENCE_KEEP_ALIVE: '1' } })));
  beforeEach(() => {
    router.upstream.reset();
    router.billing.reset();
    router.identity = newCaller(router.billing);
  });
  afterAll(async () => {
    await router?.stop();
    await (await sharedPostgres()).stop();
  });

  /** What the second turn of a loop brought to the vendor. */
  const expectReplayed = () => {
    expect(router.upstream.requests[1]!.body!['messages']).toMatchObject([
      { role: 'user', content: 'Weather in Perm and Tver?' },
      {
        role: 'assistant',
        content: 'A moment.',
        reasoning_content: 'I need the weather',
        tool_calls: [
          { id: 'weather:0', function: { name: 'weather', arguments: '{"city":"Perm"}' } },
          { id: 'weather:1', function: { name: 'weather', arguments: '{"city":"Tver"}' } },
        ],
      },
      { role: 'tool', tool_call_id: 'weather:0', content: expect.stringContaining('rain in Perm') },
      { role: 'tool', tool_call_id: 'weather:1', content: expect.stringContaining('rain in Tver') },
    ]);
  };

  describe('AI SDK', () => {
    const ask = () => ({
      model: createAnthropic({ baseURL: `${router.url}/v1`, apiKey: 'signed by the front' })('kimi-k3'),
      prompt: 'Weather in Perm and Tver?',
      maxRetries: 0,
      maxOutputTokens: 2_000,
      stopWhen: stepCountIs(3),
      tools: { weather: tool({ ...weather, execute: ({ city }) => Promise.resolve(`rain in ${city}`) }) },
    });

    it('generateText over two steps, with the reasoning given back', async () => {
      router.upstream.next(calls, answer);
      const result = await generateText(ask());
      expect(result.text).toBe('Rain in both.');
      expect(result.reasoningText).toBe('so');
      expect(result.usage).toMatchObject({ inputTokens: 240, outputTokens: 60 });
      expectReplayed();
    });

    it('streamText over two steps, with the reasoning given back', async () => {
      router.upstream.next({ ...calls, delay: 1_300 }, answer);
      const result = streamText(ask());
      let text = '';
      for await (const delta of result.textStream) text += delta;
      expect(text).toBe('A moment.Rain in both.');
      expect((await result.steps).map((step) => step.reasoningText)).toEqual(['I need the weather', 'so']);
      expect(await result.usage).toMatchObject({ inputTokens: 240, outputTokens: 60 });
      expectReplayed();
    });

    it('a tool without arguments, plain and streamed', async () => {
      const none = { raw: [callPiece(0, '', 'now:0', 'now'), chunk({}, 'tool_calls', usage)] };
      const tools = {
        now: tool({ description: 'the time', inputSchema: jsonSchema({ type: 'object', properties: {} }) }),
      };
      router.upstream.next(none, none);
      expect((await generateText({ ...ask(), tools })).toolCalls).toMatchObject([
        { toolName: 'now', input: {} },
      ]);
      const streamed = streamText({ ...ask(), tools });
      await streamed.consumeStream();
      expect(await streamed.toolCalls).toMatchObject([{ toolName: 'now', input: {} }]);
    });

    it('a refusal says why', async () => {
      await expect(generateText({ ...ask(), maxOutputTokens: 999_999_999 })).rejects.toThrow('262144');
    });
  });

  describe('LangChain', () => {
    const model = () =>
      new ChatAnthropic({
        model: 'kimi-k3',
        apiKey: 'signed by the front',
        anthropicApiUrl: router.url,
        maxTokens: 1_000,
        maxRetries: 0,
      }).bindTools([
        {
          name: 'weather',
          description: weather.description,
          input_schema: { type: 'object', properties: { city: { type: 'string' } } },
        },
      ]);
    const question = new HumanMessage('Weather in Perm and Tver?');

    it.each(['plain', 'streamed'])('%s over two turns, with the reasoning given back', async (way) => {
      router.upstream.next(calls, answer);
      const bound = model();
      const invoke = async (messages: Parameters<typeof bound.invoke>[0]) => {
        if (way === 'plain') return bound.invoke(messages);
        let whole: Awaited<ReturnType<typeof bound.invoke>> | undefined;
        for await (const part of await bound.stream(messages)) whole = whole ? whole.concat(part) : part;
        return whole!;
      };
      const first = await invoke([question]);
      expect(first.tool_calls).toMatchObject([
        { id: 'weather:0', name: 'weather', args: { city: 'Perm' } },
        { id: 'weather:1', name: 'weather', args: { city: 'Tver' } },
      ]);
      expect(first.usage_metadata).toMatchObject({ input_tokens: expect.any(Number), output_tokens: 30 });
      expect(first.usage_metadata!.input_tokens).toBeGreaterThan(10);
      const results = first.tool_calls!.map(
        ({ id, args }) =>
          new ToolMessage({ tool_call_id: id!, content: `rain in ${args['city'] as string}` }),
      );
      const last = await invoke([question, first, ...results]);
      expect(last.text).toBe('Rain in both.');
      expectReplayed();
    });
  });
});
