import { startUpstreamModel, type UpstreamModel } from './upstream.js';

let upstream: UpstreamModel;
beforeAll(async () => void (upstream = await startUpstreamModel({ models: ['m1', 'm2'] })));
beforeEach(() => upstream.reset());

const post = (body: Record<string, unknown>, signal?: AbortSignal) =>
  fetch(`${upstream.url}/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: 'Bearer k' },
    body: JSON.stringify({ model: 'm1', messages: [{ role: 'user', content: 'hi' }], ...body }),
    signal: signal ?? null,
  });

/** The JSON of the frames of a stream; '[DONE]' as it is. */
async function frames(response: Response): Promise<(string | Record<string, unknown>)[]> {
  const text = await response.text();
  const data = text.split('\n\n').filter((frame) => frame.startsWith('data: '));
  return data.map((frame) =>
    frame === 'data: [DONE]' ? '[DONE]' : (JSON.parse(frame.slice(6)) as Record<string, unknown>),
  );
}

describe('startUpstreamModel', () => {
  it('answers plainly with usage and records the request', async () => {
    const body = (await (await post({})).json()) as Record<string, unknown>;
    expect(body).toMatchObject({
      object: 'chat.completion',
      model: 'm1',
      choices: [
        { message: { role: 'assistant', content: 'Hello from the upstream.' }, finish_reason: 'stop' },
      ],
      usage: { completion_tokens: 5 },
    });
    expect(upstream.calls()).toBe(1);
    expect(upstream.requests[0]).toMatchObject({
      number: 1,
      path: '/v1/chat/completions',
      headers: { authorization: 'Bearer k' },
    });
    expect(upstream.requests[0]!.body).toMatchObject({ model: 'm1' });
  });

  it('lists models', async () => {
    const list = (await (await fetch(`${upstream.url}/models`)).json()) as { data: { id: string }[] };
    expect(list.data.map((model) => model.id)).toEqual(['m1', 'm2']);
    expect(upstream.calls()).toBe(0);
  });

  it('streams, with the usage chunk only when asked', async () => {
    const without = await frames(await post({ stream: true }));
    expect(without.at(-1)).toBe('[DONE]');
    expect(without.some((frame) => typeof frame === 'object' && 'usage' in frame)).toBe(false);
    const asked = await frames(await post({ stream: true, stream_options: { include_usage: true } }));
    expect(asked.at(-2)).toMatchObject({ choices: [], usage: { completion_tokens: 5 } });
    upstream.next({ usage: null });
    const none = await frames(await post({ stream: true, stream_options: { include_usage: true } }));
    expect(none.some((frame) => typeof frame === 'object' && 'usage' in frame)).toBe(false);
  });

  it('is scripted per request, queue first', async () => {
    upstream.script(({ body }) =>
      body?.['model'] === 'm2'
        ? { status: 429, body: { error: 'slow down' }, headers: { 'retry-after': '3' } }
        : undefined,
    );
    upstream.next({ status: 500 }, { usage: { prompt_tokens: 7, completion_tokens: 9 } });
    expect((await post({})).status).toBe(500);
    expect(await (await post({})).json()).toMatchObject({ usage: { prompt_tokens: 7 } });
    const limited = await post({ model: 'm2' });
    expect(limited.status).toBe(429);
    expect(limited.headers.get('retry-after')).toBe('3');
    expect((await post({})).status).toBe(200);
  });

  it('cuts a stream at the given point', async () => {
    upstream.next({ cutAfter: 2 });
    const response = await post({ stream: true });
    let text = '';
    const failed = await (async () => {
      for await (const chunk of response.body!) text += Buffer.from(chunk as Uint8Array).toString();
    })().then(
      () => false,
      () => true,
    );
    expect(failed).toBe(true);
    expect(text).toContain('Hello');
    expect(text).toContain(' from');
    expect(text).not.toContain(' the');
    await upstream.requests[0]!.answered;
    expect(upstream.requests[0]!.aborted).toBe(false);
  });

  it('refuses, cuts plain answers, sends reasoning, tools and raw frames', async () => {
    upstream.next({ refuse: true }, { cutAfter: 0 });
    await expect(post({})).rejects.toThrow();
    await expect(post({}).then((response) => response.text())).rejects.toThrow();
    upstream.next({
      reasoning: ['hm'],
      toolCalls: [{ id: 'c', type: 'function', function: { name: 'f', arguments: '{}' } }],
    });
    expect(await (await post({})).json()).toMatchObject({
      choices: [
        {
          finish_reason: 'tool_calls',
          message: { content: null, reasoning_content: 'hm', tool_calls: [{ id: 'c' }] },
        },
      ],
    });
    upstream.next({ raw: [': ping\r\n\r\n', 'data: [DONE]\r\n\r\n'] });
    expect(await (await post({ stream: true })).text()).toBe(': ping\r\n\r\ndata: [DONE]\r\n\r\n');
  });

  it('notices a client that leaves', async () => {
    upstream.next({ chunkDelay: 50 });
    const abort = new AbortController();
    const response = await post({ stream: true }, abort.signal);
    await response.body!.getReader().read();
    abort.abort();
    await upstream.requests[0]!.answered;
    expect(upstream.requests[0]!.aborted).toBe(true);
    upstream.next({ hang: true });
    await expect(post({}, AbortSignal.timeout(100))).rejects.toThrow();
    await upstream.requests[1]!.answered;
    expect(upstream.requests[1]!.aborted).toBe(true);
  });

  it('waits as told', async () => {
    upstream.next({ delay: 120 });
    const before = Date.now();
    await post({});
    expect(Date.now() - before).toBeGreaterThanOrEqual(115);
  });
});
