import { sharedPostgres } from '@nebo/test-kit';
import OpenAI from 'openai';
import { plenty, type Router, startRouter } from '../../test/harness.js';

describe('the model simulator', () => {
  let router: Router;
  let client: OpenAI;
  beforeAll(async () => {
    router = await startRouter({ config: null, env: { NEBO_SIMULATOR_PAUSE_MS: '0' } });
    client = new OpenAI({ baseURL: `${router.url}/v1`, apiKey: 'signed by the front', maxRetries: 0 });
  });
  afterAll(async () => {
    await router?.stop();
    await (await sharedPostgres()).stop();
  });

  it('says what it is, in text and header, the same every time, and is billed like a model', async () => {
    const ask = () =>
      client.chat.completions
        .create({ model: 'kimi-k3', messages: [{ role: 'user', content: 'Привет, мир' }] })
        .withResponse();
    const [first, second] = [await ask(), await ask()];
    expect(first.response.headers.get('x-nebo-simulated')).toBe('true');
    const text = first.data.choices[0]!.message.content!;
    expect(text).toMatch(/simulator.*no real model.*Привет, мир/);
    expect(second.data.choices[0]!.message.content).toBe(text);
    expect(first.data.usage!.prompt_tokens).toBeGreaterThan(5);
    expect(first.response.headers.get('x-nebo-cost')).toMatch(/^0\.\d+$/);
    expect(router.billing.inState('captured')).toHaveLength(2);
    expect(router.billing.available(router.identity.account_id)).toBeLessThan(plenty);
  });

  it('streams in pieces and counts them', async () => {
    let pieces = 0;
    let usage: OpenAI.CompletionUsage | null | undefined;
    for await (const chunk of await client.chat.completions.create({
      model: 'glm-5.2',
      messages: [{ role: 'user', content: 'hello' }],
      stream: true,
      stream_options: { include_usage: true },
    })) {
      if (chunk.choices[0]?.delta.content) pieces += 1;
      usage = chunk.usage ?? usage;
    }
    expect(pieces).toBeGreaterThan(10);
    expect(usage!.completion_tokens).toBe(pieces);
  });

  it('keeps to the ceiling', async () => {
    const answer = await client.chat.completions.create({
      model: 'glm-5.2',
      messages: [{ role: 'user', content: 'hello' }],
      max_tokens: 5,
    });
    expect(answer).toMatchObject({ choices: [{ finish_reason: 'length' }], usage: { completion_tokens: 5 } });
  });

  it('reasons when it is on, and not when it is off', async () => {
    const ask = async (model: string, effort?: 'none' | 'low') => {
      const answer = await client.chat.completions.create({
        model,
        messages: [{ role: 'user', content: 'x' }],
        ...(effort ? { reasoning_effort: effort } : {}),
      });
      return answer.usage!.completion_tokens_details!.reasoning_tokens;
    };
    expect(await ask('deepseek-v4-pro')).toBeGreaterThan(0);
    expect(await ask('deepseek-v4-pro', 'none')).toBe(0);
    expect(await ask('kimi-k3', 'low')).toBeGreaterThan(0);
    expect(await ask('glm-5.2', 'low')).toBe(0);
  });

  it('calls a tool that is asked for, and goes on with its result', async () => {
    const tools = [
      {
        type: 'function' as const,
        function: {
          name: 'get_weather',
          parameters: {
            type: 'object',
            properties: { city: { type: 'string' }, days: { type: 'integer' } },
            required: ['city'],
          },
        },
      },
    ];
    const messages: OpenAI.ChatCompletionMessageParam[] = [
      { role: 'user', content: 'Please use the tool get_weather' },
    ];
    const first = await client.chat.completions.create({ model: 'kimi-k3', messages, tools });
    expect(first.choices[0]).toMatchObject({ finish_reason: 'tool_calls', message: { content: null } });
    const [call] = first.choices[0]!.message.tool_calls!;
    expect(call).toMatchObject({
      type: 'function',
      function: { name: 'get_weather', arguments: '{"city":"example"}' },
    });
    messages.push(first.choices[0]!.message, { role: 'tool', tool_call_id: call!.id, content: 'sunny' });
    const second = await client.chat.completions.create({ model: 'kimi-k3', messages, tools });
    expect(second.choices[0]!.message.content).toContain('The tool returned: sunny');
  });
});
