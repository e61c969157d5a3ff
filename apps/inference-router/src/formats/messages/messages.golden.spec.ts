import { expectGolden, goldenHead, goldenStreams, plain, streamed } from '../../../test/golden.js';
import { blocksOfStream, messageEvents } from '../../../test/messages.js';
import { MessagesAnswer } from './messages-answer.js';
import { MessagesStream } from './messages-stream.js';

const head = { id: 'msg_golden', model: goldenHead.model };

describe.each(goldenStreams())('$dialect $scenario', (golden) => {
  it('comes out in the messages format as the golden files say, and both say the same', async () => {
    const text = await streamed(golden, new MessagesStream(head, 100, false), '/v1/messages');
    expectGolden(golden, 'messages.sse', text);
    const events = messageEvents(text);
    const body = (await plain(golden, new MessagesAnswer(head, false))) as Record<string, unknown> | null;
    if (!body) {
      expect(events.at(-1)).toMatchObject({ type: 'error', error: { code: 'upstream_broken' } });
      return;
    }
    expectGolden(golden, 'messages.json', `${JSON.stringify(body, null, 2)}\n`);
    const blocks = (body['content'] as Record<string, unknown>[]).map(({ type, ...block }) =>
      type === 'tool_use'
        ? `tool_use ${String(block['id'])} ${String(block['name'])}: ${JSON.stringify(block['input'])}`
        : `${String(type)}: ${String(block[type as string])}${type === 'thinking' ? ' [signed]' : ''}`,
    );
    expect(blocksOfStream(events)).toEqual(blocks);
    expect(events.at(-2)).toMatchObject({
      delta: { stop_reason: body['stop_reason'] },
      usage: body['usage'],
    });
  });
});
