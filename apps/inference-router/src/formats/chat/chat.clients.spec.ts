import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import {
  type AIMessage,
  type AIMessageChunk,
  type BaseMessage,
  HumanMessage,
  ToolMessage,
} from '@langchain/core/messages';
import { ChatOpenAI } from '@langchain/openai';
import { sharedPostgres } from '@nebo/test-kit';
import { generateText, jsonSchema, type LanguageModel, stepCountIs, streamText, tool } from 'ai';
import { newCaller, type Router, startRouter } from '../../../test/harness.js';
import { callPiece, chunk } from '../../../test/responses.js';

const usage = { prompt_tokens: 120, completion_tokens: 9, prompt_tokens_details: { cached_tokens: 64 } };
const end = (finish = 'stop') => [chunk({}, finish, usage), 'data: [DONE]\n\n'];
const parameters = {
  type: 'object' as const,
  properties: { city: { type: 'string' as const } },
  required: ['city'],
};
type Json = Record<string, unknown>;

/** A loop of two turns: two calls that the vendor mixes, with reasoning, then the answer. */
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
/** What the vendor must have got by the second turn: its own reasoning too, whether or not the client brings it back. */
const history = [
  { role: 'user', content: 'Weather?' },
  {
    role: 'assistant',
    content: 'I look.',
    reasoning_content: 'Two cities.',
    tool_calls: [call(0, 'Paris'), call(1, 'Омск')],
  },
  { role: 'tool', tool_call_id: 'functions.weather:0', content: 'sun in Paris' },
  { role: 'tool', tool_call_id: 'functions.weather:1', content: 'sun in Омск' },
];

describe('clients of the chat format', () => {
  let router: Router;
  /** Bodies that the clients sent. */
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
  /** Reasoning that the client itself brought back. */
  const broughtBack = () =>
    (sent.at(-1)!['messages'] as Json[]).flatMap(({ reasoning_content: text }) =>
      text === undefined ? [] : [text],
    );

  const compatible = () => createOpenAICompatible({ name: 'nebo', ...settings() })('kimi-k3');
  const weather = tool({
    description: 'Weather',
    inputSchema: jsonSchema<{ city: string }>(parameters),
    execute: ({ city }) => Promise.resolve(`sun in ${city}`),
  });
  const request = (model: LanguageModel) => ({
    model,
    prompt: 'Weather?',
    tools: { weather },
    stopWhen: stepCountIs(5),
    maxRetries: 0,
  });

  describe('the AI SDK for compatible services', () => {
    it('generateText: tools, reasoning there and back, counters', async () => {
      loop();
      const { text, reasoningText, steps } = await generateText(request(compatible()));
      expect([text, reasoningText, steps.length]).toEqual(['Sun everywhere 🙂', 'Enough.', 2]);
      expect(steps[0]).toMatchObject({
        finishReason: 'tool-calls',
        reasoningText: 'Two cities.',
        usage: { inputTokens: 120, outputTokens: 9 },
      });
      expect(lastMessages()).toEqual(history);
      expect(broughtBack()).toEqual(['Two cities.']);
    });

    it('streamText: the same, piece by piece', async () => {
      loop();
      const result = streamText(request(compatible()));
      let reasoning = '';
      let text = '';
      for await (const part of result.fullStream) {
        if (part.type === 'reasoning-delta') reasoning += part.text;
        if (part.type === 'text-delta') text += part.text;
        if (part.type === 'error') throw part.error;
      }
      expect([reasoning, text]).toEqual(['Two cities.Enough.', 'I look.Sun everywhere 🙂']);
      expect(await result.finishReason).toBe('stop');
      expect(lastMessages()).toEqual(history);
      expect(broughtBack()).toEqual(['Two cities.']);
    });

    it('a broken answer is an error, and an error has our words', async () => {
      router.upstream.next({ chunks: ['a', 'b', 'c'], cutAfter: 2, chunkDelay: 20 });
      const errors: unknown[] = [];
      const broken = streamText({
        ...request(compatible()),
        onError: ({ error }) => void errors.push(error),
      });
      await broken.consumeStream({ onError: () => {} });
      expect(errors).toHaveLength(1);
      expect(await Promise.resolve(broken.finishReason).catch(() => 'error')).toBe('error');
      const part = { type: 'file' as const, data: 'JVBERi0=', mediaType: 'application/pdf' };
      await expect(
        generateText({ model: compatible(), messages: [{ role: 'user', content: [part] }], maxRetries: 0 }),
      ).rejects.toThrow(/messages\.0\.content\.0.*not supported/);
    });
  });

  it('the AI SDK for OpenAI does not bring reasoning back; the vendor gets it all the same', async () => {
    loop();
    const { text } = await generateText(request(createOpenAI(settings()).chat('kimi-k3')));
    expect(text).toBe('Sun everywhere 🙂');
    expect(lastMessages()).toEqual(history);
    expect(broughtBack()).toEqual([]);
  });

  it('calls that the vendor counts anew in each turn stay apart for the client, and are its own again for the vendor', async () => {
    const turn = (city: string) => ({
      raw: [
        chunk({ reasoning_content: `${city}!` }),
        callPiece(0, `{"city":"${city}"}`, 'weather:0', 'weather'),
        ...end('tool_calls'),
      ],
    });
    router.upstream.next(turn('Paris'), turn('Омск'), { raw: turns[1]! });
    const { steps } = await generateText(request(createOpenAI(settings()).chat('kimi-k3')));
    const ids = steps.flatMap(({ toolCalls }) => toolCalls.map(({ toolCallId }) => toolCallId));
    expect(ids[0]).toBe('weather:0');
    expect(new Set(ids).size).toBe(2);
    const of = (city: string) => [
      {
        role: 'assistant',
        content: null,
        reasoning_content: `${city}!`,
        tool_calls: [
          {
            id: 'weather:0',
            type: 'function',
            function: { name: 'weather', arguments: `{"city":"${city}"}` },
          },
        ],
      },
      { role: 'tool', tool_call_id: 'weather:0', content: `sun in ${city}` },
    ];
    expect(lastMessages()).toEqual([{ role: 'user', content: 'Weather?' }, ...of('Paris'), ...of('Омск')]);
  });

  describe('LangChain', () => {
    const model = () =>
      new ChatOpenAI({
        model: 'kimi-k3',
        apiKey: 'signed by the front',
        maxRetries: 0,
        configuration: { baseURL: `${router.url}/v1`, fetch: recording },
      });
    const bound = () =>
      model().bindTools([
        { type: 'function', function: { name: 'weather', description: 'Weather', parameters } },
      ]);

    // Its `streaming: true` would fetch a tokenizer from elsewhere; a stream by name does not.
    const ask = async (streamed: boolean, messages: BaseMessage[]): Promise<AIMessage> => {
      if (!streamed) return bound().invoke(messages);
      let all: AIMessageChunk | undefined;
      for await (const piece of await bound().stream(messages)) all = all?.concat(piece) ?? piece;
      return all!;
    };

    it.each([
      ['plain', false],
      ['streamed', true],
    ])(
      'a tool loop, %s; reasoning that it does not bring back reaches the vendor',
      async (_what, streamed) => {
        loop();
        const messages: BaseMessage[] = [new HumanMessage('Weather?')];
        const first = await ask(streamed, messages);
        expect(first.tool_calls).toMatchObject([
          { id: 'functions.weather:0', name: 'weather', args: { city: 'Paris' } },
          { id: 'functions.weather:1', name: 'weather', args: { city: 'Омск' } },
        ]);
        messages.push(first);
        for (const { id, args } of first.tool_calls!)
          messages.push(new ToolMessage({ tool_call_id: id!, content: `sun in ${String(args['city'])}` }));
        const last = await ask(streamed, messages);
        expect(last.text).toBe('Sun everywhere 🙂');
        expect(last.usage_metadata).toMatchObject({ input_tokens: 120, output_tokens: 9 });
        expect(lastMessages()).toEqual(history);
        expect(broughtBack()).toEqual([]);
      },
    );

    it('a stream of pieces', async () => {
      router.upstream.next({ raw: turns[1]! });
      let text = '';
      for await (const piece of await model().stream('Weather?')) text += piece.text;
      expect(text).toBe('Sun everywhere 🙂');
    });

    it('an error has our words and is not taken for money or access', async () => {
      router.upstream.script(() => ({ status: 401, body: { error: { message: 'account 4711' } } }));
      await expect(model().invoke('hi')).rejects.toMatchObject({
        status: 502,
        message: expect.stringMatching(/could not be reached/),
      });
    });
  });
});
