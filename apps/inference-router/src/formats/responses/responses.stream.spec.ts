import { sharedPostgres } from '@nebo/test-kit';
import {
  hangInTheMiddle,
  newCaller,
  plenty,
  type Router,
  startRouter,
  until,
} from '../../../test/harness.js';
import { callPiece, chunk, mergedEvents, respond, responseEvents } from '../../../test/responses.js';

const usage = { prompt_tokens: 12, completion_tokens: 4, prompt_tokens_details: { cached_tokens: 8 } };
const end = (finish: string) => [chunk({}, finish, usage), 'data: [DONE]\n\n'];
const tool = (name: string, type = 'function') => ({ type, name, parameters: { type: 'object' } });

describe('streamed responses', () => {
  let router: Router;
  beforeAll(async () => {
    router = await startRouter({
      env: { NEBO_INFERENCE_KEEP_ALIVE: '1', NEBO_UPSTREAM_IDLE_TIMEOUT: '10' },
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

  const stream = async (body: object = {}) => {
    const response = await respond(router, { model: 'glm-5.3', input: 'hi', stream: true, ...body });
    const text = await response.text();
    const events = response.status === 200 ? responseEvents(text) : [];
    return { response, text, events, last: events.at(-1)?.['response'] as Record<string, never> };
  };
  const types = (events: readonly { type: string }[]) =>
    events.map(({ type }) => type.replace('response.', ''));
  const spent = () => plenty - router.billing.available(router.identity.account_id);

  it('the golden stream: every event, its order and its fields', async () => {
    router.upstream.next({
      raw: [
        chunk({ reasoning_content: 'Hm' }),
        chunk({ reasoning_content: '.' }),
        chunk({ content: 'Hel' }),
        chunk({ content: 'lo' }),
        callPiece(0, '', 'c1', 'look'),
        callPiece(0, '{"at":'),
        callPiece(0, '1}'),
        ...end('tool_calls'),
      ],
    });
    const { response, events } = await stream({ tools: [tool('look')] });
    expect(response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
    const id = response.headers.get('x-nebo-ledger-id')!;
    const begun = {
      id: `resp_${id}`,
      object: 'response',
      created_at: expect.any(Number),
      status: 'in_progress',
      background: false,
      error: null,
      incomplete_details: null,
      model: 'glm-5.3',
      output: [],
      previous_response_id: null,
      store: false,
      usage: null,
      instructions: null,
      max_output_tokens: 32_000,
      metadata: {},
      parallel_tool_calls: true,
      reasoning: { effort: null, summary: null },
      temperature: null,
      text: { format: { type: 'text' } },
      tool_choice: 'auto',
      tools: [tool('look')],
      top_p: null,
      truncation: 'disabled',
    };
    const [rs, msg, fc] = [`rs_${id}_0`, `msg_${id}_1`, `fc_${id}_2`];
    const thought = { id: rs, type: 'reasoning', summary: [{ type: 'summary_text', text: 'Hm.' }] };
    const part = (text: string) => ({ type: 'output_text', text, annotations: [], logprobs: [] });
    const message = (status: string, content: object[]) => ({
      id: msg,
      type: 'message',
      role: 'assistant',
      status,
      content,
    });
    const call = (status: string, args: string) => ({
      id: fc,
      type: 'function_call',
      status,
      call_id: 'c1',
      name: 'look',
      arguments: args,
    });
    const at = (index: number, item_id: string) => ({ output_index: index, item_id });
    const summary = { ...at(0, rs), summary_index: 0 };
    const content = { ...at(1, msg), content_index: 0 };
    expect(mergedEvents(events)).toEqual(
      [
        { type: 'created', response: begun },
        { type: 'in_progress', response: begun },
        { type: 'output_item.added', output_index: 0, item: { id: rs, type: 'reasoning', summary: [] } },
        { type: 'reasoning_summary_part.added', ...summary, part: { type: 'summary_text', text: '' } },
        { type: 'reasoning_summary_text.delta', ...summary, delta: 'Hm.' },
        { type: 'reasoning_summary_text.done', ...summary, text: 'Hm.' },
        { type: 'reasoning_summary_part.done', ...summary, part: { type: 'summary_text', text: 'Hm.' } },
        { type: 'output_item.done', output_index: 0, item: thought },
        { type: 'output_item.added', output_index: 1, item: message('in_progress', []) },
        { type: 'content_part.added', ...content, part: part('') },
        { type: 'output_text.delta', ...content, delta: 'Hello', logprobs: [] },
        { type: 'output_text.done', ...content, text: 'Hello', logprobs: [] },
        { type: 'content_part.done', ...content, part: part('Hello') },
        { type: 'output_item.done', output_index: 1, item: message('completed', [part('Hello')]) },
        { type: 'output_item.added', output_index: 2, item: call('in_progress', '') },
        { type: 'function_call_arguments.delta', ...at(2, fc), delta: '{"at":1}' },
        { type: 'function_call_arguments.done', ...at(2, fc), name: 'look', arguments: '{"at":1}' },
        { type: 'output_item.done', output_index: 2, item: call('completed', '{"at":1}') },
        {
          type: 'completed',
          response: {
            ...begun,
            status: 'completed',
            output: [thought, message('completed', [part('Hello')]), call('completed', '{"at":1}')],
            usage: {
              input_tokens: 12,
              input_tokens_details: { cached_tokens: 8, cache_write_tokens: 0 },
              output_tokens: 4,
              output_tokens_details: { reasoning_tokens: 0 },
              total_tokens: 16,
            },
          },
        },
      ].map((event) => ({ ...event, type: `response.${event.type}` })),
    );
    expect(spent()).toBe(4n * 60_000n + 8n * 12_000n + 4n * 240_000n);
  });

  it('parallel calls that the provider mixes come one item after the other, whole and with their own ids', async () => {
    router.upstream.next({
      raw: [
        callPiece(0, '', 'functions.a:0', 'a'),
        callPiece(1, '', 'functions.b:1', 'b'),
        callPiece(1, '{"y":'),
        callPiece(0, '{"x":'),
        callPiece(2, '', 'functions.c:2', 'c'),
        callPiece(0, '1}'),
        callPiece(1, '2}'),
        ...end('tool_calls'),
      ],
    });
    const { events, last } = await stream({ tools: ['a', 'b', 'c'].map((name) => tool(name)) });
    const places = events.flatMap(({ output_index: index }) =>
      index === undefined ? [] : [index as number],
    );
    expect(places).toEqual([...places].sort());
    expect(last['output']).toMatchObject([
      { call_id: 'functions.a:0', name: 'a', arguments: '{"x":1}', status: 'completed' },
      { call_id: 'functions.b:1', name: 'b', arguments: '{"y":2}', status: 'completed' },
      { call_id: 'functions.c:2', name: 'c', arguments: '{}', status: 'completed' },
    ]);
    const told = (index: number) =>
      events
        .filter(({ type, output_index: at }) => at === index && type.endsWith('arguments.delta'))
        .map(({ delta }) => delta)
        .join('');
    expect([told(0), told(1), told(2)]).toEqual(['{"x":1}', '{"y":2}', '{}']);
  });

  it('a call streams while it is written; text between calls becomes an item behind them', async () => {
    let isSeen = () => {};
    const seen = new Promise<void>((resolve) => (isSeen = resolve));
    router.upstream.next({
      handle: async (_request, response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write(callPiece(0, '{"x":', 'c0', 'a'));
        // The rest is not written before the client has got the beginning.
        await seen;
        response.end(
          [
            chunk({ content: 'and' }),
            callPiece(0, '1}'),
            chunk({ content: ' so' }),
            callPiece(1, '{}', 'c1', 'a'),
            ...end('stop'),
          ].join(''),
        );
      },
    });
    const response = await respond(router, {
      model: 'glm-5.3',
      input: 'hi',
      stream: true,
      tools: [tool('a')],
    });
    let text = '';
    for await (const part of response.body!) {
      text += Buffer.from(part as Uint8Array).toString();
      if (text.includes('arguments.delta')) isSeen();
    }
    expect(responseEvents(text).at(-1)).toMatchObject({
      type: 'response.completed',
      response: {
        output: [
          { type: 'function_call', call_id: 'c0', arguments: '{"x":1}' },
          { type: 'message', content: [{ text: 'and so' }] },
          { type: 'function_call', call_id: 'c1', arguments: '{}' },
        ],
      },
    });
  });

  it('reasoning that goes on after text is an item of its own', async () => {
    router.upstream.next({
      raw: [
        chunk({ reasoning_content: 'a', content: 'b' }),
        chunk({ reasoning_content: 'c' }),
        chunk({ content: 'd' }),
        ...end('stop'),
      ],
    });
    const { last } = await stream();
    expect(last['output']).toMatchObject([
      { type: 'reasoning', summary: [{ text: 'a' }] },
      { type: 'message', content: [{ text: 'b' }] },
      { type: 'reasoning', summary: [{ text: 'c' }] },
      { type: 'message', content: [{ text: 'd' }] },
    ]);
  });

  it('the input of a free-input tool streams as text, and a tool of a namespace is told by both names', async () => {
    const tools = [
      { type: 'custom', name: 'apply_patch', format: { type: 'text' } },
      { type: 'namespace', name: 'maps', tools: [tool('find'), { type: 'custom', name: 'note' }] },
    ];
    router.upstream.next({
      raw: [
        callPiece(0, '{"inp', 'c0', 'apply_patch'),
        callPiece(0, 'ut": "*** Be'),
        callPiece(0, 'gin\\'),
        callPiece(0, 'n\\ud83d'),
        callPiece(0, '\\ude00"}'),
        callPiece(1, '{"a":1}', 'c1', 'maps__find'),
        callPiece(2, '{"input":"x"}', 'c2', 'maps__note'),
        callPiece(3, '{}', 'c3', 'made_up'),
        ...end('tool_calls'),
      ],
    });
    const { response, events, last } = await stream({ tools });
    const id = response.headers.get('x-nebo-ledger-id')!;
    const input = '*** Begin\n😀';
    const first = events.filter((event) => event['output_index'] === 0);
    expect(types(mergedEvents(first))).toEqual([
      'output_item.added',
      'custom_tool_call_input.delta',
      'custom_tool_call_input.done',
      'output_item.done',
    ]);
    expect(events.find(({ type }) => type.endsWith('input.done'))).toMatchObject({
      item_id: `ctc_${id}_0`,
      input,
    });
    expect(last['output']).toEqual([
      {
        id: `ctc_${id}_0`,
        type: 'custom_tool_call',
        status: 'completed',
        call_id: 'c0',
        name: 'apply_patch',
        input,
      },
      {
        id: `fc_${id}_1`,
        type: 'function_call',
        status: 'completed',
        call_id: 'c1',
        name: 'find',
        namespace: 'maps',
        arguments: '{"a":1}',
      },
      {
        id: `ctc_${id}_2`,
        type: 'custom_tool_call',
        status: 'completed',
        call_id: 'c2',
        name: 'note',
        namespace: 'maps',
        input: 'x',
      },
      {
        id: `fc_${id}_3`,
        type: 'function_call',
        status: 'completed',
        call_id: 'c3',
        name: 'made_up',
        arguments: '{}',
      },
    ]);
  });

  it.each([
    ['length', 'max_output_tokens'],
    ['content_filter', 'content_filter'],
  ])('%s ends with response.incomplete, and half a call is never done', async (finish, reason) => {
    const tools = [tool('a'), { type: 'custom', name: 'p' }];
    router.upstream.next({ raw: [chunk({ content: 'He' }), ...end(finish)] });
    const text = await stream();
    expect(text.events.at(-1)!.type).toBe('response.incomplete');
    expect(text.last).toMatchObject({
      status: 'incomplete',
      incomplete_details: { reason },
      output: [{ status: 'incomplete', content: [{ text: 'He' }] }],
      usage: { output_tokens: 4 },
    });
    router.upstream.next({
      raw: [
        callPiece(0, '{"x":1}', 'c0', 'a'),
        callPiece(1, '{"x', 'c1', 'a'),
        callPiece(2, '{"input":"x', 'c2', 'p'),
        ...end(finish),
      ],
    });
    const calls = await stream({ tools });
    expect(calls.last['output']).toMatchObject([
      { status: 'completed', arguments: '{"x":1}' },
      { status: 'incomplete', arguments: '{"x' },
      { status: 'incomplete', input: 'x' },
    ]);
    const done = calls.events.filter(({ type }) => type.endsWith('.done'));
    expect(done.map((event) => event['output_index'])).toEqual([0, 0]);
    expect(spent()).toBe(2n * (4n * 60_000n + 8n * 12_000n + 4n * 240_000n));
  });

  it('a broken upstream ends with response.failed, never with response.completed, and is free', async () => {
    router.upstream.next({
      raw: [chunk({ reasoning_content: 'Hm' }), callPiece(0, '{"x":', 'c0', 'a'), chunk({ content: 'x' })],
      cutAfter: 2,
      chunkDelay: 30,
    });
    const { response, text, events, last } = await stream({ tools: [tool('a')] });
    expect(response.status).toBe(200);
    expect(types(events)).toEqual([
      'created',
      'in_progress',
      'output_item.added',
      'reasoning_summary_part.added',
      'reasoning_summary_text.delta',
      'reasoning_summary_text.done',
      'reasoning_summary_part.done',
      'output_item.done',
      'output_item.added',
      'function_call_arguments.delta',
      'failed',
    ]);
    expect(last).toMatchObject({
      status: 'failed',
      error: { code: 'upstream_broken', message: expect.stringMatching(/broke off/) },
      output: [{ type: 'reasoning' }],
    });
    expect(text).not.toContain('response.completed');
    expect(spent()).toBe(0n);
    expect(router.billing.inState('void')).toHaveLength(1);
  });

  it('a failure before the first event is a plain error', async () => {
    router.upstream.next({ status: 500 }, { status: 500 }, { status: 500 }, { status: 500 });
    const { response, text } = await stream();
    expect(response.status).toBe(502);
    expect(JSON.parse(text)).toMatchObject({ error: { type: 'api_error', code: 'upstream_failed' } });
    expect(spent()).toBe(0n);
  });

  it('comments keep a waiting connection alive; what fails after them is an event', async () => {
    router.upstream.next({ delay: 1_500, chunks: ['Hi'], usage });
    const waited = await stream();
    expect(waited.text.startsWith(': keep-alive\n\n')).toBe(true);
    expect(waited.events.at(-1)!.type).toBe('response.completed');
    router.upstream.next({ delay: 1_500, status: 400, body: { error: { message: 'no such tool' } } });
    const refused = await stream();
    expect(types(refused.events)).toEqual(['created', 'in_progress', 'failed']);
    expect(refused.last).toMatchObject({ error: { code: 'rejected_by_model' } });
  });

  it('an answer without anything, and one without counters, are complete', async () => {
    router.upstream.next({ raw: [chunk({}, 'stop', usage), 'data: [DONE]\n\n'] });
    const empty = await stream();
    expect(types(empty.events)).toEqual(['created', 'in_progress', 'completed']);
    expect(empty.last).toMatchObject({ output: [], usage: { total_tokens: 16 } });
    router.upstream.next({ chunks: ['Hi'], usage: null });
    expect((await stream()).last).toMatchObject({ status: 'completed', usage: null });
  });

  it.each([true, false])(
    'a client that leaves ends the upstream request and pays nothing, streamed: %s',
    async (isStream) => {
      router.upstream.next({ handle: hangInTheMiddle });
      const client = new AbortController();
      const asked = respond(router, { model: 'glm-5.3', input: 'hi', stream: isStream }, client.signal);
      asked.catch(() => undefined);
      const seen = await until(() => router.upstream.requests[0], 'the upstream is asked');
      if (isStream) {
        const reader = (await asked).body!.getReader();
        await reader.read();
        reader.closed.catch(() => undefined);
      }
      client.abort();
      await seen.answered;
      expect(seen.aborted).toBe(true);
      await until(() => spent() === 0n, 'nothing is held');
    },
  );
});
