import Anthropic from '@anthropic-ai/sdk';
import { sharedPostgres } from '@nebo/test-kit';
import {
  hangInTheMiddle,
  newCaller,
  plenty,
  type Router,
  startRouter,
  until,
} from '../../../test/harness.js';
import { message, messageEvents } from '../../../test/messages.js';
import { callPiece, chunk } from '../../../test/responses.js';

const usage = { prompt_tokens: 120, completion_tokens: 30, prompt_tokens_details: { cached_tokens: 64 } };
const hi = [{ role: 'user' as const, content: 'hi' }];
const tools: Anthropic.Tool[] = ['look', 'write'].map((name) => ({
  name,
  description: name,
  input_schema: { type: 'object', properties: { path: { type: 'string' } } },
}));

/** Arguments that do not fit into one piece, of two calls whose pieces the vendor mixes. */
const mixedCalls = [
  chunk({ role: 'assistant', content: '' }),
  chunk({ reasoning_content: 'two ' }),
  chunk({ reasoning_content: 'calls' }),
  chunk({ content: 'I look.' }),
  callPiece(0, '', 'functions.look:0', 'look'),
  callPiece(1, '{"path"', 'functions.write:1', 'write'),
  callPiece(0, '{"path":"'),
  callPiece(1, ':"b"}'),
  callPiece(0, 'a"}'),
  chunk({}, 'tool_calls', usage),
  'data: [DONE]\n\n',
];

describe('the messages format with its official client', () => {
  let router: Router;
  let client: Anthropic;
  beforeAll(async () => {
    router = await startRouter({ env: { NEBO_INFERENCE_KEEP_ALIVE: '1' } });
    client = new Anthropic({ baseURL: router.url, apiKey: 'signed by the front', maxRetries: 0 });
  });
  beforeEach(() => {
    router.upstream.reset();
    router.billing.reset();
    router.identity = newCaller(router.billing);
  });
  afterAll(async () => {
    await router?.stop();
    await (await sharedPostgres()).stop();
  });
  const sent = (index: number) =>
    router.upstream.requests[index]!.body!['messages'] as Record<string, unknown>[];

  it('plain and streamed: the same message, counters and bill', async () => {
    const ask = { model: 'glm-5.3', max_tokens: 100, messages: hi };
    router.upstream.script(() => ({ reasoning: ['Let me ', 'think'], chunks: ['Hel', 'lo'], usage }));
    const plain = await client.messages.create(ask);
    expect(plain.content).toEqual([
      { type: 'thinking', thinking: 'Let me think', signature: '' },
      { type: 'text', text: 'Hello' },
    ]);
    expect(plain._request_id).toMatch(/.+/);
    const seen: string[] = [];
    const streamed = await client.messages
      .stream(ask)
      .on('text', (text) => seen.push(text))
      .on('thinking', (text) => seen.push(text))
      .finalMessage();
    expect(streamed).toMatchObject({ content: plain.content, stop_reason: 'end_turn', usage: plain.usage });
    expect(plain.usage).toMatchObject({ input_tokens: 56, cache_read_input_tokens: 64, output_tokens: 30 });
    expect(seen.join('')).toBe('Let me thinkHello');
    const cost = 56n * 60_000n + 64n * 12_000n + 30n * 240_000n;
    expect(plenty - router.billing.available(router.identity.account_id)).toBe(2n * cost);
  });

  it('three turns of a tool loop: the vendor gets its reasoning, calls and ids back as they were', async () => {
    router.upstream.next(
      { raw: mixedCalls },
      {
        raw: [
          chunk({ reasoning_content: 'once more' }),
          callPiece(0, '', 'look:2', 'look'),
          chunk({}, 'tool_calls', usage),
        ],
      },
      { reasoning: ['done'], chunks: ['All done.'], usage },
    );
    const messages: Anthropic.MessageParam[] = [{ role: 'user', content: 'go' }];
    const answers: Anthropic.Message[] = [];
    for (;;) {
      const answer = await client.messages
        .stream({
          model: 'deepseek-v4-pro',
          max_tokens: 1_000,
          tools,
          messages,
          thinking: { type: 'adaptive' },
        })
        .finalMessage();
      answers.push(answer);
      if (answer.stop_reason !== 'tool_use') break;
      const results = answer.content.flatMap((block) =>
        block.type === 'tool_use'
          ? [
              {
                type: 'tool_result' as const,
                tool_use_id: block.id,
                content: `${block.name} ${JSON.stringify(block.input)}`,
              },
            ]
          : [],
      );
      messages.push({ role: 'assistant', content: answer.content }, { role: 'user', content: results });
    }
    expect(answers.map(({ content }) => content)).toEqual([
      [
        { type: 'thinking', thinking: 'two calls', signature: '' },
        { type: 'text', text: 'I look.' },
        { type: 'tool_use', id: 'functions.look:0', name: 'look', input: { path: 'a' } },
        { type: 'tool_use', id: 'functions.write:1', name: 'write', input: { path: 'b' } },
      ],
      [
        { type: 'thinking', thinking: 'once more', signature: '' },
        { type: 'tool_use', id: 'look:2', name: 'look', input: {} },
      ],
      [
        { type: 'thinking', thinking: 'done', signature: '' },
        { type: 'text', text: 'All done.' },
      ],
    ]);
    const call = (id: string, name: string, args: string) => ({
      id,
      type: 'function',
      function: { name, arguments: args },
    });
    expect(sent(2)).toEqual([
      { role: 'user', content: 'go' },
      {
        role: 'assistant',
        content: 'I look.',
        reasoning_content: 'two calls',
        tool_calls: [
          call('functions.look:0', 'look', '{"path":"a"}'),
          call('functions.write:1', 'write', '{"path":"b"}'),
        ],
      },
      { role: 'tool', tool_call_id: 'functions.look:0', content: 'look {"path":"a"}' },
      { role: 'tool', tool_call_id: 'functions.write:1', content: 'write {"path":"b"}' },
      {
        role: 'assistant',
        content: null,
        reasoning_content: 'once more',
        tool_calls: [call('look:2', 'look', '{}')],
      },
      { role: 'tool', tool_call_id: 'look:2', content: 'look {}' },
    ]);
  });

  it('a client that keeps no thinking: the vendor gets its reasoning back all the same', async () => {
    router.upstream.next({ raw: mixedCalls }, { chunks: ['ok'] });
    const ask = { model: 'deepseek-v4-pro', max_tokens: 100, tools };
    const first = await client.messages.create({ ...ask, messages: hi });
    await client.messages.create({
      ...ask,
      messages: [
        ...hi,
        { role: 'assistant', content: first.content.filter(({ type }) => type !== 'thinking') },
        {
          role: 'user',
          content: ['functions.look:0', 'functions.write:1'].map((id) => ({
            type: 'tool_result',
            tool_use_id: id,
          })),
        },
      ],
    });
    expect(sent(1)[1]).toMatchObject({ role: 'assistant', reasoning_content: 'two calls' });
  });

  it('images: bytes in a message and in a result of a tool reach the vendor', async () => {
    const source = { type: 'base64' as const, media_type: 'image/png' as const, data: 'iVBORw0KGgo=' };
    await client.messages.create({
      model: 'kimi-k3',
      max_tokens: 100,
      tools,
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'see' },
            { type: 'image', source },
          ],
        },
        { role: 'assistant', content: [{ type: 'tool_use', id: '1', name: 'look', input: {} }] },
        {
          role: 'user',
          content: [{ type: 'tool_result', tool_use_id: '1', content: [{ type: 'image', source }] }],
        },
      ],
    });
    const url = 'data:image/png;base64,iVBORw0KGgo=';
    expect(sent(0)[0]).toEqual({
      role: 'user',
      content: [
        { type: 'text', text: 'see' },
        { type: 'image_url', image_url: { url } },
      ],
    });
    expect(JSON.stringify(sent(0)).split(url)).toHaveLength(3);
  });

  it('thinking that is disabled reaches the vendor as off and is never shown, also where it cannot be switched off', async () => {
    router.upstream.script(() => ({ reasoning: ['secret'], chunks: ['a'], usage }));
    for (const model of ['deepseek-v4-pro', 'glm-5.3', 'qwen3.8-max']) {
      const ask = { model, max_tokens: 100, messages: hi, thinking: { type: 'disabled' as const } };
      expect((await client.messages.create(ask)).content).toEqual([{ type: 'text', text: 'a' }]);
      expect((await client.messages.stream(ask).finalMessage()).content).toEqual([
        { type: 'text', text: 'a' },
      ]);
    }
    expect(router.upstream.requests[0]!.body).toMatchObject({ thinking: { type: 'disabled' } });
    expect(router.upstream.requests[2]!.body).toMatchObject({
      thinking: { type: 'enabled' },
      reasoning_effort: 'low',
    });
    expect(router.upstream.requests[4]!.body).toMatchObject({ enable_thinking: true });
  });

  it('errors are the classes of the client, with the reason and the id of the request', async () => {
    const ask = (more: object) =>
      // Without a limit of its own the client refuses long answers that are not streamed.
      client.messages.create(
        { model: 'glm-5.3', max_tokens: 10, messages: hi, ...more },
        { timeout: 60_000 },
      );
    const failed = async (promise: Promise<unknown>) =>
      promise.then(
        () => Promise.reject(new Error('it did not fail')),
        (error: InstanceType<typeof Anthropic.APIError>) => error,
      );
    const bad = await failed(ask({ max_tokens: 999_999 }));
    expect(bad).toBeInstanceOf(Anthropic.BadRequestError);
    expect(bad.message).toContain('131072');
    expect(bad.requestID).toMatch(/.+/);
    expect(await failed(ask({ model: 'gpt-4' }))).toBeInstanceOf(Anthropic.NotFoundError);
    router.identity = newCaller(router.billing, plenty, { models: [] });
    expect(await failed(ask({}))).toBeInstanceOf(Anthropic.PermissionDeniedError);
    router.identity = newCaller(router.billing, 1_000n);
    const poor = await failed(ask({ max_tokens: 100_000 }));
    expect(poor).toMatchObject({ status: 402, error: { type: 'error', error: { type: 'billing_error' } } });
    router.identity = newCaller(router.billing);
    router.upstream.next({ status: 500 });
    expect(await failed(ask({}))).toBeInstanceOf(Anthropic.InternalServerError);
    router.upstream.next({ chunks: ['a', 'b', 'c'], cutAfter: 2 });
    const broken = await failed(
      client.messages.stream({ model: 'glm-5.3', max_tokens: 10, messages: hi }).finalMessage(),
    );
    expect(broken.message).toContain('broke off');
  });

  it('a stream that breaks ends with an error event and is free; one that waits is kept alive by pings', async () => {
    const ask = { model: 'glm-5.3', max_tokens: 10, messages: hi, stream: true };
    router.upstream.next({ chunks: ['a', 'b', 'c'], cutAfter: 2 });
    const broken = messageEvents(await (await message(router, ask)).text());
    expect(broken.at(-1)).toEqual({
      type: 'error',
      error: expect.objectContaining({
        type: 'api_error',
        code: 'upstream_broken',
        message: expect.any(String),
      }),
    });
    expect(broken.map(({ type }) => type)).not.toContain('message_stop');
    expect(router.billing.available(router.identity.account_id)).toBe(plenty);
    router.upstream.next({ delay: 1_500, usage });
    const waited = messageEvents(await (await message(router, ask)).text());
    expect(waited[0]).toEqual({ type: 'ping' });
    expect(waited.at(-1)).toEqual({ type: 'message_stop' });
    router.upstream.next({ delay: 1_500, chunks: ['late'] });
    expect(await client.messages.stream({ ...ask, stream: undefined }).finalText()).toBe('late');
  });

  it('the start of a stream has an estimate of the input, near to what the count says', async () => {
    const ask = { model: 'glm-5.3', max_tokens: 10, system: 'be brief '.repeat(100), messages: hi };
    const { input_tokens: counted } = await client.messages.countTokens(ask);
    router.upstream.next({ usage });
    const [start] = messageEvents(await (await message(router, { ...ask, stream: true })).text());
    expect(start).toMatchObject({ type: 'message_start', message: { usage: { input_tokens: counted } } });
    expect(counted).toBeGreaterThan(150);
  });

  it.each([
    ['a stream that has begun', true, true],
    ['a stream that has not', true, false],
    ['a plain answer', false, false],
  ])('a client that leaves %s ends the request at the vendor', async (_what, stream, hasBegun) => {
    const ask = { model: 'glm-5.3', max_tokens: 10, messages: hi, stream };
    router.upstream.next(hasBegun ? { handle: hangInTheMiddle } : { hang: true });
    const leave = new AbortController();
    const request = client.messages.create(ask, { signal: leave.signal }).then(async (told) => {
      if (Symbol.asyncIterator in told) for await (const _event of told);
    });
    // The client's own error, or the end of a stream that was left.
    const left = request.catch(() => undefined);
    const seen = await until(() => router.upstream.requests[0], 'the vendor was asked');
    await new Promise((resolve) => setTimeout(resolve, hasBegun ? 100 : 0));
    leave.abort();
    await left;
    await seen.answered;
    expect(seen.aborted).toBe(true);
    await until(
      () => router.billing.available(router.identity.account_id) === plenty,
      'what was held is given back',
    );
  });

  it('the tool loop of the client itself sends whole histories', async () => {
    router.upstream.next({ raw: mixedCalls }, { chunks: ['Done.'], usage });
    const seen: unknown[] = [];
    const last = await client.beta.messages.toolRunner({
      model: 'kimi-k3',
      max_tokens: 1_000,
      messages: hi,
      betas: ['interleaved-thinking-2025-05-14'],
      thinking: { type: 'enabled', budget_tokens: 5_000 },
      stream: false,
      tools: tools.map(({ name, input_schema }) => ({
        name,
        type: 'custom' as const,
        input_schema,
        description: name,
        parse: (input: unknown) => input,
        run: (input: unknown) => {
          seen.push([name, input]);
          return Promise.resolve(`ran ${name}`);
        },
      })),
    });
    expect(last.content).toEqual([{ type: 'text', text: 'Done.' }]);
    expect(seen).toEqual([
      ['look', { path: 'a' }],
      ['write', { path: 'b' }],
    ]);
    // Its first request asked for a conversation that is kept here; told that there are none, it sends the whole history.
    expect(router.upstream.calls()).toBe(2);
    expect(router.upstream.requests[0]!.body).toMatchObject({ reasoning_effort: 'high' });
    expect(sent(1).slice(1)).toMatchObject([
      { role: 'assistant', reasoning_content: 'two calls' },
      { role: 'tool', tool_call_id: 'functions.look:0', content: 'ran look' },
      { role: 'tool', tool_call_id: 'functions.write:1', content: 'ran write' },
    ]);
  });

  it('lists the models', async () => {
    const ids: string[] = [];
    for await (const { id } of client.models.list()) ids.push(id);
    expect(ids).toContain('glm-5.3');
    expect(ids).toContain('kimi-k3');
  });
});
