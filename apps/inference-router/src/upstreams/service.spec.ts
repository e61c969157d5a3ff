import { sharedPostgres } from '@nebo/test-kit';
import { newCaller, plenty, type Router, startRouter, until } from '../../test/harness.js';

const messages = [{ role: 'user', content: 'hi' }];

describe('trouble with upstreams, as the service shows it', () => {
  let router: Router;
  beforeAll(async () => {
    router = await startRouter({ env: { NEBO_UPSTREAM_BREAKER_FAILURES: '5' } });
  });
  beforeEach(() => {
    router.upstream.reset();
    router.billing.reset();
    router.identity = newCaller(router.billing);
  });
  afterAll(async () => {
    await router?.stop();
    await (await sharedPostgres()).stop();
  });
  const get = async (path: string) =>
    (await router.nebo.request('inference-router', { path, as: null })).text;

  it('a model whose vendor asked for a pause is refused with 503 and the time to wait, free and without asking', async () => {
    router.upstream.script(() => ({ status: 429, headers: { 'retry-after': '30' } }));
    const ask = (stream = false) => router.chat({ model: 'glm-5.2', messages, stream });
    expect(await (await ask()).json()).toMatchObject({ error: { code: 'upstream_busy' } });
    for (const stream of [false, true]) {
      const answer = await ask(stream);
      expect(answer.status).toBe(503);
      expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(10);
      expect(await answer.json()).toMatchObject({
        error: {
          type: 'api_error',
          code: 'upstreams_unavailable',
          message: expect.stringContaining('charged'),
        },
      });
    }
    expect(router.upstream.calls()).toBe(1);
    // Another model of the same provider goes on: it is another route.
    router.upstream.script(() => undefined);
    expect((await router.chat({ model: 'glm-5.3', messages })).status).toBe(200);
    expect(await get('/metrics')).toMatch(/nebo_breaker_state\{[^}]*name="glm\/glm-5.2"[^}]*\} 2/);
    expect(await get('/metrics')).toMatch(
      /nebo_inference_errors_total\{[^}]*format="chat",code="upstreams_unavailable"\} 2/,
    );
  });

  it.each([401, 402])(
    "a vendor's %s is the operator's: 502 without its words, told in /healthz",
    async (status) => {
      const model = status === 401 ? 'minimax-m3' : 'qwen3.8-max';
      const words = 'key vendor-secret-key of org-4711 has no credit left';
      router.upstream.next({ status, body: { error: { message: words } } });
      const answer = await router.chat({ model, messages });
      expect(answer.status).toBe(502);
      const text = await answer.text();
      for (const secret of ['vendor-secret-key', 'org-4711', 'credit']) expect(text).not.toContain(secret);
      expect(router.billing.available(router.identity.account_id)).toBe(plenty);
      const health = JSON.parse(await get('/healthz')) as {
        ok: boolean;
        parts: { name: string; detail?: string }[];
      };
      expect(health.ok).toBe(true);
      expect(health.parts.find(({ name }) => name === 'upstreams')!.detail).toContain(
        "refuse this installation's account",
      );
    },
  );

  it('a picture that cannot be had is 400 in its own words, free, and the vendor is not asked', async () => {
    const content = [
      { type: 'text', text: 'look' },
      { type: 'image_url', image_url: { url: 'http://127.0.0.1:1/a.png' } },
    ];
    const link = await router.chat({ model: 'kimi-k3', messages: [{ role: 'user', content }] });
    expect(link.status).toBe(400);
    expect(await link.json()).toMatchObject({
      error: { code: 'image_unavailable', message: expect.stringContaining('messages.0.content.1') },
    });
    const data = await router.chat({
      model: 'kimi-k3',
      messages: [
        { role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } }] },
      ],
    });
    expect(data.status).toBe(400);
    expect(await data.json()).toMatchObject({ error: { code: 'unsupported_image' } });
    expect(router.upstream.calls()).toBe(0);
    expect(router.billing.available(router.identity.account_id)).toBe(plenty);
  });

  it('requests are counted by model', async () => {
    router.upstream.next({ usage: { prompt_tokens: 7, completion_tokens: 3 } });
    expect((await router.chat({ model: 'deepseek-v4-pro', messages })).status).toBe(200);
    await until(
      async () =>
        /gen_ai_token_usage_total\{[^}]*model="deepseek-v4-pro",type="input"\} 7/.test(await get('/metrics')),
      'the tokens in the metrics',
    );
    expect(await get('/metrics')).toMatch(
      /nebo_inference_requests_total\{[^}]*model="deepseek-v4-pro",format="chat",outcome="complete"\} 1/,
    );
  });
});
