import Anthropic from '@anthropic-ai/sdk';
import { dice } from '../../../test/dice.js';
import { bareCatalogue, readRequest } from '../../../test/messages.js';
import type { Route } from '../../catalogue/catalogue.js';
import type { Piece } from '../../completions/piece.js';
import type { ToolCallPiece } from '../../completions/tool-call-reader.js';
import { dialects } from '../../dialects/registry.js';
import { vendorRequest } from '../../dialects/vendor-request.js';
import { MessagesAnswer } from './messages-answer.js';
import { MessagesStream } from './messages-stream.js';

type Block = Record<string, unknown>;

/** A random history, and what of it must reach a model, in order, by kind. */
class RandomHistory {
  readonly messages: { role: string; content: unknown }[] = [];
  readonly texts: string[] = [];
  readonly images: string[] = [];
  readonly reasoning: string[] = [];
  readonly ids: string[] = [];
  private count = 0;

  constructor(private readonly roll: (below: number) => number) {
    const turns = 1 + roll(5);
    for (let turn = 0; turn < turns; turn += 1) this.turn();
    this.user([]);
  }

  private turn(): void {
    this.user([]);
    if (this.roll(3) === 0) this.messages.push({ role: 'system', content: this.noted(this.texts, 'system') });
    const ids = this.assistant();
    if (ids.length > 0) this.user(ids);
  }

  private mark(kind: string): string {
    this.count += 1;
    return `<${kind} ${this.count}>`;
  }

  private noted(list: string[], kind: string): string {
    const mark = this.mark(kind);
    list.push(mark);
    return mark;
  }

  private assistant(): string[] {
    const content: Block[] = [];
    if (this.roll(2) === 0)
      content.push({ type: 'thinking', thinking: this.noted(this.reasoning, 'thought'), signature: '' });
    if (this.roll(4) === 0) content.push({ type: 'redacted_thinking', data: 'gone' });
    const ids = Array.from({ length: this.roll(4) }, () => this.mark('id'));
    if (this.roll(3) > 0 || ids.length === 0)
      content.push({ type: 'text', text: this.noted(this.texts, 'said') });
    for (const id of ids) {
      this.ids.push(id);
      content.push({ type: 'tool_use', id, name: 'look', input: { path: this.noted(this.texts, 'input') } });
    }
    this.messages.push({ role: 'assistant', content });
    return ids;
  }

  private user(ids: string[]): void {
    const results = ids.map((id) => this.result(id));
    const said: Block[] = Array.from({ length: ids.length > 0 ? this.roll(2) : 1 + this.roll(3) }, () =>
      this.roll(4) === 0 ? this.image() : { type: 'text', text: this.noted(this.texts, 'asked') },
    );
    // Results keep their order, and so does what is said, but the two may be mixed.
    const content: Block[] = [];
    while (results.length + said.length > 0) {
      const from = said.length === 0 || (results.length > 0 && this.roll(2) === 0) ? results : said;
      content.push(from.shift()!);
    }
    this.messages.push({ role: 'user', content });
  }

  private result(id: string): Block {
    const content = Array.from({ length: this.roll(3) }, () =>
      this.roll(3) === 0 ? this.image() : { type: 'text', text: this.noted(this.texts, 'result') },
    );
    return { type: 'tool_result', tool_use_id: id, ...(content.length > 0 ? { content } : {}) };
  }

  private image(): Block {
    const data = this.noted(this.images, 'picture');
    return { type: 'image', source: { type: 'base64', media_type: 'image/png', data } };
  }
}

/** Are all marks in a text, in their order? */
function expectInOrder(text: string, marks: readonly string[]): void {
  let from = 0;
  for (const mark of marks) {
    const place = text.indexOf(mark, from);
    if (place < 0) throw new Error(`${mark} is missing, or at a wrong place, in ${text}`);
    from = place + mark.length;
  }
}

describe('what goes in comes out', () => {
  it('of any history every text, image, thought and id reaches any vendor, in order', () => {
    const offer = bareCatalogue.get('kimi-k3')!;
    for (let seed = 0; seed < 300; seed += 1) {
      const history = new RandomHistory(dice(seed));
      const { order } = readRequest({ messages: history.messages });
      for (const dialect of Object.values(dialects)) {
        const route: Route = {
          provider: { name: 'p', baseUrl: 'https://p', apiKey: null, dialect },
          vendorModel: 'v',
          weight: 1,
          priority: 1,
          dialect,
        };
        const sent = vendorRequest({ ...order, offer }, route)['messages'] as Record<string, unknown>[];
        const text = JSON.stringify(sent);
        expectInOrder(text, history.texts);
        expectInOrder(text, history.images);
        expectInOrder(text, history.reasoning);
        expect(
          sent.flatMap((one) => ((one['tool_calls'] ?? []) as { id: string }[]).map(({ id }) => id)),
        ).toEqual(history.ids);
        expect(sent.filter(({ role }) => role === 'tool').map((one) => one['tool_call_id'])).toEqual(
          history.ids,
        );
        // Nothing but results stands between calls and the last of their results.
        for (const [index, one] of sent.entries()) {
          const count = ((one['tool_calls'] ?? []) as unknown[]).length;
          const next = sent.slice(index + 1, index + 1 + count);
          expect(next.every(({ role }) => role === 'tool')).toBe(true);
        }
      }
    }
  });

  it('of any answer the official client puts the stream together to what the plain answer is', async () => {
    for (let seed = 0; seed < 200; seed += 1) {
      const roll = dice(seed);
      const pieces = randomPieces(roll);
      const finish = pieces.some(({ toolCalls }) => toolCalls) ? 'tool_calls' : 'stop';
      const completed = {
        finish,
        counters: { input: roll(1_000) + 50, cached: roll(50), output: roll(500), reasoning: 0 },
        cost: 0n,
      } as const;
      const head = { id: 'msg_1', model: 'kimi-k3' };
      const hides = roll(5) === 0;
      const plain = new MessagesAnswer(head, hides);
      plain.add(pieces);
      const stream = new MessagesStream(head, 7, hides);
      let text = '';
      for (let at = 0; at < pieces.length;) {
        const batch = pieces.slice(at, at + 1 + roll(4));
        at += batch.length;
        text += stream.pieces(batch) + (roll(4) === 0 ? stream.beat : '');
      }
      text += stream.end(completed);
      expect(await accumulate(text)).toEqual(JSON.parse(JSON.stringify(plain.body(completed))));
    }
  });
});

/** Thinking, text and the mixed pieces of several calls, some without arguments or with ones that are no object. */
function randomPieces(roll: (below: number) => number): Piece[] {
  const word = () =>
    ['Привет ', '🙂', '{"', '\\', '\n', 'a long word of text, ', '"}'][roll(7)]!.repeat(1 + roll(3));
  const pieces: Piece[] = Array.from({ length: roll(12) }, () =>
    roll(3) === 0 ? { reasoning: word() } : { content: word() },
  );
  const queues = Array.from({ length: roll(4) }, (_none, index) => {
    const args = [
      '',
      '{}',
      '[1]',
      'not json',
      JSON.stringify({ path: word(), list: [1, { deep: word() }] }),
      JSON.stringify({ content: word().repeat(200) }),
    ][roll(6)]!;
    const queue: ToolCallPiece[] = [
      { index, id: `call.${index}:x`, type: 'function', function: { name: 'look', arguments: '' } },
    ];
    for (let at = 0; at < args.length;) {
      const piece = args.slice(at, at + 1 + roll(60));
      at += piece.length;
      queue.push({ index, function: { arguments: piece } });
    }
    return queue;
  });
  for (
    let open = queues.filter((queue) => queue.length > 0);
    open.length > 0;
    open = open.filter((q) => q.length > 0)
  ) {
    // Heads come in the order of their index, as the reader of vendors' pieces gives them.
    const queue = open.find((one) => one[0]!.id !== undefined && roll(2) === 0) ?? open[roll(open.length)]!;
    pieces.push({ toolCalls: [queue.shift()!], ...(roll(10) === 0 ? { content: word() } : {}) });
  }
  return pieces;
}

/** The final message of the official client. */
async function accumulate(text: string): Promise<unknown> {
  const client = new Anthropic({
    apiKey: 'x',
    baseURL: 'http://localhost',
    maxRetries: 0,
    fetch: () => Promise.resolve(new Response(text, { headers: { 'content-type': 'text/event-stream' } })),
  });
  const message = await client.messages
    .stream({ model: 'kimi-k3', max_tokens: 100, messages: [{ role: 'user', content: 'x' }] })
    .finalMessage();
  // What the client adds of its own.
  const { parsed_output: _none, ...told } = JSON.parse(JSON.stringify(message)) as Record<string, unknown>;
  return told;
}
