import { sharedPostgres } from '@nebo/test-kit';
import OpenAI from 'openai';
import { eventsOf, newCaller, plenty, type Router, startRouter, until } from '../../../test/harness.js';

const messages = [{ role: 'user' as const, content: 'hi' }];
const usage = { prompt_tokens: 12, completion_tokens: 4, total_tokens: 16 };

describe('streamed chat completions', () => {
  let router: Router;
  beforeAll(async () => {
    router = await startRouter({
      env: {
        NEBO_INFERENCE_KEEP_ALIVE: '1',
        NEBO_UPSTREAM_IDLE_TIMEOUT: '2',
        NEBO_UPSTREAM_FIRST_BYTE_TIMEOUT: '4',
      },
    });
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

  const stream = async (body: Record<string, unknown> = {}) => {
    const response = await router.chat({ model: 'glm-5.3', messages, stream: true, ...body });
    const text = await response.text();
    return { response, text, events: eventsOf(text) };
  };
  const client = () =>
    new OpenAI({ baseURL: `${router.url}/v1`, apiKey: 'signed by the front', maxRetries: 0 });
  const spent = () => plenty - router.billing.available(router.identity.account_id);

  it('the golden stream: role first, equal heads, reasoning, text, reason, end; no counters unasked', async () => {
    router.upstream.next({ reasoning: ['Hm'], chunks: ['Hel', 'lo'], usage });
    const { response, text } = await stream();
    expect(response.status).toBe(200);
    expect(response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
    expect(response.headers.get('cache-control')).toContain('no-cache');
    expect(response.headers.get('x-request-id')).toMatch(/.+/);
    const id = response.headers.get('x-nebo-ledger-id')!;
    const created = /"created":(\d+)/.exec(text)![1]!;
    const chunk = (delta: string, finish = 'null') =>
      `data: {"id":"chatcmpl-${id}","object":"chat.completion.chunk","created":${created},"model":"glm-5.3","choices":[{"index":0,"delta":${delta},"finish_reason":${finish}}]}\n\n`;
    expect(text).toBe(
      chunk('{"role":"assistant","content":"","reasoning_content":"Hm"}') +
        chunk('{"content":"Hel"}') +
        chunk('{"content":"lo"}') +
        chunk('{}', '"stop"') +
        'data: [DONE]\n\n',
    );
    expect(spent()).toBe(12n * 60_000n + 4n * 240_000n);
  });

  it('shows the counters when asked: null in all chunks, then one chunk without choices', async () => {
    router.upstream.next({ chunks: ['Hi'], usage: { ...usage, prompt_cache_hit_tokens: 8 } });
    const { events } = await stream({ stream_options: { include_usage: true } });
    const last = events.at(-2) as Record<string, unknown>;
    expect(last).toMatchObject({
      choices: [],
      usage: { ...usage, prompt_tokens_details: { cached_tokens: 8 } },
    });
    expect(events.slice(0, -2).every((event) => (event as Record<string, unknown>)['usage'] === null)).toBe(
      true,
    );
    expect(events.at(-1)).toBe('[DONE]');
  });

  it('is settled before the last bytes reach the client, and the row says so', async () => {
    router.upstream.next({ chunks: ['Hi'], usage });
    const response = await router.chat({ model: 'glm-5.3', messages, stream: true });
    let seen = '';
    for await (const part of response.body!) {
      seen += Buffer.from(part as Uint8Array).toString();
      if (seen.includes('finish_reason":"stop"')) break;
    }
    expect(router.billing.inState('captured')).toHaveLength(1);
    const id = response.headers.get('x-nebo-ledger-id');
    await until(() => router.billing.times(id!) === 1, 'the ledger has it');
    const [row] = await until(async () => {
      const found = await router.rows<Record<string, unknown>>(
        `select * from request_log where operation_id = '${id}'`,
      );
      return found.length > 0 ? found : null;
    }, 'the row of the log');
    expect(row).toMatchObject({
      model: 'glm-5.3',
      upstream: 'glm',
      format: 'chat',
      streamed: true,
      status: 200,
      outcome: 'complete',
      finish_reason: 'stop',
      input_tokens: '12',
      output_tokens: '4',
      cost: String(12n * 60_000n + 4n * 240_000n),
      key_id: router.identity.key_id,
    });
    expect(Object.values(row!).join(' ')).not.toContain('Hi');
  });

  it('a call without arguments has an empty object, where the vendor writes nothing; a call that was cut has not', async () => {
    const tools = [{ type: 'function' as const, function: { name: 'f', parameters: { type: 'object' } } }];
    const ask = { model: 'glm-5.3', messages, tools };
    for (const [finishReason, expected] of [
      ['tool_calls', '{}'],
      ['stop', '{}'],
      ['length', ''],
    ] as const) {
      const toolCalls = [{ id: 'a', type: 'function', function: { name: 'f', arguments: '' } }];
      router.upstream.next({ toolCalls, finishReason }, { toolCalls, finishReason });
      const plain = await client().chat.completions.create(ask);
      expect(plain.choices[0]!.message.tool_calls).toMatchObject([{ function: { arguments: expected } }]);
      let streamed = '';
      for await (const { choices } of await client().chat.completions.create({ ...ask, stream: true }))
        streamed += choices[0]?.delta.tool_calls?.[0]?.function?.arguments ?? '';
      expect(streamed).toBe(expected);
    }
  });

  it('works with the official client, plain and streamed, with tool calls straightened', async () => {
    const call = (delta: object) =>
      `data: ${JSON.stringify({ choices: [{ index: 0, delta: { tool_calls: [delta] } }] })}\n\n`;
    const raw = [
      call({ index: 0, id: 'functions.a:0', type: 'function', function: { name: 'a', arguments: '' } }),
      call({ index: 1, id: 'functions.b:1', type: 'function', function: { name: 'b', arguments: '{' } }),
      call({ index: 0, id: '', function: { name: '', arguments: '{"x":' } }),
      call({ index: 1, id: 'functions.b:1', type: 'function', function: { name: 'b', arguments: '}' } }),
      call({ index: 0, id: '', function: { name: '', arguments: '1}' } }),
      `data: ${JSON.stringify({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }], usage })}\n\n`,
      'data: [DONE]\n\n',
    ];
    router.upstream.next({ raw }, { raw });
    const tools = ['a', 'b'].map((name) => ({
      type: 'function' as const,
      function: { name, parameters: { type: 'object' } },
    }));
    const calls = [
      { id: 'functions.a:0', type: 'function', function: { name: 'a', arguments: '{"x":1}' } },
      { id: 'functions.b:1', type: 'function', function: { name: 'b', arguments: '{}' } },
    ];
    const plain = await client().chat.completions.create({ model: 'glm-5.3', messages, tools });
    expect(plain.choices[0]).toMatchObject({
      message: { content: null, tool_calls: calls },
      finish_reason: 'tool_calls',
    });
    const streamed = await client()
      .chat.completions.stream({ model: 'glm-5.3', messages, tools })
      .finalChatCompletion();
    expect(streamed.choices[0]!.message.tool_calls).toMatchObject(calls);
    expect(spent()).toBe(2n * (12n * 60_000n + 4n * 240_000n));
  });

  it('reads odd framing: CRLF, comments, split characters and lines, counters in the choice, no [DONE], no last blank line', async () => {
    const bytes = Buffer.from(
      [
        ': OPENROUTER PROCESSING',
        `data:${JSON.stringify({ choices: [{ index: 0, delta: { content: 'При' } }] })}`,
        `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: 'вет 🙂' } }] })}`,
        `data: ${JSON.stringify({ choices: [{ index: 0, delta: {}, finish_reason: 'stop', usage }] })}`,
      ].join('\r\n\r\n'),
    );
    router.upstream.next({ raw: [...bytes].map((byte) => Buffer.of(byte)) });
    const { events } = await stream({ model: 'kimi-k3' });
    const text = events
      .map(
        (event) =>
          (event as { choices?: { delta: { content?: string } }[] }).choices?.[0]?.delta.content ?? '',
      )
      .join('');
    expect(text).toBe('Привет 🙂');
    expect(events.at(-1)).toBe('[DONE]');
    expect(router.billing.inState('captured')).toHaveLength(1);
  });

  it('takes a host that ignores stream, and counters that grow with every chunk', async () => {
    router.upstream.next({
      body: {
        choices: [{ index: 0, message: { role: 'assistant', content: 'whole' }, finish_reason: 'stop' }],
        usage,
      },
    });
    expect((await stream()).text).toContain('"content":"whole"');
    const piece = (count: number, finish: string | null = null) =>
      `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: 'x' }, finish_reason: finish }], usage: { prompt_tokens: 12, completion_tokens: count } })}\n\n`;
    router.upstream.next({ raw: [piece(1), piece(2), piece(3, 'length'), 'data: [DONE]\n\n'] });
    expect((await stream()).text).toContain('"finish_reason":"length"');
    expect(spent()).toBe(12n * 60_000n + 4n * 240_000n + 12n * 60_000n + 3n * 240_000n);
  });

  it('a cut stream is free: an error event, no clean end', async () => {
    router.upstream.next({ chunks: ['a', 'b', 'c', 'd'], cutAfter: 3 });
    const { response, text, events } = await stream();
    expect(response.status).toBe(200);
    expect(text).not.toContain('[DONE]');
    expect(text).not.toContain('"finish_reason":"stop"');
    expect(events.at(-1)).toMatchObject({
      error: { type: 'api_error', code: 'upstream_broken', message: expect.any(String) },
    });
    expect(spent()).toBe(0n);
    expect(router.billing.inState('void')).toHaveLength(1);
    await expect(async () => {
      router.upstream.next({ chunks: ['a', 'b', 'c', 'd'], cutAfter: 3 });
      for await (const _ of await client().chat.completions.create({
        model: 'glm-5.3',
        messages,
        stream: true,
      }));
    }).rejects.toThrow(/broke off/);
  });

  it('a cut is free although growing counters had come, and after the finish reason as well', async () => {
    const piece = (finish: string | null) =>
      `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: 'x' }, finish_reason: finish }], usage: finish ? undefined : { prompt_tokens: 1, completion_tokens: 1 } })}\n\n`;
    router.upstream.next({ raw: [piece(null), piece(null)], cutAfter: 2 });
    expect((await stream()).events.at(-1)).toHaveProperty('error');
    router.upstream.next({ raw: [piece('stop')], cutAfter: 1 });
    const { text } = await stream();
    expect(text).not.toContain('"finish_reason":"stop"');
    expect(spent()).toBe(0n);
  });

  it('a whole answer without counters is delivered and free', async () => {
    router.upstream.next({ usage: null });
    expect((await stream()).events.at(-1)).toBe('[DONE]');
    router.upstream.next({ usage: { prompt_tokens: -1, completion_tokens: 2.5 } });
    expect((await stream()).events.at(-1)).toBe('[DONE]');
    expect(spent()).toBe(0n);
    expect(router.billing.inState('void')).toHaveLength(2);
  });

  it('an error that comes as the first event is a plain error, later one an event; its words are hidden', async () => {
    router.upstream.next({
      raw: ['data: {"error":{"message":"account 4711 is out of money","code":402}}\n\n'],
    });
    const first = await stream();
    expect(first.response.status).toBe(502);
    router.upstream.next({
      raw: [
        'data: {"choices":[{"delta":{"content":"x"}}]}\n\n',
        'data: {"error":{"message":"4711","code":429}}\n\n',
      ],
      chunkDelay: 30,
    });
    const later = await stream();
    expect(later.events.at(-1)).toMatchObject({ error: { code: 'upstream_busy' } });
    expect(first.text + later.text).not.toContain('4711');
    expect(spent()).toBe(0n);
  });

  it('comments keep a waiting connection alive, and the limits of the operator end it', async () => {
    router.upstream.next({ delay: 1_500, usage });
    const waited = await stream();
    expect(waited.text.startsWith(': keep-alive\n\n')).toBe(true);
    expect(waited.events.at(-1)).toBe('[DONE]');
    router.upstream.next({ chunkDelay: 2_500 });
    expect((await stream()).events.at(-1)).toMatchObject({ error: { code: 'upstream_failed' } });
    router.upstream.next({ hang: true });
    const hung = await stream();
    expect(hung.events.at(-1)).toMatchObject({ error: { code: 'upstream_failed' } });
    expect(
      await Promise.race([
        router.upstream.requests.at(-1)!.answered.then(() => 'closed'),
        new Promise((resolve) => setTimeout(resolve, 500, 'open')),
      ]),
    ).toBe('closed');
  });

  it('counters beyond what was held are charged at the hold, and output beyond the ceiling not at all', async () => {
    router.upstream.next(
      { usage: { prompt_tokens: 5_000_000, completion_tokens: 1 } },
      { usage: { prompt_tokens: 12, completion_tokens: 900 } },
    );
    const first = await stream({ max_tokens: 10 });
    const hold = router.billing.holds.get(first.response.headers.get('x-nebo-ledger-id')!)!;
    expect(hold.captured).toBe(hold.amount);
    const second = await stream({ max_tokens: 10 });
    expect(router.billing.holds.get(second.response.headers.get('x-nebo-ledger-id')!)!.captured).toBe(
      12n * 60_000n + 10n * 240_000n,
    );
  });
});
