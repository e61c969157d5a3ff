import { sharedPostgres } from '@nebo/test-kit';
import { newCaller, type Router, startRouter, testConfig } from '../../../test/harness.js';
import { callPiece, chunk, respond } from '../../../test/responses.js';

describe('requests of the responses format', () => {
  let router: Router;
  beforeAll(async () => {
    // One more model, whose ceiling is below the format's.
    const small =
      '  small: { upstreams: [{ provider: plain }], context_window: 8000, max_output_tokens: 2000, price: { input: "1.00", cache_read: "1.00", output: "1.00" } }\n';
    router = await startRouter({ config: `${testConfig}${small}` });
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

  /** What the upstream gets of a request, and the answer. */
  const send = async (body: object) => {
    const response = await respond(router, { model: 'qwen3-coder-next', input: 'hi', ...body });
    const answer = (await response.json()) as Record<string, never>;
    if (response.status !== 200) throw new Error(`${response.status} ${JSON.stringify(answer)}`);
    return { asked: router.upstream.requests.at(-1)!.body as Record<string, never>, answer };
  };

  describe('tools', () => {
    const parameters = { type: 'object', properties: { x: { type: 'number' } } };
    const lark = 'start: "*** Begin Patch"';

    it('functions as they are; free-input tools as functions of one text that know their grammar', async () => {
      const { asked, answer } = await send({
        tools: [
          { type: 'function', name: 'a', description: 'A', parameters, strict: false },
          {
            type: 'custom',
            name: 'apply_patch',
            description: 'Patches.',
            format: { type: 'grammar', syntax: 'lark', definition: lark },
          },
          { type: 'custom', name: 'shell', format: { type: 'text' } },
        ],
        tool_choice: 'required',
        parallel_tool_calls: false,
      });
      const [a, patch, shell] = asked['tools'] as unknown as { function: Record<string, string> }[];
      expect(a).toEqual({
        type: 'function',
        function: { name: 'a', description: 'A', parameters, strict: false },
      });
      expect(patch!.function).toMatchObject({
        name: 'apply_patch',
        description: expect.stringMatching(/^Patches\.[^]*lark grammar:\nstart: "\*\*\* Begin Patch"$/),
        parameters: { properties: { input: { type: 'string' } }, required: ['input'] },
      });
      expect(shell!.function['description']).not.toContain('grammar');
      expect(asked).toMatchObject({ tool_choice: 'required', parallel_tool_calls: false });
      expect(answer).toMatchObject({ parallel_tool_calls: false, tool_choice: 'required' });
      expect(answer['tools']).toHaveLength(3);
    });

    it('namespaces are made flat; hosted tools and the search for tools are left out', async () => {
      const long = 'n'.repeat(60);
      const { asked, answer } = await send({
        tools: [
          {
            type: 'namespace',
            name: 'maps',
            description: 'Places and ways.',
            tools: [
              { type: 'function', name: 'find', description: 'Finds one.', defer_loading: true },
              { type: 'function', name: 'wait' },
              { type: 'web_search' },
            ],
          },
          {
            type: 'namespace',
            name: long,
            tools: [
              { type: 'custom', name: 'tool_a' },
              { type: 'custom', name: 'tool_b' },
            ],
          },
          { type: 'namespace', name: 'empty', tools: [] },
          { type: 'web_search', external_web_access: true },
          { type: 'tool_search', execution: 'client' },
          { type: 'file_search', vector_store_ids: [] },
        ],
      });
      const names = (asked['tools'] as unknown as { function: Record<string, string> }[]).map(
        (tool) => tool.function,
      );
      expect(names[0]).toMatchObject({ name: 'maps__find', description: 'Places and ways.\n\nFinds one.' });
      expect(names[1]).toEqual({ name: 'maps__wait' });
      expect(names[2]!['name']).toMatch(/^n{55}_[0-9a-f]{8}$/);
      expect(names[3]!['name']).not.toBe(names[2]!['name']);
      expect(names).toHaveLength(4);
      expect((answer['tools'] as unknown as { name: string }[]).map(({ name }) => name)).toEqual([
        'maps',
        long,
      ]);
    });

    it.each([
      ['a function', { type: 'function', name: 'a' }, { type: 'function', function: { name: 'a' } }],
      ['a free-input tool', { type: 'custom', name: 'p' }, { type: 'function', function: { name: 'p' } }],
      [
        'a tool of a namespace',
        { type: 'function', namespace: 'n', name: 'x' },
        { type: 'function', function: { name: 'n__x' } },
      ],
      ['none', 'none', 'none'],
      ['a hosted tool, which is gone', { type: 'web_search' }, undefined],
      ['null', null, undefined],
    ])('tool_choice: %s', async (_what, choice, expected) => {
      const { asked, answer } = await send({
        tools: [
          { type: 'function', name: 'a' },
          { type: 'custom', name: 'p' },
          { type: 'namespace', name: 'n', tools: [{ type: 'function', name: 'x' }] },
        ],
        tool_choice: choice,
      });
      expect(asked['tool_choice']).toEqual(expected);
      expect(answer['tool_choice']).toEqual(expected === undefined ? 'auto' : choice);
    });

    it('names that vendors refuse are made into ones that they take, and come back as they were', async () => {
      const tools = [
        { type: 'function', name: 'disk.read/all' },
        { type: 'namespace', name: 'my server', tools: [{ type: 'function', name: 'go' }] },
      ];
      const first = await send({ tools });
      const names = (first.asked['tools'] as unknown as { function: { name: string } }[]).map(
        (one) => one.function.name,
      );
      expect(names).toEqual([
        expect.stringMatching(/^disk_read_all_[0-9a-f]{8}$/),
        expect.stringMatching(/^my_server__go_[0-9a-f]{8}$/),
      ]);
      router.upstream.next({
        raw: [
          ...names.map((name, index) => callPiece(index, '{}', `c${index}`, name)),
          chunk({}, 'tool_calls'),
        ],
      });
      const { answer } = await send({ tools });
      const output = answer['output'] as unknown as object[];
      expect(output).toMatchObject([{ name: 'disk.read/all' }, { namespace: 'my server', name: 'go' }]);
      const { asked } = await send({
        tools,
        input: [...output, { type: 'function_call_output', call_id: 'c0', output: '' }],
      });
      expect(asked['messages']).toMatchObject([
        { tool_calls: names.map((name) => ({ function: { name } })) },
        {},
      ]);
    });

    it('a choice goes with the last of its tools', async () => {
      const { asked } = await send({
        tools: [{ type: 'web_search' }],
        tool_choice: 'required',
        parallel_tool_calls: true,
      });
      for (const field of ['tools', 'tool_choice', 'parallel_tool_calls'])
        expect(asked).not.toHaveProperty(field);
    });

    it('allowed tools are the ones that are offered', async () => {
      const { asked } = await send({
        tools: [
          { type: 'function', name: 'a' },
          { type: 'function', name: 'b' },
        ],
        tool_choice: { type: 'allowed_tools', mode: 'required', tools: [{ type: 'function', name: 'b' }] },
      });
      expect(asked).toMatchObject({ tools: [{ function: { name: 'b' } }], tool_choice: 'required' });
      expect(asked['tools']).toHaveLength(1);
    });
  });

  describe('settings', () => {
    it('sampling, the shape of the text and the ceiling go on; the answer repeats them', async () => {
      const schema = { type: 'object', properties: {} };
      const format = { type: 'json_schema', name: 'out', schema, strict: true, description: 'd' };
      const { asked, answer } = await send({
        temperature: 0.2,
        top_p: 0.9,
        max_output_tokens: 77,
        text: { format, verbosity: 'low' },
        metadata: { a: 'b' },
        instructions: 'x',
        prompt_cache_key: 'k',
        user: 'u',
      });
      expect(asked).toMatchObject({
        temperature: 0.2,
        top_p: 0.9,
        max_tokens: 77,
        response_format: {
          type: 'json_schema',
          json_schema: { name: 'out', schema, strict: true, description: 'd' },
        },
      });
      expect(asked).not.toHaveProperty('verbosity');
      expect(answer).toMatchObject({
        object: 'response',
        status: 'completed',
        temperature: 0.2,
        top_p: 0.9,
        max_output_tokens: 77,
        text: { format, verbosity: 'low' },
        metadata: { a: 'b' },
        instructions: 'x',
        prompt_cache_key: 'k',
        user: 'u',
        error: null,
        incomplete_details: null,
        store: false,
      });
      const json = await send({ text: { format: { type: 'json_object' } } });
      expect(json.asked['response_format']).toEqual({ type: 'json_object' });
    });

    it('the ceiling is 32000 when absent, and never above the model’s', async () => {
      expect((await send({})).asked['max_tokens']).toBe(32_000);
      expect((await send({ max_output_tokens: null })).asked['max_tokens']).toBe(32_000);
      const { asked, answer } = await send({ model: 'small' });
      expect(asked['max_tokens']).toBe(2_000);
      expect(answer['max_output_tokens']).toBe(2_000);
    });

    it.each([
      ['deepseek-v4-pro', 'none', { thinking: { type: 'disabled' } }],
      ['deepseek-v4-pro', 'xhigh', { thinking: { type: 'enabled' }, reasoning_effort: 'max' }],
      ['glm-5.3', 'none', { thinking: { type: 'enabled' }, reasoning_effort: 'low' }],
      ['qwen3.8-max', 'none', { enable_thinking: true, thinking_budget: 2_048 }],
    ])('%s with effort %s', async (model, effort, expected) => {
      const { asked, answer } = await send({ model, reasoning: { effort, summary: 'auto' } });
      expect(asked).toMatchObject(expected);
      expect(answer['reasoning']).toEqual({ effort, summary: 'auto' });
    });

    it('effort changes nothing on a model without reasoning', async () => {
      const { asked } = await send({ reasoning: { effort: 'whatever' } });
      expect(JSON.stringify(asked)).not.toMatch(/effort|thinking|whatever/);
    });

    it('store: true is answered as false; fields of no meaning here are passed over', async () => {
      const { asked, answer } = await send({
        store: true,
        background: false,
        previous_response_id: null,
        conversation: null,
        truncation: 'auto',
        service_tier: 'priority',
        stream_options: { include_obfuscation: false },
        client_metadata: { a: 'b' },
        safety_identifier: 's',
        max_tool_calls: 3,
        top_logprobs: 2,
        include: [],
        never_heard_of: { deep: true },
      });
      expect(answer['store']).toBe(false);
      expect(Object.keys(asked).sort()).toEqual([
        'max_tokens',
        'messages',
        'model',
        'stream',
        'stream_options',
      ]);
    });
  });
});
