import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { formatRubles, parseRubles } from '@nebo/contracts';
import { startUpstreamModel, type UpstreamModel } from '@nebo/test-kit';
import { Api, ContractCheck, readContract } from '../harness/api.js';
import { forms, inferenceFile, type Installation } from '../harness/forms.js';
import { until } from '../harness/nebo.js';

const hi = [{ role: 'user' as const, content: 'hi' }];
const usage = {
  prompt_tokens: 1_000,
  completion_tokens: 500,
  prompt_tokens_details: { cached_tokens: 400 },
};
/** 600 fresh, 400 cached, 500 out, in rubles per million. */
const costAt = (input: bigint, cached: bigint, output: bigint) =>
  (600n * input + 400n * cached + 500n * output) * 1_000n;
const cost = costAt(60n, 12n, 240n);

describe.each(forms)('inference $form', ({ form, missing, start }) => {
  const test = missing ? it.skip : it;
  let upstream: UpstreamModel;
  let file: ReturnType<typeof inferenceFile>;
  let nebo: Installation;
  let api: Api;
  beforeAll(async () => {
    if (missing) return;
    upstream = await startUpstreamModel();
    file = inferenceFile(`
providers:
  vendor: { base_url: "${upstream.url}", dialect: openai, api_key_env: VENDOR_KEY }
models:
  glm-5.3:
    upstreams: [{ provider: vendor, model: vendor-glm }]
    price: { input: "60.00", cache_read: "12.00", output: "240.00" }
`);
    nebo = await start({ NEBO_INFERENCE_CONFIG: file.path, VENDOR_KEY: 'the-vendors-key' });
    api = new Api(nebo.baseUrl, nebo.key, new ContractCheck(readContract('v1')));
  }, 180_000);
  beforeEach(() => {
    upstream?.reset();
    upstream?.script(() => ({ chunks: ['Hel', 'lo'], usage }));
  });
  afterAll(async () => {
    await nebo?.stop();
    await upstream?.stop();
    file?.remove();
  });

  const openai = (key = nebo.inferenceKey) =>
    new OpenAI({ baseURL: `${nebo.aiUrl}/v1`, apiKey: key, maxRetries: 0 });
  const anthropic = (key = nebo.inferenceKey) =>
    new Anthropic({ baseURL: nebo.aiUrl, apiKey: key, maxRetries: 0 });
  const chat = (key?: string, more: object = {}) =>
    openai(key).chat.completions.create({ model: 'glm-5.3', max_tokens: 600, messages: hi, ...more });
  const balance = async (of = api) => parseRubles((await of.get('/account/balance')).body.balance as string);
  /** What `work` costs, once it shows in the balance. */
  const paid = async (work: () => Promise<unknown>, expected: bigint) => {
    const before = await balance();
    await work();
    await until(async () => before - (await balance()) === expected, 5_000).catch(() => undefined);
    return before - (await balance());
  };
  /** Sets a price and waits until the router sells at it. */
  const setOutputPrice = async (amount: string) => {
    await nebo.admin('price', 'set', '--id', 'model.glm-5.3.output', '--amount', amount);
    await until(async () =>
      (await nebo.admin('model', 'list')).data.some(
        ({ id, prices }: { id: string; prices: { output: string } }) =>
          id === 'glm-5.3' && prices.output === amount,
      ),
    );
  };

  test('each format answers its official client, plain and streamed, at one price', async () => {
    const works: (() => Promise<unknown>)[] = [
      async () => expect((await chat()).choices[0]!.message.content).toBe('Hello'),
      async () => {
        let text = '';
        const chunks = await openai().chat.completions.create({
          model: 'glm-5.3',
          max_tokens: 600,
          messages: hi,
          stream: true,
        });
        for await (const chunk of chunks) text += chunk.choices[0]?.delta.content ?? '';
        expect(text).toBe('Hello');
      },
      async () => {
        const answer = await anthropic().messages.create({ model: 'glm-5.3', max_tokens: 600, messages: hi });
        expect(answer.content.at(-1)).toMatchObject({ type: 'text', text: 'Hello' });
        expect(answer.usage).toMatchObject({
          input_tokens: 600,
          cache_read_input_tokens: 400,
          output_tokens: 500,
        });
      },
      async () => {
        const stream = anthropic().messages.stream({ model: 'glm-5.3', max_tokens: 600, messages: hi });
        expect(await stream.finalText()).toBe('Hello');
      },
      async () => {
        const answer = await openai().responses.create({ model: 'glm-5.3', input: 'hi', store: false });
        expect(answer).toMatchObject({ status: 'completed', output_text: 'Hello', store: false });
      },
      async () => {
        const stream = openai().responses.stream({ model: 'glm-5.3', input: 'hi', store: false });
        expect((await stream.finalResponse()).output_text).toBe('Hello');
      },
    ];
    for (const work of works) expect(await paid(work, cost)).toBe(cost);
    expect(
      upstream.requests.every(({ headers }) => headers['authorization'] === 'Bearer the-vendors-key'),
    ).toBe(true);
    const { input_tokens: counted } = await anthropic().messages.countTokens({
      model: 'glm-5.3',
      messages: hi,
    });
    expect(counted).toBeGreaterThan(0);
  });

  test('usage, ledger and balance tell the same sum', async () => {
    expect(await paid(() => chat(), cost)).toBe(cost);
    const today = new Date().toISOString().slice(0, 10);
    await until(async () => {
      const used = (await api.get(`/usage?from=${today}&to=${today}&by=model`)).body;
      const { body: ledger } = await api.get('/account/ledger?limit=200');
      const charged = (ledger.data as Record<string, string>[])
        .filter(({ kind }) => kind === 'charge' || kind === 'capture')
        .reduce((sum, line) => sum - parseRubles(line['amount']!), 0n);
      return charged > 0n && parseRubles(used.totals.amount as string) === charged;
    }, 10_000);
  });

  test('a price that is set counts for the next request; what runs keeps its own', async () => {
    upstream.next({ chunks: ['a', 'b', 'c', 'd'], chunkDelay: 700, usage });
    const before = await balance();
    const running = await openai().chat.completions.create({
      model: 'glm-5.3',
      max_tokens: 600,
      messages: hi,
      stream: true,
    });
    await setOutputPrice('480.00');
    for await (const _ of running);
    await until(async () => before - (await balance()) === cost);
    const dearer = costAt(60n, 12n, 480n);
    expect(await paid(() => chat(), dearer)).toBe(dearer);
    await setOutputPrice('240.00');
  });

  test('a withdrawn model is 404 and off the list until it is offered again', async () => {
    await nebo.admin('model', 'withdraw', '--model', 'glm-5.3');
    await expect(chat()).rejects.toMatchObject({ status: 404, code: 'model_not_found' });
    expect((await openai().models.list()).data.map(({ id }) => id)).not.toContain('glm-5.3');
    await nebo.admin('model', 'offer', '--model', 'glm-5.3');
    expect((await chat()).choices[0]!.message.content).toBe('Hello');
  });

  test('402 tells money, top-up and key limit apart, and names what would be covered', async () => {
    const poor = await nebo.admin('account', 'create', '--name', `poor ${form}`, '--credits', '500');
    const { key } = await nebo.admin('inference-key', 'create', '--account', poor.account_id);
    await expect(chat(key)).rejects.toMatchObject({
      status: 402,
      code: 'topup_required',
      type: 'billing_error',
    });
    await nebo.admin('account', 'topup', '--account', poor.account_id, '--amount', '20');
    expect((await chat(key)).choices[0]!.message.content).toBe('Hello');
    // About 31 rubles at worst.
    await expect(chat(key, { max_tokens: 131_072 })).rejects.toMatchObject({
      status: 402,
      code: 'insufficient_balance',
      message: expect.stringContaining('max_tokens'),
    });
    const limited = await nebo.admin(
      'inference-key',
      'create',
      '--account',
      poor.account_id,
      '--monthly-limit',
      '1',
    );
    // About 2.4 rubles: the balance covers it, the key's limit does not.
    await expect(chat(limited.key, { max_tokens: 10_000 })).rejects.toMatchObject({
      status: 402,
      code: 'key_limit_reached',
      message: expect.stringContaining('max_tokens'),
    });
    expect((await chat(limited.key)).choices[0]!.message.content).toBe('Hello');
    expect(upstream.calls()).toBe(2);
  });

  test('parallel requests with money for some of them: never more than that, nothing held afterwards', async () => {
    const small = await nebo.admin('account', 'create', '--name', `small ${form}`, '--topup', '100');
    const { key } = await nebo.admin('inference-key', 'create', '--account', small.account_id);
    const { key: control } = await nebo.admin('key', 'create', '--account', small.account_id);
    const money = new Api(nebo.baseUrl, control, api.check);
    // A hold of nearly 30 rubles: money for three at once. The charge is a fraction of it.
    const asked = await Promise.allSettled(
      Array.from({ length: 20 }, () => chat(key, { max_tokens: 120_000 })),
    );
    const done = asked.filter(({ status }) => status === 'fulfilled').length;
    const refused = asked.flatMap((one) =>
      one.status === 'rejected' ? [one.reason as { status: number }] : [],
    );
    expect(done).toBeGreaterThanOrEqual(3);
    expect(refused.every(({ status }) => status === 402)).toBe(true);
    expect(upstream.calls()).toBe(done);
    const rest = formatRubles(100_000_000_000n - cost * BigInt(done));
    await until(async () => {
      const { body } = await money.get('/account/balance');
      return body.balance === rest && body.available === rest;
    }, 60_000);
  });

  test('a client that leaves ends the upstream request in every format', async () => {
    const leaves: ((signal: AbortSignal) => Promise<unknown>)[] = [
      (signal) => openai().chat.completions.create({ model: 'glm-5.3', messages: hi }, { signal }),
      (signal) => anthropic().messages.create({ model: 'glm-5.3', max_tokens: 9, messages: hi }, { signal }),
      (signal) => openai().responses.create({ model: 'glm-5.3', input: 'hi' }, { signal }),
    ];
    for (const leave of leaves) {
      upstream.next({ hang: true });
      const calls = upstream.calls();
      const gone = new AbortController();
      const asked = leave(gone.signal).catch(() => 'left');
      await until(() => upstream.calls() > calls);
      gone.abort();
      expect(await asked).toBe('left');
      await until(() => upstream.requests.at(-1)!.aborted, 10_000);
    }
  });
});
