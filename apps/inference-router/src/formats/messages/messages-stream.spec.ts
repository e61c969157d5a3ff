import type { Piece } from '../../completions/piece.js';
import { blocksOfStream, messageEvents } from '../../../test/messages.js';
import { MessagesStream } from './messages-stream.js';

const completed = (finish: 'stop' | 'length' | 'tool_calls' | 'content_filter') => ({
  finish,
  counters: { input: 120, cached: 64, output: 30, reasoning: 10 },
  cost: 0n,
});
const call = (index: number, args: string, name?: string): Piece => ({
  toolCalls: [
    {
      index,
      ...(name ? { id: `id.${index}`, type: 'function' as const } : {}),
      function: { ...(name ? { name } : {}), arguments: args },
    },
  ],
});
/** Writes pieces, those of one list together; after each list the blocks so far are noted. */
function write(batches: Piece[][], finish: Parameters<typeof completed>[0] = 'stop', hides = false) {
  const stream = new MessagesStream({ id: 'msg_1', model: 'glm-5.3' }, 99, hides);
  const steps = batches.map((batch) => stream.pieces(batch));
  const text = steps.join('') + stream.end(completed(finish));
  const events = messageEvents(text);
  return { text, steps, events, blocks: blocksOfStream(events) };
}

describe('the events of a message', () => {
  it('are these, byte by byte', () => {
    const { text } = write([[{ reasoning: 'Hm' }], [{ content: 'Hel' }], [{ content: 'lo' }]]);
    const usage = (input: number, cached: number, output: number, thinking: number) =>
      `"usage":{"input_tokens":${input},"cache_creation_input_tokens":0,"cache_read_input_tokens":${cached},"output_tokens":${output},"output_tokens_details":{"thinking_tokens":${thinking}}}`;
    const event = (type: string, rest = '') => `event: ${type}\ndata: {"type":"${type}"${rest}}\n\n`;
    expect(text).toBe(
      event(
        'message_start',
        `,"message":{"id":"msg_1","type":"message","role":"assistant","model":"glm-5.3","content":[],"stop_reason":null,"stop_sequence":null,${usage(99, 0, 0, 0)}}`,
      ) +
        event(
          'content_block_start',
          ',"index":0,"content_block":{"type":"thinking","thinking":"","signature":""}',
        ) +
        event('content_block_delta', ',"index":0,"delta":{"type":"thinking_delta","thinking":"Hm"}') +
        event('content_block_delta', ',"index":0,"delta":{"type":"signature_delta","signature":""}') +
        event('content_block_stop', ',"index":0') +
        event('content_block_start', ',"index":1,"content_block":{"type":"text","text":""}') +
        event('content_block_delta', ',"index":1,"delta":{"type":"text_delta","text":"Hel"}') +
        event('content_block_delta', ',"index":1,"delta":{"type":"text_delta","text":"lo"}') +
        event('content_block_stop', ',"index":1') +
        event(
          'message_delta',
          `,"delta":{"stop_reason":"end_turn","stop_sequence":null},${usage(56, 64, 30, 10)}`,
        ) +
        event('message_stop'),
    );
  });

  it('tell together what came together', () => {
    const { events } = write([[{ content: 'a' }, { content: 'b' }, { content: 'c' }]]);
    expect(events.filter(({ type }) => type === 'content_block_delta')).toEqual([
      { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'abc' } },
    ]);
  });

  it('have a block for each change between thinking and text', () => {
    expect(
      write([
        [{ reasoning: 'a' }],
        [{ content: 'b' }],
        [{ reasoning: 'c', content: 'd' }],
        [{ content: 'e' }],
      ]).blocks,
    ).toEqual(['thinking: a [signed]', 'text: b', 'thinking: c [signed]', 'text: de']);
    expect(write([[{ reasoning: 'a' }], [{ content: 'b' }]], 'stop', true).blocks).toEqual(['text: b']);
    expect(write([]).blocks).toEqual([]);
  });

  it('have the calls one after the other, however their pieces are mixed', () => {
    const { blocks, events } = write(
      [
        [{ reasoning: 'r' }, { content: 't' }],
        [call(0, '', 'a'), call(1, '{', 'b')],
        [call(2, '', 'c'), call(0, '{"x":')],
        [call(1, '"y":[2'), call(0, '1}')],
        [call(1, ']}')],
      ],
      'tool_calls',
    );
    expect(blocks).toEqual([
      'thinking: r [signed]',
      'text: t',
      'tool_use id.0 a: {"x":1}',
      'tool_use id.1 b: {"y":[2]}',
      'tool_use id.2 c: {}',
    ]);
    expect(events.at(-2)).toMatchObject({ delta: { stop_reason: 'tool_use' } });
  });

  it('have text that comes between calls at its place, and one that comes inside a call after it', () => {
    expect(
      write([
        [call(0, '{"x":', 'a')],
        [{ content: 'inside' }],
        [call(0, '1}')],
        [call(1, '{}', 'b')],
        [{ content: 'end' }],
      ]).blocks,
    ).toEqual(['tool_use id.0 a: {"x":1}', 'text: inside', 'tool_use id.1 b: {}', 'text: end']);
  });

  it('show a long call as it is written, and a call at once when the next one begins', () => {
    const { steps, blocks } = write([
      [call(0, '{"content":"', 'write')],
      ...Array.from({ length: 50 }, () => [call(0, 'line of a file\\n')]),
      [call(0, '"}')],
      [call(1, '{}', 'next')],
    ]);
    // The start, then nothing until it is long enough, then every piece.
    expect(steps[0]).toContain('content_block_start');
    expect(steps.slice(20, 51).every((step) => step.includes('input_json_delta'))).toBe(true);
    expect(steps[52]).toContain('"name":"next"');
    expect(blocks[0]).toBe(`tool_use id.0 write: {"content":"${'line of a file\\n'.repeat(50)}"}`);
  });

  it.each([
    ['stop', [{ content: 'a' }], 'end_turn'],
    ['length', [{ content: 'a' }], 'max_tokens'],
    ['content_filter', [{ content: 'a' }], 'refusal'],
    ['tool_calls', [call(0, '{}', 'a')], 'tool_use'],
    ['length', [call(0, '{}', 'a')], 'max_tokens'],
    // Nobody may wait for calls that are not there.
    ['tool_calls', [{ content: 'a' }], 'end_turn'],
  ] as const)('tell why it ended: %s', (finish, pieces, reason) => {
    expect(write([[...pieces]], finish).events.at(-2)).toMatchObject({ delta: { stop_reason: reason } });
  });

  it('end with an error where the answer broke off', () => {
    const stream = new MessagesStream({ id: 'msg_1', model: 'glm-5.3' }, 99, false);
    const error = { type: 'api_error', code: 'upstream_broken', message: 'it broke' };
    const text = stream.pieces([{ content: 'a' }]) + stream.broken({ type: 'error', error });
    expect(messageEvents(text).at(-1)).toEqual({ type: 'error', error });
    expect(text).not.toMatch(/message_stop|message_delta|content_block_stop/);
    expect(stream.beat).toBe('event: ping\ndata: {"type":"ping"}\n\n');
  });
});
