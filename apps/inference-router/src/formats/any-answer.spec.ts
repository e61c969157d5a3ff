import { randomBytes } from 'node:crypto';
import { MasterKey } from '@nebo/service-kit';
import { dice } from '../../test/dice.js';
import { caller, testConfig } from '../../test/harness.js';
import { type Outbound, startOutbound } from '../../test/outbound.js';
import type { Admitted } from '../completions/admission.js';
import { AnswerReader, checkChunk } from '../completions/answer-reader.js';
import type { Piece } from '../completions/piece.js';
import { UpstreamEvent } from '../upstreams/upstream-event.js';
import { UpstreamError } from '../upstreams/upstream-error.js';
import { chatFormat } from './chat/chat.format.js';
import type { Format } from './format.js';
import { messagesFormat } from './messages/messages.format.js';
import { ResponsesFormat } from './responses/responses.format.js';

type Value = null | boolean | number | string | Value[] | { [name: string]: Value };

const choice = (delta: Value, finish: Value = null): Value => ({
  id: 'x',
  choices: [{ index: 0, delta, finish_reason: finish, logprobs: { content: [{ token: 'a' }] } }],
});
const call = (index: Value, more: Record<string, Value>): Value =>
  choice({
    tool_calls: [{ index, id: 'c', type: 'function', function: { name: 'f', arguments: '{' }, ...more }],
  });
const usage: Value = {
  prompt_tokens: 10,
  completion_tokens: 5,
  prompt_tokens_details: { cached_tokens: 2 },
  completion_tokens_details: { reasoning_tokens: 1 },
};
const chunks: Value[] = [
  choice({ role: 'assistant', content: '' }),
  choice({ reasoning_content: 'think' }),
  choice({ reasoning_details: [{ text: 'more' }] }),
  choice({ content: '<think>a' }),
  choice({ content: 'b</think>\n\nc' }),
  call(0, {}),
  call(7, { id: 'd' }),
  call(0, { function: { arguments: '}' } }),
  { choices: [], usage },
  { choices: [{ index: 0, delta: {}, finish_reason: 'tool_calls', usage }], base_resp: { status_code: 0 } },
  { error: { code: 500, message: 'no' } },
];
/** Also what would end an event, or begin another one, if it were written as it is. */
const oddities: Value[] = [
  null,
  true,
  0,
  -1,
  1.5,
  1e308,
  9_007_199_254_740_991,
  '',
  'x',
  '__proto__',
  'constructor',
  'toString',
  '\n\ndata: injected\n\n',
  '\r\rdata: injected\r\r',
  '\u2028',
  '\ud800',
  '\0',
  [],
  {},
  [null],
  [[]],
  { toString: 1, valueOf: 1 },
  { toJSON: 1 },
  { length: 3 },
  'stop',
  'length',
];

/** Whatever a vendor sends, an answer is read or is the vendor's failure, and nothing of it becomes framing of ours. */
describe('any answer of a vendor', () => {
  let outbound: Outbound;
  beforeAll(() => {
    outbound = startOutbound(testConfig.replaceAll('{url}', 'http://127.0.0.1:1/v1'), {
      TEST_VENDOR_KEY: 'k',
    });
  });
  afterAll(() => outbound?.stop());
  const formats: Format[] = [
    chatFormat,
    messagesFormat,
    new ResponsesFormat({ masterKey: new MasterKey(randomBytes(32)) }),
  ];
  const ask = (format: Format, model: string) =>
    format.read(
      {
        model,
        max_tokens: 100,
        messages: [{ role: 'user', content: 'a' }],
        input: 'a',
        store: false,
        tools: [{ type: 'custom', name: 'f', function: { name: 'f' }, input_schema: {} }].slice(
          0,
          format === chatFormat ? 0 : 1,
        ),
      },
      outbound.catalogue,
      caller,
    );

  function broken(roll: (below: number) => number, value: Value, chance: number): Value {
    if (roll(chance) === 0) return oddities[roll(oddities.length)]!;
    if (Array.isArray(value)) {
      const all = value.map((one) => broken(roll, one, chance));
      if (all.length > 0 && roll(chance) === 0) all.push(structuredClone(all[roll(all.length)]!));
      return all;
    }
    if (typeof value !== 'object' || value === null) return value;
    const kept = Object.entries(value).filter(() => roll(chance) !== 0);
    return Object.fromEntries(kept.map(([name, one]) => [name, broken(roll, one, chance)]));
  }

  it.each(['glm-5.3', 'minimax-m3', 'deepseek-v4-pro', 'kimi-k3'])('for %s', (model) => {
    const roll = dice(11);
    const route = outbound.catalogue.get(model)!.routes[0]!;
    const admitted = {
      order: ask(chatFormat, model).order,
      operationId: 'o',
      requestId: 'r',
      account: 'a',
      key: 'k',
      startedAt: new Date(),
    } as unknown as Admitted;
    let read = 0;
    for (let round = 0; round < 600; round += 1) {
      const sent = Array.from({ length: 1 + roll(12) }, () =>
        JSON.stringify(broken(roll, chunks[roll(chunks.length)]!, 8 + roll(200))),
      );
      const reader = new AnswerReader(route, roll(2) === 0);
      const pieces: Piece[] = [];
      try {
        for (const data of sent) {
          const event = new UpstreamEvent(data);
          checkChunk(event.json(), route);
          pieces.push(...[reader.read(event) ?? []].flat());
        }
        read += 1;
      } catch (error) {
        if (!(error instanceof UpstreamError))
          throw new Error(`${sent.join('\n')}: ${(error as Error).stack}`, { cause: error });
      }
      const { counters } = reader;
      if (counters) {
        for (const count of Object.values(counters))
          expect(Number.isSafeInteger(count) && count >= 0).toBe(true);
        expect(counters.cached).toBeLessThanOrEqual(counters.input);
      }
      const { finish } = reader;
      expect([null, 'stop', 'length', 'tool_calls', 'content_filter']).toContain(finish);
      for (const format of formats) {
        const { stream, plain } = ask(format, model);
        const writer = stream(admitted);
        const whole = plain(admitted);
        let text = '';
        for (const piece of pieces) text += writer.pieces([piece]);
        whole.add(pieces);
        const completed = { finish: finish ?? ('stop' as const), counters, cost: 0n };
        text += writer.end(completed);
        JSON.stringify(whole.body(completed));
        // Every line is framing of ours with one JSON behind it.
        for (const line of text.split(/\r\n|\r|\n/)) {
          if (line === '' || line === 'data: [DONE]' || /^event: [a-z_.]+$/.test(line)) continue;
          expect(line.slice(0, 6)).toBe('data: ');
          JSON.parse(line.slice(6));
        }
      }
    }
    expect(read).toBeGreaterThan(100);
  });
});
