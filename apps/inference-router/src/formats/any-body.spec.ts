import { randomBytes } from 'node:crypto';
import { ApiError, MasterKey } from '@nebo/service-kit';
import { dice } from '../../test/dice.js';
import { caller, testConfig } from '../../test/harness.js';
import { type Outbound, startOutbound } from '../../test/outbound.js';
import type { Admitted } from '../completions/admission.js';
import { inputBound } from '../completions/input-bound.js';
import { vendorRequest } from '../dialects/vendor-request.js';
import { checkPictures } from '../images/picture.js';
import { chatFormat } from './chat/chat.format.js';
import type { Format } from './format.js';
import { messagesFormat } from './messages/messages.format.js';
import { ResponsesFormat } from './responses/responses.format.js';

type Value = null | boolean | number | string | Value[] | { [name: string]: Value };

const picture = `data:image/png;base64,${Buffer.from('\x89PNG\r\n\x1a\n0000000000000000', 'latin1').toString('base64')}`;
const schema = { type: 'object', properties: { a: { type: 'string' } } };

/** Bodies with nearly all that the formats know; the test breaks them. */
const bodies: Record<string, Value[]> = {
  chat: [
    {
      model: 'kimi-k3',
      messages: [
        { role: 'developer', content: 's' },
        {
          role: 'user',
          name: 'n',
          content: [
            { type: 'text', text: 'a' },
            { type: 'image_url', image_url: { url: picture, detail: 'low' } },
          ],
        },
        {
          role: 'assistant',
          content: null,
          reasoning_content: 'r',
          tool_calls: [{ id: 'c', type: 'function', function: { name: 'f', arguments: '{}' } }],
        },
        { role: 'tool', tool_call_id: 'c', content: [{ type: 'text', text: 'x' }] },
        { role: 'system', content: 'late' },
      ],
      tools: [
        { type: 'function', function: { name: 'f', description: 'd', parameters: schema, strict: true } },
      ],
      tool_choice: { type: 'function', function: { name: 'f' } },
      stream: true,
      stream_options: { include_usage: true },
      max_tokens: 10,
      reasoning_effort: 'low',
      response_format: { type: 'json_object' },
      stop: ['a'],
      n: 1,
    },
  ],
  messages: [
    {
      model: 'kimi-k3',
      max_tokens: 10,
      system: [{ type: 'text', text: 's', cache_control: { type: 'ephemeral' } }],
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'a' },
            { type: 'image', source: { type: 'base64', media_type: 'image/png', data: picture.slice(22) } },
          ],
        },
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: 't', signature: '' },
            { type: 'tool_use', id: 'c', name: 'f', input: { a: 1 } },
          ],
        },
        {
          role: 'user',
          content: [
            {
              type: 'tool_result',
              tool_use_id: 'c',
              is_error: true,
              content: [
                { type: 'text', text: 'x' },
                { type: 'tool_reference', tool_name: 'f' },
              ],
            },
          ],
        },
        {
          role: 'user',
          content: [
            { type: 'search_result', title: 't', source: 'u', content: [{ type: 'text', text: 'x' }] },
            { type: 'tool_addition', tool: { name: 'f' } },
          ],
        },
        { role: 'system', content: 'late' },
      ],
      tools: [
        { name: 'f', description: 'd', input_schema: schema },
        { type: 'web_search_20250305', name: 'web_search' },
      ],
      tool_choice: { type: 'tool', name: 'f', disable_parallel_tool_use: true },
      thinking: { type: 'enabled', budget_tokens: 5_000, display: 'omitted' },
      output_config: { effort: 'low', format: { type: 'json_schema', schema } },
      stop_sequences: ['a'],
      mcp_servers: [],
      container: null,
      stream: false,
    },
  ],
  responses: [
    {
      model: 'kimi-k3',
      instructions: 's',
      input: [
        {
          type: 'message',
          role: 'user',
          content: [
            { type: 'input_text', text: 'a' },
            { type: 'input_image', image_url: picture, detail: 'low' },
          ],
        },
        {
          type: 'reasoning',
          id: 'r',
          summary: [{ type: 'summary_text', text: 't' }],
          encrypted_content: 'nebo1.AAAA',
        },
        { type: 'function_call', call_id: 'c', namespace: 'n', name: 'f', arguments: '{}' },
        { type: 'custom_tool_call', call_id: 'd', name: 'g', input: 'x' },
        { type: 'function_call_output', call_id: 'c', output: [{ type: 'input_text', text: 'x' }] },
        { type: 'custom_tool_call_output', call_id: 'd', output: 'x' },
        { role: 'developer', content: 'late' },
      ],
      tools: [
        {
          type: 'namespace',
          name: 'n',
          description: 'd',
          tools: [{ type: 'function', name: 'f', parameters: schema }],
        },
        { type: 'custom', name: 'g', format: { type: 'grammar', syntax: 'lark', definition: 'x' } },
        { type: 'web_search' },
      ],
      tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'custom', name: 'g' }] },
      include: ['reasoning.encrypted_content'],
      reasoning: { effort: 'low', summary: 'auto' },
      text: { format: { type: 'json_schema', name: 'x', schema } },
      store: false,
      stream: true,
      max_output_tokens: 10,
      metadata: { a: 'b' },
    },
  ],
};

/** What takes the place of something: values of other kinds, and names that objects have of themselves. */
const oddities: Value[] = [
  null,
  true,
  false,
  0,
  -1,
  1.5,
  1e308,
  '',
  'x',
  '__proto__',
  'constructor',
  'toString',
  '\ud800',
  '\0',
  [],
  {},
  [[]],
  [null],
  [{}],
  { toString: 1, valueOf: 1 },
  { toJSON: 1 },
  { length: 5 },
  { type: 'text' },
  { type: {} },
  { type: 'constructor' },
  ['a'],
  'data:,',
  'http://',
  'https://x y',
  'data:image/png;base64,',
  'DATA:image/png;base64,AAAA',
];

/** Whatever a client sends is an order or a refusal: a 500 would be a mistake of ours, and a way to more of them. */
describe('any body', () => {
  let outbound: Outbound;
  beforeAll(
    () =>
      void (outbound = startOutbound(testConfig.replaceAll('{url}', 'http://127.0.0.1:1/v1'), {
        TEST_VENDOR_KEY: 'k',
      })),
  );
  afterAll(() => outbound?.stop());
  const formats: Record<string, Format> = {
    chat: chatFormat,
    messages: messagesFormat,
    responses: new ResponsesFormat({ masterKey: new MasterKey(randomBytes(32)) }),
  };
  const models = [
    'kimi-k3',
    'qwen3.8-max',
    'minimax-m3',
    'deepseek-v4-pro',
    'glm-5.3',
    'mimo-v2.6-pro',
    'glm-5.2',
  ];

  function broken(roll: (below: number) => number, value: Value, chance: number): Value {
    if (roll(chance) === 0) return oddities[roll(oddities.length)]!;
    if (Array.isArray(value)) {
      const all = value.map((one) => broken(roll, one, chance));
      if (all.length > 0 && roll(chance) === 0) all.push(structuredClone(all[roll(all.length)]!));
      if (all.length > 1 && roll(chance) === 0) all.reverse();
      return all;
    }
    if (typeof value !== 'object' || value === null) return value;
    const kept = Object.entries(value).filter(() => roll(chance) !== 0);
    return Object.fromEntries(kept.map(([name, one]) => [name, broken(roll, one, chance)]));
  }

  it.each(Object.keys(formats))('of %s is an order or a refusal', (name) => {
    const roll = dice(7);
    const format = formats[name]!;
    let orders = 0;
    for (let round = 0; round < 2_500; round += 1) {
      const [whole] = bodies[name]!;
      const body = broken(roll, whole!, 8 + roll(120));
      if (typeof body === 'object' && body !== null && !Array.isArray(body) && roll(20) > 0)
        body['model'] = models[roll(models.length)]!;
      try {
        const { order, stream, plain } = format.read(body, outbound.catalogue, caller);
        checkPictures(order.messages);
        const bound = inputBound(order, order.offer.model);
        expect(Number.isSafeInteger(bound) && bound > 0).toBe(true);
        for (const route of order.offer.routes) JSON.stringify(vendorRequest(order, route));
        const admitted = {
          order,
          operationId: 'o',
          requestId: 'r',
          account: 'a',
          key: 'k',
          startedAt: new Date(),
          inputBound: bound,
        } as unknown as Admitted;
        const completed = { finish: 'tool_calls', counters: null, cost: 0n } as const;
        const pieces = [
          { reasoning: 'r' },
          { content: 'c' },
          { toolCalls: [{ index: 0, id: 'i', function: { name: 'g', arguments: '{' } }] },
        ];
        const streamed = stream(admitted);
        streamed.pieces(pieces);
        streamed.end(completed);
        const whole = plain(admitted);
        whole.add(pieces);
        JSON.stringify(whole.body(completed));
        orders += 1;
      } catch (error) {
        if (!(error instanceof ApiError) || error.status >= 500)
          throw new Error(`${JSON.stringify(body)}: ${(error as Error).stack}`, { cause: error });
      }
    }
    expect(orders).toBeGreaterThan(100);
  });
});
