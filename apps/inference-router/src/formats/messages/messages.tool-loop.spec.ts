import { sharedPostgres } from '@nebo/test-kit';
import { newCaller, type Router, startRouter } from '../../../test/harness.js';
import { blocksOfStream, type MessageEvent, messageEvents } from '../../../test/messages.js';
import { callPiece, chunk } from '../../../test/responses.js';
import {
  firstTurn,
  loopBody,
  loopHeaders,
  loopPath,
  searchBody,
  secondTurn,
} from '../../../test/tool-loop.js';

const usage = { prompt_tokens: 9_000, completion_tokens: 80, prompt_cache_hit_tokens: 8_000 };

/** The content of an answer as such a client keeps it: block by block out of the events. */
function contentOf(events: readonly MessageEvent[]): Record<string, unknown>[] {
  const content: Record<string, unknown>[] = [];
  const json: string[] = [];
  for (const { type, index, ...event } of events) {
    const delta = event['delta'] as Record<string, string> | undefined;
    if (type === 'content_block_start') content.push({ ...(event['content_block'] as object) });
    if (type !== 'content_block_delta') continue;
    const block = content[index!]!;
    if (delta!['type'] === 'input_json_delta') {
      json[index!] = (json[index!] ?? '') + delta!['partial_json'];
      block['input'] = json[index!];
    } else {
      const field = delta!['type']!.replace('_delta', '');
      block[field] = `${block[field] as string}${delta![field]}`;
    }
  }
  for (const block of content)
    if (block['type'] === 'tool_use') block['input'] = JSON.parse(block['input'] as string);
  return content;
}

describe('a client that works in long tool loops', () => {
  let router: Router;
  beforeAll(async () => void (router = await startRouter()));
  beforeEach(() => {
    router.upstream.reset();
    router.billing.reset();
    router.identity = newCaller(router.billing);
  });
  afterAll(async () => {
    await router?.stop();
    await (await sharedPostgres()).stop();
  });
  const send = async (body: object) => {
    const response = await fetch(`${router.url}${loopPath}`, {
      method: 'POST',
      headers: loopHeaders,
      body: JSON.stringify(body),
    });
    const events = messageEvents(await response.text());
    return { status: response.status, events };
  };
  const sent = (index: number) => router.upstream.requests[index]!.body!;

  it('gets two turns with tools through, and the vendor sees all of it in its own form', async () => {
    router.upstream.next(
      {
        raw: [
          chunk({ reasoning_content: 'First I look.' }),
          chunk({ content: 'Looking.' }),
          callPiece(0, '{"file_path":', 'call_00_a', 'Read'),
          callPiece(1, '{"file_path":"index.html"}', 'call_01_b', 'Read'),
          callPiece(2, '{"query":"mail"}', 'call_02_c', 'FindTool'),
          callPiece(0, '"logo.png"}'),
          chunk({}, 'tool_calls', usage),
        ],
      },
      { reasoning: ['Now I mail.'], chunks: ['Done.'], usage },
    );
    const first = await send(loopBody(firstTurn));
    expect(first.status).toBe(200);
    expect(blocksOfStream(first.events)).toEqual([
      'thinking: First I look. [signed]',
      'text: Looking.',
      'tool_use call_00_a Read: {"file_path":"logo.png"}',
      'tool_use call_01_b Read: {"file_path":"index.html"}',
      'tool_use call_02_c FindTool: {"query":"mail"}',
    ]);
    expect(first.events.at(-2)).toMatchObject({
      delta: { stop_reason: 'tool_use' },
      usage: { input_tokens: 1_000, cache_read_input_tokens: 8_000, output_tokens: 80 },
    });
    const content = contentOf(first.events);
    const ids = content.flatMap(({ type, id }) => (type === 'tool_use' ? [id as string] : []));
    const second = await send(loopBody([...firstTurn, { role: 'assistant', content }, ...secondTurn(ids)]));
    expect(blocksOfStream(second.events)).toEqual(['thinking: Now I mail. [signed]', 'text: Done.']);

    expect(sent(0)).toMatchObject({
      max_tokens: 32_000,
      thinking: { type: 'enabled' },
      reasoning_effort: 'high',
      stream: true,
    });
    for (const field of ['metadata', 'context_management', 'output_config', 'system'])
      expect(sent(0)).not.toHaveProperty(field);
    const names = (index: number) =>
      (sent(index)['tools'] as { function: { name: string } }[]).map((tool) => tool.function.name);
    expect(names(0)).toEqual(['Read', 'Write', 'Shell', 'FindTool']);
    expect(names(1)).toEqual(['Read', 'Write', 'Shell', 'FindTool', 'SendMail']);
    expect(JSON.stringify([sent(0), sent(1)])).not.toContain('cache_control');

    const history = sent(1)['messages'] as Record<string, unknown>[];
    const beginning = sent(0)['messages'] as unknown[];
    expect(beginning).toEqual([
      {
        role: 'system',
        content:
          'x-billing-note: version=1; entry=cli;\n\nYou work on the files of the user.\n\nBe brief. Use tools.',
      },
      {
        role: 'user',
        content: '<reminder>Today is Saturday.</reminder>\n\nMake a picture page of logo.png.',
      },
      { role: 'system', content: 'The folder is /srv/site.' },
    ]);
    // What was there stays as it was: the vendor's prefix cache lives on it.
    expect(history.slice(0, 3)).toEqual(beginning);
    expect(history[3]).toMatchObject({
      role: 'assistant',
      content: 'Looking.',
      reasoning_content: 'First I look.',
      tool_calls: ids.map((id) => ({ id })),
    });
    expect(history.slice(4, 7)).toMatchObject(ids.map((id) => ({ role: 'tool', tool_call_id: id })));
    expect(history[5]!['content']).toBe('<tool_use_error>No such file: index.html</tool_use_error>');
    expect(history[6]!['content']).toBe('Tool found: SendMail');
    const rest = JSON.stringify(history.slice(7));
    expect(rest).toContain('The user opened index.html.');
    expect(rest).toContain('<reminder>Mail it when done.</reminder>');
    expect(JSON.stringify(history)).toContain('data:image/png;base64,iVBORw0KGgo=');
  });

  it('gets an answer from memory where it asks for a search of the web', async () => {
    router.upstream.next({ chunks: ['From memory.'], usage });
    const { status, events } = await send(searchBody);
    expect(status).toBe(200);
    expect(blocksOfStream(events)).toEqual(['text: From memory.']);
    expect(sent(0)).not.toHaveProperty('tools');
    expect(sent(0)).not.toHaveProperty('tool_choice');
  });

  it('may count its tokens', async () => {
    const response = await fetch(`${router.url}/v1/messages/count_tokens?beta=true`, {
      method: 'POST',
      headers: loopHeaders,
      body: JSON.stringify({ ...loopBody(firstTurn), max_tokens: undefined, stream: undefined }),
    });
    expect(response.status).toBe(200);
    const { input_tokens: tokens } = (await response.json()) as { input_tokens: number };
    expect(tokens).toBeGreaterThan(200);
    expect(tokens).toBeLessThan(1_000);
    expect(router.upstream.calls()).toBe(0);
  });
});
