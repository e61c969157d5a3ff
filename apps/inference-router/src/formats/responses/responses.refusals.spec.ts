import { sharedPostgres } from '@nebo/test-kit';
import { newCaller, type Router, startRouter } from '../../../test/harness.js';
import { respond } from '../../../test/responses.js';

const item = (part: object) => [
  { role: 'user', content: 'a' },
  { role: 'user', content: [part] },
];
const call = { type: 'function_call', call_id: 'c', name: 'a', arguments: '{}' };

describe('refusals of the responses format', () => {
  let router: Router;
  beforeAll(async () => {
    router = await startRouter();
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

  /** Sends a body that must be refused before the model is called, and free. */
  const refused = async (body: unknown) => {
    const before = router.billing.available(router.identity.account_id);
    const response = await respond(router, body);
    expect(router.upstream.calls()).toBe(0);
    expect(router.billing.available(router.identity.account_id)).toBe(before);
    return { status: response.status, body: (await response.json()) as unknown };
  };

  it.each([
    ['no object', [], 400, 'invalid_request', 'object'],
    ['no model', { model: undefined }, 400, 'model_required', 'model'],
    ['an unknown model', { model: 'gpt-0' }, 404, 'model_not_found', 'gpt-0'],
    [
      'previous_response_id',
      { previous_response_id: 'resp_1' },
      400,
      'unsupported_parameter',
      'previous_response_id',
    ],
    ['background', { background: true }, 400, 'unsupported_parameter', 'background'],
    ['a conversation', { conversation: { id: 'x' } }, 400, 'unsupported_parameter', 'conversation'],
    ['a stored prompt', { prompt: { id: 'p' } }, 400, 'unsupported_parameter', 'prompt'],
    [
      'an item by reference',
      { input: [{ type: 'item_reference', id: 'rs_1' }] },
      400,
      'unsupported_parameter',
      'input.0',
    ],
    ['no input', { input: undefined }, 400, 'invalid_input', 'input'],
    ['an empty input', { input: [] }, 400, 'invalid_input', 'input'],
    ['an input of nothing readable', { input: [{ type: 'web_search_call' }] }, 400, 'invalid_input', 'input'],
    ['an item that is none', { input: ['x'] }, 400, 'invalid_input', 'input.0'],
    ['an item without a type', { input: [{}] }, 400, 'invalid_input', 'input.0.type'],
    [
      'content beside messages',
      { input: [{ type: 'input_text', text: 'x' }] },
      400,
      'invalid_input',
      'input.0',
    ],
    ['an unknown role', { input: [{ role: 'tool', content: 'x' }] }, 400, 'invalid_input', 'input.0.role'],
    ['a message without content', { input: [{ role: 'user' }] }, 400, 'invalid_input', 'input.0.content'],
    [
      'a part without its text',
      { input: item({ type: 'input_text' }) },
      400,
      'invalid_input',
      'input.1.content.0.text',
    ],
    [
      'a call without an id',
      { input: [{ ...call, call_id: undefined }] },
      400,
      'invalid_input',
      'input.0.call_id',
    ],
    ['a call without a name', { input: [{ ...call, name: '' }] }, 400, 'invalid_input', 'input.0.name'],
    [
      'an output without an id',
      { input: [{ type: 'function_call_output', output: 'x' }] },
      400,
      'invalid_input',
      'input.0.call_id',
    ],
    ['instructions that are no text', { instructions: ['x'] }, 400, 'invalid_input', 'instructions'],
    ['a file', { input: item({ type: 'input_file', file_id: 'f' }) }, 400, 'unsupported_content', 'input.1'],
    ['sound', { input: item({ type: 'input_audio' }) }, 400, 'unsupported_content', 'input.1'],
    ['a file beside messages', { input: [{ type: 'input_file' }] }, 400, 'unsupported_content', 'input.0'],
    [
      'a file in an output',
      { input: [call, { type: 'function_call_output', call_id: 'c', output: [{ type: 'input_file' }] }] },
      400,
      'unsupported_content',
      'input.1.output.0',
    ],
    [
      'an image on a model without vision',
      { input: item({ type: 'input_image', image_url: 'https://a/b.png' }) },
      400,
      'unsupported_content',
      'input.1',
    ],
    [
      'an image by file id',
      { model: 'kimi-k3', input: item({ type: 'input_image', file_id: 'f' }) },
      400,
      'unsupported_content',
      'input.1',
    ],
    [
      'an image by path',
      { model: 'kimi-k3', input: item({ type: 'input_image', image_url: 'file:///etc/passwd' }) },
      400,
      'invalid_input',
      'input.1',
    ],
    [
      'an image without a link',
      { model: 'kimi-k3', input: item({ type: 'input_image' }) },
      400,
      'invalid_input',
      'input.1',
    ],
    [
      'an image that an assistant says',
      {
        model: 'kimi-k3',
        input: [{ role: 'assistant', content: [{ type: 'input_image', image_url: 'https://a/b.png' }] }],
      },
      400,
      'unsupported_content',
      'input.0',
    ],
    ['an unknown effort', { reasoning: { effort: 'huge' } }, 400, 'invalid_reasoning_effort', 'xhigh'],
    ['too high a ceiling', { max_output_tokens: 131_073 }, 400, 'max_tokens_too_large', '131072'],
    ['a ceiling of nothing', { max_output_tokens: 0 }, 400, 'invalid_max_tokens', 'max_output_tokens'],
    ['tools that are no list', { tools: {} }, 400, 'invalid_tools', 'tools'],
    ['a tool without a name', { tools: [{ type: 'function' }] }, 400, 'invalid_tools', 'tools.0.name'],
    [
      'a nested tool without a name',
      { tools: [{ type: 'namespace', name: 'n', tools: [{ type: 'function' }] }] },
      400,
      'invalid_tools',
      'tools.0.tools.0.name',
    ],
    [
      'a namespace without a name',
      { tools: [{ type: 'namespace', tools: [] }] },
      400,
      'invalid_tools',
      'tools.0.name',
    ],
    [
      'two tools of one name',
      {
        tools: [
          { type: 'function', name: 'a__b' },
          { type: 'namespace', name: 'a', tools: [{ type: 'function', name: 'b' }] },
        ],
      },
      400,
      'invalid_tools',
      'a__b',
    ],
    ['a tool that is none', { tools: ['x'] }, 400, 'invalid_tools', 'tools.0'],
    [
      'an unknown choice',
      { tools: [{ type: 'function', name: 'a' }], tool_choice: 'any' },
      400,
      'invalid_tool_choice',
      'auto',
    ],
    [
      'a choice of no tool',
      { tools: [{ type: 'function', name: 'a' }], tool_choice: { type: 'function', name: 'b' } },
      400,
      'invalid_tool_choice',
      '"b"',
    ],
    [
      'a choice that is a number',
      { tools: [{ type: 'function', name: 'a' }], tool_choice: 7 },
      400,
      'invalid_tool_choice',
      'object',
    ],
    [
      'an unknown shape of text',
      { text: { format: { type: 'xml' } } },
      400,
      'invalid_request',
      'text.format.type',
    ],
    [
      'a schema without a name',
      { text: { format: { type: 'json_schema', schema: {} } } },
      400,
      'invalid_request',
      'text.format',
    ],
    ['text that is no object', { text: 'x' }, 400, 'invalid_request', 'text'],
    ['stream that is no flag', { stream: 'yes' }, 400, 'invalid_request', 'stream'],
  ])('%s', async (_what, body, status, code, words) => {
    const types: Record<number, string> = { 400: 'invalid_request_error', 404: 'not_found_error' };
    const sent = Array.isArray(body) ? body : { model: 'glm-5.3', input: 'hi', ...body };
    expect(await refused(sent)).toEqual({
      status,
      body: { error: { type: types[status], code, message: expect.stringContaining(words) } },
    });
  });

  it('403 for a model that the key may not use', async () => {
    router.identity = newCaller(router.billing, undefined, { models: ['kimi-k3'] });
    expect(await refused({ model: 'glm-5.3', input: 'hi' })).toMatchObject({
      status: 403,
      body: { error: { type: 'permission_error', code: 'model_not_allowed' } },
    });
  });

  it('402 when the worst case is not covered: 32000 tokens of output, also for a short answer', async () => {
    router.identity = newCaller(router.billing, 1_000_000_000n);
    expect(await refused({ model: 'glm-5.3', input: 'hi' })).toMatchObject({
      status: 402,
      body: { error: { type: 'billing_error', message: expect.any(String) } },
    });
    const small = await respond(router, { model: 'glm-5.3', input: 'hi', max_output_tokens: 100 });
    expect(small.status).toBe(200);
  });

  it('503 when billing is away, as a plain error although a stream was asked for', async () => {
    router.billing.away = /./;
    router.identity = newCaller(router.billing);
    expect(await refused({ model: 'glm-5.3', input: 'hi', stream: true })).toMatchObject({
      status: 503,
      body: { error: { type: 'api_error', code: 'billing_unavailable' } },
    });
  });

  it('400, 413 and 415 of the body itself have the shape of the format', async () => {
    const send = async (body: string | Buffer, type: string) => {
      const response = await fetch(`${router.url}/v1/responses`, {
        method: 'POST',
        headers: { 'content-type': type },
        body,
      });
      return { status: response.status, body: (await response.json()) as unknown };
    };
    const error = (type: string) => ({
      error: { type, code: expect.any(String), message: expect.any(String) },
    });
    expect(await send('{"model":', 'application/json')).toMatchObject({
      status: 400,
      body: error('invalid_request_error'),
    });
    expect(await send('model=x', 'application/x-www-form-urlencoded')).toMatchObject({
      status: 415,
      body: error('invalid_request_error'),
    });
    expect(await send(Buffer.alloc(33 * 1024 * 1024, 32), 'application/json')).toMatchObject({
      status: 413,
      body: error('request_too_large'),
    });
    expect(router.upstream.calls()).toBe(0);
  });

  it('trouble upstream shows nothing of the vendor’s words and costs nothing', async () => {
    const before = router.billing.available(router.identity.account_id);
    for (const [status, expected] of [
      [401, 502],
      [402, 502],
      [403, 502],
      [500, 502],
      [429, 503],
    ]) {
      router.upstream.reset();
      router.upstream.script(() => ({ status: status!, body: { error: { message: 'account 4711' } } }));
      const response = await respond(router, { model: 'qwen3-coder-next', input: 'hi' });
      const text = await response.text();
      expect([response.status, text.includes('4711')]).toEqual([expected, false]);
      expect(JSON.parse(text)).toMatchObject({
        error: { type: 'api_error', code: expect.stringMatching(/^upstream_/) },
      });
    }
    expect(router.billing.available(router.identity.account_id)).toBe(before);
  });
});
