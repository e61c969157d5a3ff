import { randomBytes } from 'node:crypto';
import OpenAI from 'openai';
import { dice } from '../../../test/dice.js';
import { responseEvents } from '../../../test/responses.js';
import type { Piece } from '../../completions/piece.js';
import type { Completed } from '../../completions/completions.service.js';
import type { CatalogueModel } from '../../catalogue/model.js';
import { MasterKey } from '@nebo/service-kit';
import { type OutputContext, ResponseOutput } from './response-output.js';
import { readInput } from './responses-input.js';
import { ResponsesAnswer } from './responses-answer.js';
import { ResponsesStream } from './responses-stream.js';
import type { ToolName } from './responses-tools.js';
import { ReasoningSeal } from './sealed-reasoning.js';

const model = { id: 'm', vision: true } as CatalogueModel;
const seal = new ReasoningSeal(new MasterKey(randomBytes(32)));
const open = (sealed: unknown) => seal.open(sealed, 'a');
const alphabet = ['a', 'Z', '"', '\\', '\n', ' ', '{', 'ж', '🙂', '\u0000', 'é', 'data: ', '\u2028'];
type Roll = (below: number) => number;
const textOf = (roll: Roll, most = 12) =>
  Array.from({ length: 1 + roll(most) }, () => alphabet[roll(alphabet.length)]).join('');

describe('random histories', () => {
  it('what goes in comes out, in order: texts, images, ids, names, arguments and reasoning', () => {
    for (let seed = 1; seed <= 300; seed += 1) {
      const roll = dice(seed);
      const { items, expected } = history(roll);
      const messages = readInput(undefined, items, { model, open });
      expect(flat(messages)).toEqual(expected);
      // One turn is one message, and results follow the calls.
      for (const [index, message] of messages.entries()) {
        if (message.role === 'assistant') expect(messages[index + 1]?.role).not.toBe('assistant');
        if (message.role === 'tool') expect(['assistant', 'tool']).toContain(messages[index - 1]?.role);
      }
    }
  });
});

/** A history of turns, and what of it must reach the model, in order. */
function history(roll: Roll): { items: object[]; expected: string[] } {
  const items: object[] = [];
  const expected: string[] = [];
  let count = 0;
  for (let turn = 0; turn <= roll(6); turn += 1) {
    const asked = textOf(roll);
    const image = `https://example.com/${count++}.png`;
    const withImage = roll(3) === 0;
    items.push({
      type: 'message',
      id: `i${count}`,
      role: ['user', 'developer', 'system'][roll(3)],
      content: withImage
        ? [
            { type: 'input_text', text: asked },
            { type: 'input_image', image_url: image },
          ]
        : roll(2)
          ? asked
          : [{ type: 'input_text', text: asked }],
    });
    expected.push(`text ${asked}`, ...(withImage ? [`image ${image}`] : []));
    for (let step = 0; step <= roll(3); step += 1) {
      const thought = roll(2) ? textOf(roll) : '';
      const said = roll(2) ? textOf(roll) : '';
      const calls = said === '' ? 1 + roll(3) : roll(3);
      if (thought !== '') {
        const isSealed = roll(2) === 0;
        const summary = [{ type: 'summary_text', text: isSealed ? 'cut' : thought }];
        items.push({
          type: 'reasoning',
          id: `rs${count}`,
          summary,
          encrypted_content: isSealed ? seal.seal(thought, 'a') : null,
        });
        expected.push(`thought ${thought}`);
      }
      if (roll(4) === 0) items.push({ type: 'web_search_call', id: 'ws', status: 'completed' });
      if (said !== '') {
        items.push({ type: 'message', role: 'assistant', content: [{ type: 'output_text', text: said }] });
        expected.push(`text ${said}`);
      }
      const results: object[] = [];
      const told: string[] = [];
      for (let position = 0; position < calls; position += 1) {
        const call_id = `functions.x:${count++}`;
        const input = textOf(roll);
        const isCustom = roll(2) === 0;
        items.push(
          isCustom
            ? { type: 'custom_tool_call', call_id, name: 'p', input }
            : {
                type: 'function_call',
                call_id,
                namespace: 'n',
                name: 'f',
                arguments: JSON.stringify({ input }),
              },
        );
        expected.push(`call ${call_id} ${isCustom ? 'p' : 'n__f'} ${input}`);
        const output = textOf(roll);
        results.push({
          type: isCustom ? 'custom_tool_call_output' : 'function_call_output',
          call_id,
          output: roll(2) ? output : [{ type: 'input_text', text: output }],
        });
        told.push(`result ${call_id}`, `text ${output}`);
      }
      items.push(...results);
      expected.push(...told);
      // Without calls in between the next step would belong to the same turn.
      if (calls === 0) break;
    }
  }
  return { items, expected };
}

function flat(messages: ReturnType<typeof readInput>): string[] {
  return messages.flatMap(({ content, reasoning_content: thought, tool_calls: calls, tool_call_id: id }) => [
    ...(id === undefined ? [] : [`result ${id}`]),
    ...(thought === undefined ? [] : [`thought ${thought}`]),
    ...(typeof content === 'string'
      ? [`text ${content}`]
      : (content ?? []).map((part) =>
          part.type === 'text' ? `text ${part.text}` : `image ${part.image_url.url}`,
        )),
    ...(calls ?? []).map(
      ({ id: callId, function: { name, arguments: args } }) =>
        `call ${callId} ${name} ${(JSON.parse(args) as { input: string }).input}`,
    ),
  ]);
}

describe('random answers', () => {
  const names = new Map<string, ToolName>([
    ['f', { kind: 'function', name: 'f' }],
    ['n__f', { kind: 'function', name: 'f', namespace: 'n' }],
    ['p', { kind: 'custom', name: 'p' }],
  ]);
  const context = (): OutputContext => ({ operationId: 'op', names, seal: (text) => `sealed ${text}` });
  const head = { id: 'resp_op', created: 1, model: 'm', echo: { tools: [], parallel_tool_calls: true } };

  /** What the official client makes of a stream. */
  const accumulated = async (text: string) => {
    const client = new OpenAI({
      apiKey: 'x',
      maxRetries: 0,
      fetch: () => Promise.resolve(new Response(text, { headers: { 'content-type': 'text/event-stream' } })),
    });
    return client.responses.stream({ model: 'm', input: 'x' }).finalResponse();
  };

  it('events put together by the official client are the plain answer, and nothing is lost', async () => {
    for (let seed = 1; seed <= 150; seed += 1) {
      const roll = dice(seed);
      const { pieces, expected } = answer(roll);
      const completed: Completed = {
        finish: (['stop', 'tool_calls', 'length'] as const)[roll(3)]!,
        counters: { input: 1, cached: 0, output: 2, reasoning: 1 },
        cost: 0n,
      };
      const plain = new ResponsesAnswer(head, new ResponseOutput(context()));
      const stream = new ResponsesStream(head, context());
      let text = '';
      for (let at = 0; at < pieces.length;) {
        const together = pieces.slice(at, (at += 1 + roll(3)));
        plain.add(together);
        text += stream.pieces(together);
      }
      text += stream.end(completed);
      const body = plain.body(completed) as { output: Record<string, never>[] };
      const { output_text: _text, ...final } = (await accumulated(text)) as unknown as Record<
        string,
        unknown
      >;
      expect(strip(final)).toEqual(strip(body));
      expect(contentOf(body.output)).toEqual(expected);
      // Put together from the deltas alone, without the last event.
      expect(fromDeltas(text)).toEqual(expected);
    }
  });
});

/** Pieces as a vendor may send them, and what they amount to. */
function answer(roll: Roll): { pieces: Piece[]; expected: Record<string, string> } {
  const expected: Record<string, string> = { reasoning: '', text: '' };
  const queues: Piece[][] = [];
  const thoughts: Piece[] = [];
  for (let count = roll(4); count > 0; count -= 1) thoughts.push({ reasoning: textOf(roll) });
  const texts: Piece[] = [];
  for (let count = roll(5); count > 0; count -= 1) texts.push({ content: textOf(roll) });
  expected['reasoning'] = thoughts.map((piece) => piece.reasoning).join('');
  expected['text'] = texts.map((piece) => piece.content).join('');
  if (thoughts.length > 0) queues.push(thoughts);
  if (texts.length > 0) queues.push(texts);
  for (let index = 0, calls = roll(4); index < calls; index += 1) {
    const name = ['f', 'n__f', 'p', 'unknown'][roll(4)]!;
    const input = textOf(roll, 20);
    const raw = JSON.stringify({ input });
    const pieces: Piece[] = [
      { toolCalls: [{ index, id: `c:${index}`, type: 'function', function: { name, arguments: '' } }] },
    ];
    for (let at = 0; at < raw.length;) {
      const length = 1 + roll(9);
      pieces.push({ toolCalls: [{ index, function: { arguments: raw.slice(at, at + length) } }] });
      at += length;
    }
    queues.push(pieces);
    expected[`c:${index}`] = name === 'p' ? input : raw;
  }
  // Mixed: any order that keeps the order of each part.
  const pieces: Piece[] = [];
  const isMixed = roll(2) === 0;
  while (queues.length > 0) {
    const at = isMixed ? roll(queues.length) : 0;
    pieces.push(queues[at]!.shift()!);
    if (queues[at]!.length === 0) queues.splice(at, 1);
  }
  return { pieces, expected };
}

function contentOf(output: readonly Record<string, never>[]): Record<string, string> {
  const found: Record<string, string> = { reasoning: '', text: '' };
  for (const item of output as unknown as Record<string, { text: string }[] & string>[]) {
    if (item['type'] === 'reasoning') found['reasoning'] += item['summary']!.map(({ text }) => text).join('');
    else if (item['type'] === 'message') found['text'] += item['content']!.map(({ text }) => text).join('');
    else found[item['call_id']!] = item['arguments'] ?? item['input']!;
  }
  return found;
}

function fromDeltas(text: string): Record<string, string> {
  const found: Record<string, string> = { reasoning: '', text: '' };
  const callIds = new Map<unknown, string>();
  let place = 0;
  for (const event of responseEvents(text)) {
    const index = event['output_index'] as number | undefined;
    if (index !== undefined) {
      // One item after the other.
      expect(index).toBeGreaterThanOrEqual(place);
      place = index;
    }
    const item = event['item'] as { id: string; call_id?: string } | undefined;
    if (event.type === 'response.output_item.added') callIds.set(item!.id, item!.call_id ?? '');
    if (item?.call_id) found[item.call_id] ??= '';
    if (!event.type.endsWith('.delta')) continue;
    expect(callIds.has(event['item_id'])).toBe(true);
    const key = event.type.includes('summary')
      ? 'reasoning'
      : event.type.includes('output_text')
        ? 'text'
        : callIds.get(event['item_id'])!;
    found[key] += event['delta'] as string;
  }
  return found;
}

/** The client adds fields of its own to parsed output. */
const strip = (value: object): unknown =>
  JSON.parse(
    JSON.stringify(value, (key, one: unknown) =>
      key === 'parsed' || key === 'parsed_arguments' || key === 'output_parsed' ? undefined : one,
    ),
  );
