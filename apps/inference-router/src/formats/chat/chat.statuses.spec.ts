import { sharedPostgres } from '@nebo/test-kit';
import { caller, newCaller, plenty, type Router, startRouter } from '../../../test/harness.js';

const hi = [{ role: 'user', content: 'hi' }];
const image = { type: 'image_url', image_url: { url: 'https://example.org/cat.png' } };

describe('POST /v1/chat/completions by status', () => {
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

  const ask = async (body: Record<string, unknown>) => {
    const response = await router.chat({ model: 'glm-5.3', messages: hi, ...body });
    return {
      status: response.status,
      headers: response.headers,
      body: (await response.json()) as Record<string, never>,
    };
  };
  const expectUntouched = () => {
    expect(router.upstream.calls()).toBe(0);
    expect(router.billing.holds.size).toBe(0);
  };

  it('200 plain: the answer, its counters, its cost and its place in the ledger', async () => {
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
    const answer = await ask({ max_tokens: 100 });
    expect(answer.status).toBe(200);
    expect(answer.body).toEqual({
      id: expect.stringMatching(/^chatcmpl-/),
      object: 'chat.completion',
      created: expect.any(Number),
      model: 'glm-5.3',
      choices: [
        {
          index: 0,
          message: { role: 'assistant', content: 'Hello', reasoning_content: 'Let me think' },
          finish_reason: 'stop',
        },
      ],
      usage: {
        prompt_tokens: 120,
        completion_tokens: 30,
        total_tokens: 150,
        prompt_tokens_details: { cached_tokens: 64 },
        completion_tokens_details: { reasoning_tokens: 10 },
      },
    });
    // 56 × 60 + 64 × 12 + 30 × 240 rubles per million.
    const cost = 56n * 60_000n + 64n * 12_000n + 30n * 240_000n;
    expect(answer.headers.get('x-nebo-cost')).toBe('0.011328');
    expect(answer.headers.get('x-nebo-simulated')).toBeNull();
    expect(answer.headers.get('x-request-id')).toMatch(/.+/);
    const operationId = answer.headers.get('x-nebo-ledger-id')!;
    expect(router.billing.holds.get(operationId)).toMatchObject({
      state: 'captured',
      captured: cost,
      usage: {
        kind: 'inference',
        model: 'glm-5.3',
        key_id: router.identity.key_id,
        input_tokens: 120,
        cached_tokens: 64,
        output_tokens: 30,
        reasoning_tokens: 10,
      },
    });
    expect(router.billing.available(router.identity.account_id)).toBe(plenty - cost);
    // The vendor was asked for a stream with counters, under its own name of the model.
    expect(router.upstream.requests[0]!.body).toMatchObject({
      model: 'vendor-glm',
      stream: true,
      stream_options: { include_usage: true },
      max_tokens: 100,
    });
  });

  it.each([
    ['no model', { model: undefined }, 400, 'model_required'],
    ['an empty model', { model: '' }, 400, 'model_required'],
    ['no messages', { messages: [] }, 400, 'invalid_messages'],
    ['an unknown role', { messages: [{ role: 'wizard', content: 'x' }] }, 400, 'invalid_messages'],
    [
      'a file part',
      { messages: [{ role: 'user', content: [{ type: 'file', file: { file_id: 'f' } }] }] },
      400,
      'unsupported_content',
    ],
    [
      'an audio part',
      {
        messages: [
          ...hi,
          {
            role: 'user',
            content: [
              { type: 'text', text: 'x' },
              { type: 'input_audio', input_audio: {} },
            ],
          },
        ],
      },
      400,
      'unsupported_content',
    ],
    [
      'an image for a model without eyes',
      { messages: [{ role: 'user', content: [image] }] },
      400,
      'unsupported_content',
    ],
    [
      'an image at no address',
      {
        model: 'kimi-k3',
        messages: [
          { role: 'user', content: [{ type: 'image_url', image_url: { url: 'file:///etc/passwd' } }] },
        ],
      },
      400,
      'invalid_messages',
    ],
    ['none on glm-5.3', { reasoning_effort: 'none' }, 400, 'invalid_reasoning_effort'],
    [
      'none on qwen3.8-max',
      { model: 'qwen3.8-max', reasoning_effort: 'none' },
      400,
      'invalid_reasoning_effort',
    ],
    ['an unknown effort', { reasoning_effort: 'huge' }, 400, 'invalid_reasoning_effort'],
    ['a ceiling above the limit', { max_tokens: 131_073 }, 400, 'max_tokens_too_large'],
    [
      'the newer ceiling above the limit',
      { max_completion_tokens: 131_073, max_tokens: 5 },
      400,
      'max_tokens_too_large',
    ],
    ['a ceiling of nothing', { max_tokens: 0 }, 400, 'invalid_max_tokens'],
    ['a broken ceiling', { max_tokens: 1.5 }, 400, 'invalid_max_tokens'],
    ['two answers', { n: 2 }, 400, 'unsupported_parameter'],
    ['old-style functions', { functions: [{ name: 'f' }] }, 400, 'unsupported_parameter'],
    ['an unknown model', { model: 'gpt-4' }, 404, 'model_not_found'],
    ['a model of the prototype', { model: 'constructor' }, 404, 'model_not_found'],
  ])('refuses %s, without asking the model and without a hold', async (_what, body, status, code) => {
    const answer = await ask(body as Record<string, unknown>);
    expect(answer).toMatchObject({
      status,
      body: { error: { type: status === 404 ? 'not_found_error' : 'invalid_request_error', code } },
    });
    expectUntouched();
  });

  it('400 names what is wrong: the message, the limit', async () => {
    const file = await ask({ messages: [...hi, { role: 'user', content: [{ type: 'file' }] }] });
    expect((file.body['error'] as unknown as { message: string }).message).toContain('messages.1');
    expect(
      ((await ask({ max_tokens: 200_000 })).body['error'] as unknown as { message: string }).message,
    ).toContain('131072');
  });

  it('400 for a body that is no JSON or no object, 413 and 415, all in the shape of the path', async () => {
    const send = (payload: string, type = 'application/json', path = '/v1/chat/completions') =>
      router.nebo.request('inference-router', {
        method: 'POST',
        path,
        as: caller,
        body: Buffer.from(payload),
        headers: { 'content-type': type },
      });
    expect(await send('{"model":')).toMatchObject({
      status: 400,
      body: { error: { type: 'invalid_request_error', code: 'bad_request' } },
    });
    expect(await send('[1]')).toMatchObject({ status: 400, body: { error: { code: 'invalid_request' } } });
    expect(await send('')).toMatchObject({ status: 400, body: { error: { code: 'invalid_request' } } });
    expect(await send('model=x', 'text/plain')).toMatchObject({
      status: 415,
      body: { error: { type: 'invalid_request_error', code: 'unsupported_media_type' } },
    });
    const large = JSON.stringify({
      model: 'glm-5.3',
      messages: [{ role: 'user', content: 'x'.repeat(33 * 1024 * 1024) }],
    });
    expect(await send(large)).toMatchObject({
      status: 413,
      body: { error: { type: 'request_too_large', code: 'payload_too_large' } },
    });
    expect(await send('{}', 'application/json', '/v1/messages/other')).toMatchObject({
      status: 404,
      body: { type: 'error', error: { type: 'not_found_error', code: 'unknown_operation' } },
    });
    expectUntouched();
  });

  it('401 without a signed identity, and with one of another door', async () => {
    const request = (as: null | typeof caller) =>
      router.nebo.request('inference-router', {
        method: 'POST',
        path: '/v1/chat/completions',
        as,
        body: { model: 'glm-5.3', messages: hi },
      });
    expect(await request(null)).toMatchObject({
      status: 401,
      body: { error: { type: 'authentication_error', code: 'unauthorized' } },
    });
    const control = { kind: 'service', service: 'api-gateway', account_id: caller.account_id } as never;
    expect((await request(control)).status).toBe(401);
  });

  it.each([
    ['insufficient_balance', 1_000n, undefined],
    ['topup_required', plenty, 'topup_required'],
    ['key_limit_reached', plenty, 'key_limit_reached'],
    ['held_in_flight', plenty, 'held_in_flight'],
  ])('402 %s, told apart, with type billing_error', async (code, available, refusal) => {
    router.identity = newCaller(router.billing, available);
    if (refusal) router.billing.account(router.identity.account_id, available, refusal);
    const answer = await ask({});
    expect(answer).toMatchObject({
      status: 402,
      body: { error: { type: 'billing_error', code, message: expect.any(String) } },
    });
    expect(answer.headers.get('retry-after')).toBe(code === 'held_in_flight' ? '5' : null);
    expectUntouched();
  });

  it('403 for a model outside the set of the key; an unknown one is 404 all the same', async () => {
    router.identity = newCaller(router.billing, plenty, { models: ['kimi-k3'] });
    expect(await ask({})).toMatchObject({
      status: 403,
      body: { error: { type: 'permission_error', code: 'model_not_allowed' } },
    });
    expect((await ask({ model: 'gpt-4' })).status).toBe(404);
    expectUntouched();
    expect((await ask({ model: 'kimi-k3' })).status).toBe(200);
  });

  it("502 for the operator's trouble with the vendor, whose words are hidden; nothing is charged", async () => {
    for (const status of [401, 402, 403, 404, 500]) {
      router.upstream.next({ status, body: { error: { message: 'vendor account 4711 has no money' } } });
      const answer = await ask({});
      expect(answer).toMatchObject({
        status: 502,
        body: { error: { type: 'api_error', code: 'upstream_failed', request_id: expect.any(String) } },
      });
      expect(JSON.stringify(answer.body)).not.toContain('4711');
    }
    router.upstream.next({ refuse: true }, { refuse: true });
    expect((await ask({})).status).toBe(502);
    expect(router.billing.inState('void')).toHaveLength(6);
    expect(router.billing.available(router.identity.account_id)).toBe(plenty);
  });

  it('502 for an answer that broke off or made no sense', async () => {
    router.upstream.next({ cutAfter: 2 });
    expect(await ask({})).toMatchObject({ status: 502, body: { error: { code: 'upstream_broken' } } });
    router.upstream.next({
      raw: ['data: {"choices":[{"delta":{"content":"x"}}]}\n\n', 'data: nonsense\n\n'],
    });
    expect(await ask({})).toMatchObject({ status: 502, body: { error: { code: 'upstream_broken' } } });
    // A clean end without a finish reason is a cut as well.
    router.upstream.next({
      raw: [
        'data: {"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n',
      ],
    });
    expect(await ask({})).toMatchObject({ status: 502, body: { error: { code: 'upstream_broken' } } });
    expect(router.billing.available(router.identity.account_id)).toBe(plenty);
  });

  it('503 when the vendor is busy, with its own time to wait', async () => {
    router.upstream.next({ status: 429, headers: { 'retry-after': '17' } });
    const answer = await ask({});
    expect(answer).toMatchObject({
      status: 503,
      body: { error: { type: 'api_error', code: 'upstream_busy' } },
    });
    expect(answer.headers.get('retry-after')).toBe('17');
  });

  it("400 passes on what the vendor says about the request, without the operator's key", async () => {
    router.upstream.next({
      status: 400,
      body: { error: { message: 'maximum context length is 10 tokens (key vendor-secret-key)' } },
    });
    const answer = await ask({ model: 'qwen3-coder-next' });
    expect(answer).toMatchObject({
      status: 400,
      body: { error: { type: 'invalid_request_error', code: 'context_length_exceeded' } },
    });
    expect(JSON.stringify(answer.body)).not.toContain('vendor-secret-key');
    expect(router.upstream.calls()).toBe(1);
    expect(router.billing.inState('void')).toHaveLength(1);
  });

  it('503 billing_unavailable when the balance cannot be read: never 402, never free', async () => {
    router.billing.away = /take/;
    const answer = await ask({});
    expect(answer).toMatchObject({
      status: 503,
      body: { error: { type: 'api_error', code: 'billing_unavailable' } },
    });
    expect(answer.headers.get('retry-after')).toBe('5');
    expect(router.upstream.calls()).toBe(0);
  });

  it('money whose answer was lost is known again with the next one', async () => {
    router.billing.mute = /take/;
    expect((await ask({})).status).toBe(503);
    expect(router.upstream.calls()).toBe(0);
    router.billing.mute = null;
    expect((await ask({})).status).toBe(200);
    const { account_id: id } = router.identity;
    expect(plenty - router.billing.available(id)).toBe(8n * 60_000n + 5n * 240_000n);
  });
});
