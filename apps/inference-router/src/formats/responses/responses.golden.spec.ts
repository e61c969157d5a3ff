import { expectGolden, goldenHead, goldenStreams, plain, streamed } from '../../../test/golden.js';
import { responseEvents } from '../../../test/responses.js';
import { type OutputContext, ResponseOutput } from './response-output.js';
import { ResponsesAnswer } from './responses-answer.js';
import { ResponsesStream } from './responses-stream.js';

const head = { id: 'resp_golden', created: goldenHead.created, model: goldenHead.model, echo: { tools: [] } };
const context = (): OutputContext => ({ operationId: 'golden', names: new Map(), seal: null });

describe.each(goldenStreams())('$dialect $scenario', (golden) => {
  it('comes out in the responses format as the golden files say, and both say the same', async () => {
    const text = await streamed(golden, new ResponsesStream(head, context()), '/v1/responses');
    expectGolden(golden, 'responses.sse', text);
    const last = responseEvents(text).at(-1)!;
    const body = await plain(golden, new ResponsesAnswer(head, new ResponseOutput(context())));
    if (!body) {
      expect(last).toMatchObject({
        type: 'response.failed',
        response: { error: { code: 'upstream_broken' } },
      });
      return;
    }
    expectGolden(golden, 'responses.json', `${JSON.stringify(body, null, 2)}\n`);
    expect(last['response']).toEqual(body);
    expect(last.type).toBe(`response.${(body as { status: string }).status}`);
  });
});
