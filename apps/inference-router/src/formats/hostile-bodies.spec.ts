import type { CatalogueModel } from '../catalogue/model.js';
import type { OrderMessage } from '../completions/order.js';
import type { Provider } from '../catalogue/catalogue.js';
import { AnswerReader } from '../completions/answer-reader.js';
import { dialects } from '../dialects/registry.js';
import { vendorMessages } from '../dialects/vendor-messages.js';
import { maskWords } from '../upstreams/refusal.js';
import { UpstreamEvent } from '../upstreams/upstream-event.js';
import { readHistory } from './messages/messages-history.js';

const model = { id: 'kimi-k3', vision: true } as CatalogueModel;
const times = <T>(count: number, make: (index: number) => T): T[] =>
  Array.from({ length: count }, (_, index) => make(index));

/**
 * Every body holds up everybody while it is read, so the time must grow with its size and not with its square. The sizes
 * are beyond what a body may have, so that a square would take minutes.
 */
describe('a hostile body does not hold the process up', () => {
  const limit = 5_000;
  const took = (work: () => unknown): number => {
    const begun = performance.now();
    work();
    return performance.now() - begun;
  };

  it('with turns of one role in a row: calls', () => {
    const messages = times(200_000, (index) => ({
      role: 'assistant',
      content: [{ type: 'tool_use', id: `c${index}`, name: 'f', input: {} }],
    }));
    expect(took(() => readHistory(undefined, messages, model))).toBeLessThan(limit);
    const { messages: read } = readHistory(undefined, messages.slice(0, 3), model);
    expect(read).toHaveLength(1);
    expect(read[0]!.tool_calls!.map(({ id }) => id)).toEqual(['c0', 'c1', 'c2']);
  });

  it('with turns of one role in a row: pictures', () => {
    const messages = times(200_000, (index) => ({
      role: 'user',
      content: [{ type: 'image', source: { type: 'url', url: `http://x/${index}` } }],
    }));
    expect(took(() => readHistory(undefined, messages, model))).toBeLessThan(limit);
    expect(readHistory(undefined, messages.slice(0, 3), model).messages[0]!.content).toHaveLength(3);
  });

  it('with results far behind their calls', () => {
    const calls = { role: 'assistant', content: [{ type: 'tool_use', id: 'c', name: 'f', input: {} }] };
    const notes = times(100_000, (index) => ({ role: index % 2 ? 'system' : 'user', content: 'n' }));
    const results = {
      role: 'user',
      content: times(100_000, (index) => ({ type: 'tool_result', tool_use_id: `c${index}`, content: 'r' })),
    };
    expect(took(() => readHistory(undefined, [calls, ...notes, results], model))).toBeLessThan(limit);
    const { messages } = readHistory(
      undefined,
      [calls, ...notes.slice(0, 3), { role: 'user', content: results.content.slice(0, 2) }],
      model,
    );
    expect(messages.map(({ role, tool_call_id: id }) => id ?? role)).toEqual([
      'assistant',
      'c0',
      'c1',
      'user',
      'system',
      'user',
    ]);
  });

  it.each(['qwen', 'mimo', 'minimax'])('with late system messages in a row, for %s', (name) => {
    const messages: OrderMessage[] = [
      { role: 'user', content: 'u' },
      ...times(250_000, () => ({ role: 'system' as const, content: 's' })),
    ];
    expect(took(() => vendorMessages(messages, dialects[name]!))).toBeLessThan(limit);
  });

  it('when a model writes nothing but blanks before its answer', () => {
    const reader = new AnswerReader({ dialect: dialects['minimax']!, provider: {} as Provider }, false);
    const event = new UpstreamEvent(JSON.stringify({ choices: [{ index: 0, delta: { content: '\n' } }] }));
    let size = 0;
    expect(
      took(() => {
        for (let piece = 0; piece < 400_000; piece += 1) size += reader.read(event)?.content?.length ?? 0;
      }),
    ).toBeLessThan(limit);
    expect(size).toBe(400_000);
  });

  it.each([
    ['names of keys', 'key-'.repeat(16_000)],
    ['an account and blanks', `account${' '.repeat(64_000)}`],
    ['accounts and blanks', `account${' '.repeat(60)}`.repeat(1_000)],
  ])('when a vendor repeats it in its words: %s', (_what, words) => {
    const provider = { apiKey: 'key-1234', baseUrl: 'https://llm.example/v1' };
    expect(took(() => maskWords(words, provider))).toBeLessThan(limit);
    expect(took(() => maskWords(words.repeat(50), provider))).toBeLessThan(limit);
  });
});
