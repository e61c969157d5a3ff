import { sharedPostgres } from '@nebo/test-kit';
import { caller, newCaller, plenty, type Router, startRouter } from '../../../test/harness.js';
import { message } from '../../../test/messages.js';

const messages = [{ role: 'user', content: 'hi' }];
const invalid = 'invalid_request_error';

describe('POST /v1/messages by status', () => {
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

  const ask = async (body: Record<string, unknown>, path?: string) => {
    const response = await message(router, { model: 'glm-5.3', max_tokens: 100, messages, ...body }, path);
    return {
      status: response.status,
      headers: response.headers,
      body: (await response.json()) as Record<string, never>,
    };
  };
  const count = (body: Record<string, unknown>) => ask(body, '/v1/messages/count_tokens');
  const expectUntouched = () => {
    expect(router.upstream.calls()).toBe(0);
    expect(router.billing.holds.size).toBe(0);
  };

  it('200 plain: the message, its counters, its cost and its place in the ledger; ?beta=true is the same', async () => {
    for (const path of ['/v1/messages', '/v1/messages?beta=true']) {
      router.upstream.next({
        chunks: ['Hel', 'lo'],
        reasoning: ['Let me ', 'think'],
        usage: {
          prompt_tokens: 120,
          completion_tokens: 30,
          prompt_tokens_details: { cached_tokens: 64 },
          completion_tokens_details: { reasoning_tokens: 10 },
        },
      });
      const answer = await ask({}, path);
      expect(answer.status).toBe(200);
      expect(answer.body).toEqual({
        id: expect.stringMatching(/^msg_/),
        type: 'message',
        role: 'assistant',
        model: 'glm-5.3',
        content: [
          { type: 'thinking', thinking: 'Let me think', signature: '' },
          { type: 'text', text: 'Hello' },
        ],
        stop_reason: 'end_turn',
        stop_sequence: null,
        usage: {
          input_tokens: 56,
          cache_read_input_tokens: 64,
          cache_creation_input_tokens: 0,
          output_tokens: 30,
          output_tokens_details: { thinking_tokens: 10 },
        },
      });
      // 56 × 60 + 64 × 12 + 30 × 240 rubles per million.
      expect(answer.headers.get('x-nebo-cost')).toBe('0.011328');
      expect(answer.headers.get('request-id')).toBe(answer.headers.get('x-request-id'));
      expect(answer.body['id']).toBe(`msg_${answer.headers.get('x-nebo-ledger-id')}`);
    }
    expect(plenty - router.billing.available(router.identity.account_id)).toBe(2n * 11_328_000n);
    expect(router.upstream.requests[0]!.body).toMatchObject({
      model: 'vendor-glm',
      stream: true,
      max_tokens: 100,
    });
  });

  it('200 with calls: objects out of empty, whole and broken arguments; nothing of the broken ones is lost', async () => {
    const call = (id: string, args: string) => ({
      id,
      type: 'function',
      function: { name: 'look', arguments: args },
    });
    router.upstream.next({
      toolCalls: [call('functions.look:0', ''), call('b', '{"a":1}'), call('c', '{"a":')],
    });
    const tools = [{ name: 'look', input_schema: { type: 'object' } }];
    const { body } = await ask({ tools });
    expect(body).toMatchObject({
      content: [
        { type: 'tool_use', id: 'functions.look:0', name: 'look', input: {} },
        { type: 'tool_use', id: 'b', name: 'look', input: { a: 1 } },
        { type: 'tool_use', id: 'c', name: 'look', input: { raw_arguments: '{"a":' } },
      ],
      stop_reason: 'tool_use',
    });
  });

  it.each([
    ['length', 'max_tokens'],
    ['content_filter', 'refusal'],
    ['stop', 'end_turn'],
  ])('200 that ended by %s says %s; one without counters is free and says 0', async (finish, reason) => {
    router.upstream.next({ finishReason: finish, usage: null });
    expect((await ask({})).body).toMatchObject({
      stop_reason: reason,
      usage: {
        input_tokens: 0,
        output_tokens: 0,
        cache_read_input_tokens: 0,
        cache_creation_input_tokens: 0,
      },
    });
    expect(router.billing.available(router.identity.account_id)).toBe(plenty);
  });

  it.each([
    ['no model', { model: undefined }, 400, 'model_required', invalid],
    ['an unknown model', { model: 'gpt-4' }, 404, 'model_not_found', 'not_found_error'],
    ['no ceiling', { max_tokens: undefined }, 400, 'max_tokens_required', invalid],
    ['a ceiling above the limit', { max_tokens: 131_073 }, 400, 'max_tokens_too_large', invalid],
    ['no messages', { messages: [] }, 400, 'invalid_messages', invalid],
    [
      'a document',
      { messages: [{ role: 'user', content: [{ type: 'document' }] }] },
      400,
      'unsupported_content',
      invalid,
    ],
    [
      'an image for a model without eyes',
      { messages: [{ role: 'user', content: [{ type: 'image' }] }] },
      400,
      'unsupported_content',
      invalid,
    ],
    ['servers of tools', { mcp_servers: [{ name: 'x' }] }, 400, 'unsupported_parameter', invalid],
    ['a container', { container: 'x' }, 400, 'unsupported_parameter', invalid],
    ['odd tools', { tools: [{}] }, 400, 'invalid_tools', invalid],
    ['odd thinking', { thinking: { type: 'enabled' } }, 400, 'invalid_thinking', invalid],
  ])('refuses %s free of charge, in the shape of the format', async (_what, body, status, code, type) => {
    for (const stream of [false, true]) {
      const answer = await ask({ stream, ...body });
      expect(answer).toMatchObject({
        status,
        body: { type: 'error', error: { type, code, message: expect.any(String) } },
      });
      expect(answer.headers.get('request-id')).toMatch(/.+/);
    }
    expectUntouched();
  });

  it('400 for a conversation that is kept elsewhere tells clients in their own words to send all of it', async () => {
    const { status, body } = await ask({ thread: { type: 'continue', previous_message_id: 'msg_1' } });
    expect(status).toBe(400);
    expect(body).toMatchObject({
      type: 'error',
      error: {
        type: invalid,
        code: 'unsupported_parameter',
        details: { error_code: 'thread_unsupported_request', unsupported: ['thread'] },
      },
    });
    expectUntouched();
  });

  it('400, 413 and 415 for bodies that cannot be read, 405 and 404 beside the paths', async () => {
    const send = (payload: string, type = 'application/json', path = '/v1/messages') =>
      router.nebo.request('inference-router', {
        method: 'POST',
        path,
        as: caller,
        body: Buffer.from(payload),
        headers: { 'content-type': type },
      });
    const refusal = (type: string, code: string) => ({ type: 'error', error: { type, code } });
    for (const path of ['/v1/messages', '/v1/messages/count_tokens']) {
      expect(await send('{"model":', undefined, path)).toMatchObject({
        status: 400,
        body: refusal(invalid, 'bad_request'),
      });
      expect(await send('[1]', undefined, path)).toMatchObject({
        status: 400,
        body: refusal(invalid, 'invalid_request'),
      });
      expect(await send('', undefined, path)).toMatchObject({
        status: 400,
        body: refusal(invalid, 'invalid_request'),
      });
      expect(await send('model=x', 'text/plain', path)).toMatchObject({
        status: 415,
        body: refusal(invalid, 'unsupported_media_type'),
      });
    }
    const large = JSON.stringify({ messages: [{ role: 'user', content: 'x'.repeat(33 * 1024 * 1024) }] });
    expect(await send(large)).toMatchObject({
      status: 413,
      body: refusal('request_too_large', 'payload_too_large'),
    });
    expect(await send('{}', undefined, '/v1/messages/batches')).toMatchObject({
      status: 404,
      body: refusal('not_found_error', 'unknown_operation'),
    });
    expectUntouched();
  });

  it('401 without a signed identity', async () => {
    for (const path of ['/v1/messages', '/v1/messages/count_tokens']) {
      expect(
        await router.nebo.request('inference-router', { method: 'POST', path, as: null, body: {} }),
      ).toMatchObject({
        status: 401,
        body: { type: 'error', error: { type: 'authentication_error', code: 'unauthorized' } },
      });
    }
  });

  it('402 with type billing_error, 403 for a model that the key may not use', async () => {
    router.identity = newCaller(router.billing, 1_000n);
    expect(await ask({})).toMatchObject({
      status: 402,
      body: { type: 'error', error: { type: 'billing_error', code: 'insufficient_balance' } },
    });
    router.identity = newCaller(router.billing, plenty, { models: ['kimi-k3'] });
    expect(await ask({})).toMatchObject({
      status: 403,
      body: { type: 'error', error: { type: 'permission_error', code: 'model_not_allowed' } },
    });
    expect(router.upstream.calls()).toBe(0);
  });

  it('502 when the answer breaks off, 503 when the vendor is busy or the balance cannot be read', async () => {
    router.upstream.next({ chunks: ['a', 'b'], cutAfter: 1 });
    expect(await ask({})).toMatchObject({
      status: 502,
      body: { type: 'error', error: { type: 'api_error', code: 'upstream_broken' } },
    });
    router.upstream.next({ status: 429, headers: { 'retry-after': '17' } });
    const busy = await ask({});
    expect(busy).toMatchObject({ status: 503, body: { type: 'error', error: { code: 'upstream_busy' } } });
    expect(busy.headers.get('retry-after')).toBe('17');
    router.identity = newCaller(router.billing);
    router.billing.away = /reserve|slice/;
    expect(await ask({})).toMatchObject({
      status: 503,
      body: { type: 'error', error: { type: 'api_error', code: 'billing_unavailable' } },
    });
  });

  describe('count_tokens', () => {
    it('200 is an estimate of every model, without a ceiling, a model that is asked, or money', async () => {
      router.identity = newCaller(router.billing, 0n);
      router.billing.away = /./;
      const { data } = (await (await fetch(`${router.url}/v1/models`)).json()) as { data: { id: string }[] };
      expect(data.length).toBeGreaterThan(9);
      for (const { id } of data) {
        const answer = await count({ model: id, max_tokens: undefined, system: 'x'.repeat(400) });
        expect(answer).toMatchObject({ status: 200, body: { input_tokens: expect.any(Number) } });
        expect(answer.body['input_tokens']).toBeGreaterThan(100);
        expect(answer.headers.get('x-service-token-count')).toBe('estimate');
      }
      expectUntouched();
    });

    it.each([
      ['no model', { model: undefined }, 400, 'model_required'],
      ['an unknown model', { model: 'gpt-4' }, 404, 'model_not_found'],
      ['no messages', { messages: undefined }, 400, 'invalid_messages'],
      [
        'a document',
        { messages: [{ role: 'user', content: [{ type: 'document' }] }] },
        400,
        'unsupported_content',
      ],
      ['a container', { container: 'x' }, 400, 'unsupported_parameter'],
    ])('refuses %s as the message itself does', async (_what, body, status, code) => {
      expect(await count(body)).toMatchObject({ status, body: { type: 'error', error: { code } } });
    });

    it('403 for a model that the key may not use', async () => {
      router.identity = newCaller(router.billing, plenty, { models: ['kimi-k3'] });
      expect(await count({})).toMatchObject({
        status: 403,
        body: { type: 'error', error: { code: 'model_not_allowed' } },
      });
    });
  });
});
