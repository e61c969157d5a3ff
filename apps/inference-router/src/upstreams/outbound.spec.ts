import { startUpstreamModel, type UpstreamModel } from '@nebo/test-kit';
import { Cancel } from '../completions/cancel.js';
import { upstreamAnswer } from '../completions/upstream-answers.js';
import { type Outbound, startOutbound } from '../../test/outbound.js';
import { UpstreamError } from './upstream-error.js';
import type { UpstreamEvent } from './upstream-event.js';

describe('routes of a model', () => {
  let first: UpstreamModel;
  let second: UpstreamModel;
  let outbound: Outbound;
  beforeAll(async () => {
    first = await startUpstreamModel();
    second = await startUpstreamModel();
  });
  beforeEach(() => {
    first.reset();
    second.reset();
    outbound = startOutbound(`
providers:
  one: { base_url: "${first.url}", dialect: deepseek }
  two: { base_url: "${second.url}", dialect: deepseek }
  strict: { base_url: "${first.url}", dialect: openai, limits: { first_byte: 2, idle: 2 } }
models:
  deepseek-v4-pro:
    upstreams: [{ provider: one, priority: 1 }, { provider: two, model: other, priority: 2, weight: 1000000 }]
  deepseek-v4.1-flash: { upstreams: [{ provider: one }] }
  qwen3-coder-next: { upstreams: [{ provider: strict, priority: 1 }, { provider: two, priority: 2 }] }
  glm-5.2: { upstreams: [{ provider: one, model: a }, { provider: one, model: b }, { provider: one, model: c }, { provider: one, model: d }] }
`);
  });
  afterEach(() => outbound.stop());
  afterAll(async () => {
    await first?.stop();
    await second?.stop();
  });
  const ask = (model = 'deepseek-v4-pro') => outbound.ask(outbound.order(model));
  const refused = async (work: Promise<unknown>): Promise<UpstreamError> => {
    const error: unknown = await work.then(
      () => null,
      (cause: unknown) => cause,
    );
    expect(error).toBeInstanceOf(UpstreamError);
    return error as UpstreamError;
  };
  const health = async () => (await outbound.health.report()).parts.find(({ name }) => name === 'upstreams');

  it('the one of the lowest priority number has all requests, whatever the weights of the others', async () => {
    for (let index = 0; index < 5; index += 1) expect((await ask()).upstream).toBe('one');
    expect(second.calls()).toBe(0);
  });

  it('three attempts are made at most, each at another route', async () => {
    first.script(() => ({ refuse: true }));
    expect(await refused(ask('glm-5.2'))).toMatchObject({ trouble: 'unreachable' });
    expect(first.calls()).toBe(3);
    expect(new Set(first.requests.map(({ body }) => body!['model'])).size).toBe(3);
  });

  it('five failures in a row close a route: the others go on, and one request a pause tries it', async () => {
    first.script(() => ({ status: 500 }));
    for (let index = 0; index < 7; index += 1) expect((await ask()).upstream).toBe('two');
    // One more where the machine is so slow that the pause was over in between.
    expect([5, 6]).toContain(first.calls());
    expect(await health()).toMatchObject({
      ok: false,
      required: false,
      detail: '1 of 9 upstream routes are left alone for a while',
    });
    expect((await outbound.health.report()).ok).toBe(true);
    const text = await outbound.figures.metrics();
    expect(text).toMatch(/nebo_breaker_state\{service="inference-router",name="one\/deepseek-v4-pro"\} 2/);
    expect(text).toMatch(/nebo_breaker_state\{service="inference-router",name="two\/other"\} 0/);
    first.reset();
    // The first pause is a second at most.
    await new Promise((resolve) => setTimeout(resolve, 1_050));
    expect((await ask()).upstream).toBe('one');
    expect(await health()).toMatchObject({ ok: true });
  });

  it('when all are closed nothing is tried: 503 with the time to wait and a code of its own', async () => {
    first.next({ status: 429, headers: { 'retry-after': '7' } });
    second.next({ status: 429, headers: { 'retry-after': '20' } });
    expect(upstreamAnswer(await refused(ask()))).toMatchObject({ status: 503, code: 'upstream_busy' });
    const answer = upstreamAnswer(await refused(ask()));
    expect(answer).toMatchObject({
      status: 503,
      code: 'upstreams_unavailable',
      headers: { 'retry-after': '7' },
    });
    expect([first.calls(), second.calls()]).toEqual([1, 1]);
  });

  it('Retry-After may be a date, and a route that is told to wait is closed for all models on it', async () => {
    first.next({ status: 429, headers: { 'retry-after': new Date(Date.now() + 60_000).toUTCString() } });
    const error = await refused(ask('deepseek-v4.1-flash'));
    expect(error.retryAfter).toBeGreaterThan(50);
    expect((await refused(ask('deepseek-v4.1-flash'))).trouble).toBe('closed');
    expect((await ask()).upstream).toBe('one');
  });

  it.each([401, 402])(
    '%s closes the route at once: an error for the operator in log, metric and health, until it works',
    async (status) => {
      first.script(() => ({ status, body: { error: { message: 'account org-77 owes 12 dollars' } } }));
      expect((await ask()).upstream).toBe('two');
      expect((await ask()).upstream).toBe('two');
      expect([1, 2]).toContain(first.calls());
      const lines = outbound.log.filter(({ code }) => code === 'upstream_account_refused');
      expect(lines).toMatchObject([{ level: 50, provider: 'one', status }]);
      const { detail } = (await health())!;
      expect(detail).toContain("1 provider(s) refuse this installation's account");
      // Everybody may read it.
      expect(detail).not.toMatch(/\bone\b|org-77|dollars/);
      expect(await outbound.figures.metrics()).toMatch(
        new RegExp(
          `nebo_upstream_account_refusals_total\\{service="inference-router",provider="one",status="${status}"\\} [12]`,
        ),
      );
      first.reset();
      await new Promise((resolve) => setTimeout(resolve, 1_050));
      expect((await ask()).upstream).toBe('one');
      expect(await health()).toMatchObject({ ok: true });
      expect(await outbound.figures.metrics()).toMatch(
        /nebo_upstream_account_refused\{service="inference-router",provider="one"\} 0/,
      );
    },
  );

  it.each([
    ['qwen', 400, { code: 'Arrearage', type: 'Arrearage' }],
    ['zhipu', 429, { code: '1113' }],
    ['moonshot', 429, { type: 'exceeded_current_quota_error' }],
  ])(
    '%s says by a code under %s that the account is out of money: no request is at fault',
    async (...what) => {
      const [dialect, status, code] = what;
      const vendor = await startUpstreamModel();
      const own = startOutbound(`
providers:
  poor: { base_url: "${vendor.url}", dialect: ${dialect} }
  rich: { base_url: "${second.url}", dialect: ${dialect} }
models:
  qwen3.8-max: { upstreams: [{ provider: poor, priority: 1 }, { provider: rich, priority: 2 }] }
  kimi-k3: { upstreams: [{ provider: poor }] }
`);
      try {
        const message = 'please make sure your account is in good standing';
        vendor.script(() => ({ status, body: { error: { ...code, message } } }));
        expect((await own.ask(own.order('qwen3.8-max'))).upstream).toBe('rich');
        const answer = upstreamAnswer(await refused(own.ask(own.order('kimi-k3'))));
        expect(answer).toMatchObject({ status: 502, code: 'upstream_failed' });
        expect(answer.message).not.toContain('standing');
        expect(own.log.some((line) => line['code'] === 'upstream_account_refused')).toBe(true);
      } finally {
        await own.stop();
        await vendor.stop();
      }
    },
  );

  it('a 403 alone closes nothing, for it may be about one request', async () => {
    first.next({ status: 403 });
    expect((await ask()).upstream).toBe('two');
    expect((await ask()).upstream).toBe('one');
    expect(outbound.log.some(({ code }) => code === 'upstream_account_refused')).toBe(true);
  });

  it('what the vendor refuses about a request does not count, and no other is asked', async () => {
    first.script(() => ({ status: 400, body: { error: { message: 'no' } } }));
    for (let index = 0; index < 8; index += 1) expect((await refused(ask())).isAboutRequest).toBe(true);
    expect(first.calls()).toBe(8);
    expect(second.calls()).toBe(0);
  });

  it('clients that leave do not count', async () => {
    first.script(() => ({ hang: true }));
    for (let index = 0; index < 8; index += 1) {
      const gone = new Cancel();
      setTimeout(() => gone.cancel(new Error('left')), 40);
      await expect(outbound.ask(outbound.order('deepseek-v4-pro'), gone)).rejects.toThrow('left');
    }
    expect(await health()).toMatchObject({ ok: true });
  });

  it.each([
    ['broken off', { chunks: ['a', 'b', 'c'], cutAfter: 2, chunkDelay: 5 }],
    [
      'ended by an error',
      {
        raw: [
          'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}\n\n',
          'data: {"error":{"message":"overloaded","code":500}}\n\n',
        ],
        chunkDelay: 20,
      },
    ],
  ])(
    'answers that are %s in their middle close a route too, and are never tried elsewhere',
    async (_what, answer) => {
      first.script(() => answer);
      for (let index = 0; index < 10; index += 1) await refused(ask());
      expect(second.calls()).toBe(0);
      expect((await ask()).upstream).toBe('two');
    },
  );

  it("the file's limits of a provider hold, also between two events", async () => {
    first.next({ hang: true });
    expect((await ask('qwen3-coder-next')).upstream).toBe('two');
    await first.requests[0]!.answered;
    expect(first.requests[0]!.aborted).toBe(true);
    first.next({ chunkDelay: 3_000 });
    expect(await refused(ask('qwen3-coder-next'))).toMatchObject({ trouble: 'timeout' });
    await first.requests[1]!.answered;
    expect(first.requests[1]!.aborted).toBe(true);
    // No limit of its own: as slow as it likes.
    first.next({ status: 500 });
    second.next({ delay: 2_500 });
    expect((await ask('qwen3-coder-next')).upstream).toBe('two');
  });

  it('a client that leaves closes the connection, before the first event and after', async () => {
    for (const answer of [{ hang: true }, { chunkDelay: 1_000 }]) {
      first.reset();
      first.next(answer);
      const gone = new Cancel();
      const work = outbound.ask(outbound.order('deepseek-v4-pro'), gone).catch((error: Error) => error);
      while (first.requests.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
      await new Promise((resolve) => setTimeout(resolve, 30));
      gone.cancel(new Error('left'));
      await first.requests[0]!.answered;
      expect(first.requests[0]!.aborted).toBe(true);
      expect(await work).toBeInstanceOf(Error);
    }
  });

  it('uses its connections again', async () => {
    const ports = new Set<unknown>();
    for (let index = 0; index < 6; index += 1) {
      first.next({
        handle: (request, response) => {
          ports.add(request.socket.remotePort);
          response.writeHead(200, { 'content-type': 'text/event-stream' });
          response.end(
            'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
          );
        },
      });
      await ask();
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    expect(ports.size).toBe(1);
  });

  it('stops reading from a vendor while its own reader waits, and loses nothing', async () => {
    const pieces = 2_000;
    const data = `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content: 'x'.repeat(16_384) }, finish_reason: null }] })}\n\n`;
    let written = 0;
    let isDone = false;
    first.next({
      handle: async (_request, response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        for (; written < pieces; written += 1)
          if (!response.write(data)) await new Promise((resolve) => response.once('drain', resolve));
        isDone = true;
        response.end('data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n');
      },
    });
    let seen = 0;
    let goOn!: () => void;
    const gate = new Promise<void>((resolve) => (goOn = resolve));
    const answer = outbound.upstreams.answer(outbound.order('deepseek-v4.1-flash'), new Cancel(), {
      began: () => undefined,
      events: (events) => {
        seen += events.length;
        return gate;
      },
    });
    await new Promise((resolve) => setTimeout(resolve, 400));
    // 32 MB do not fit into what sockets and the high-water mark hold.
    expect(isDone).toBe(false);
    goOn();
    await answer;
    expect(seen).toBe(pieces + 1);
  });

  it('events that arrive together come together', async () => {
    const event = 'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}\n\n';
    first.next({
      handle: (_request, response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write(event);
        setTimeout(() => {
          // Corked: one packet, yet each event its own piece of the chunked body.
          response.cork();
          for (let index = 0; index < 5; index += 1) response.write(event);
          response.uncork();
          response.end('data: [DONE]\n\n');
        }, 50);
      },
    });
    const batches: (readonly UpstreamEvent[])[] = [];
    await outbound.upstreams.answer(outbound.order('deepseek-v4-pro'), new Cancel(), {
      began: () => undefined,
      events: (events) => void batches.push(events),
    });
    expect(batches.map((events) => events.length)).toEqual([1, 5]);
    expect(batches[0]![0]!.data).toBe(event.slice(6, -2));
  });
});
