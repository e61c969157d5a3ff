import { Config } from '@nebo/service-kit';
import { createMetrics, Figures, startTelemetry } from '@nebo/telemetry';
import { startOtlpReceiver } from '@nebo/test-kit';
import { InferenceFigures } from './inference-figures.js';
import type { RequestRecord } from './request-record.js';

const startedAt = new Date('2026-01-01T00:00:00.000Z');
const record: RequestRecord = {
  operationId: 'op-1',
  requestId: 'req-1',
  account: 'account-1',
  key: 'key-1',
  format: 'chat',
  model: 'glm-5.3',
  upstream: 'zai',
  streamed: true,
  status: 200,
  outcome: 'complete',
  finish: 'stop',
  counters: { input: 120, cached: 64, output: 40, reasoning: 12 },
  priceVersion: 1,
  cost: 1_500_000_000n,
  forgone: 0n,
  startedAt,
  firstByteAt: new Date(startedAt.getTime() + 300),
  endedAt: new Date(startedAt.getTime() + 3_000),
};
const make = (env: Record<string, string> = {}) => {
  const registry = new Figures();
  return {
    registry,
    figures: new InferenceFigures(createMetrics('inference-router', registry), { config: new Config(env) }),
  };
};
/** Value of a metric's line, labels in the order in which they are declared. */
async function value(registry: Figures, line: string): Promise<number> {
  const found = (await registry.metrics()).split('\n').find((one) => one.startsWith(`${line} `));
  return Number(found?.slice(line.length + 1));
}
const service = 'service="inference-router"';

describe('figures of requests', () => {
  it('tokens, cost, durations and outcomes by model', async () => {
    const { registry, figures } = make();
    figures.count([
      record,
      record,
      { ...record, outcome: 'aborted', counters: null, cost: 0n, firstByteAt: null },
      { ...record, model: 'kimi-k3', format: 'messages' },
    ]);
    const tokens = (type: string) =>
      value(registry, `gen_ai_token_usage_total{${service},model="glm-5.3",type="${type}"}`);
    expect([
      await tokens('input'),
      await tokens('cached'),
      await tokens('output'),
      await tokens('reasoning'),
    ]).toEqual([240, 128, 80, 24]);
    expect(await value(registry, `nebo_inference_cost_rubles_total{${service},model="glm-5.3"}`)).toBe(3);
    const requests = (labels: string) =>
      value(registry, `nebo_inference_requests_total{${service},${labels}}`);
    expect(await requests('model="glm-5.3",format="chat",outcome="complete"')).toBe(2);
    expect(await requests('model="glm-5.3",format="chat",outcome="aborted"')).toBe(1);
    expect(await requests('model="kimi-k3",format="messages",outcome="complete"')).toBe(1);
    expect(
      await value(registry, `gen_ai_server_time_to_first_token_seconds_count{${service},model="glm-5.3"}`),
    ).toBe(2);
    expect(
      await value(registry, `gen_ai_server_time_to_first_token_seconds_sum{${service},model="glm-5.3"}`),
    ).toBeCloseTo(0.6);
    expect(
      await value(
        registry,
        `gen_ai_server_request_duration_seconds_sum{${service},model="glm-5.3",outcome="complete"}`,
      ),
    ).toBeCloseTo(6);
  });

  it('errors by format and code, of which there is an end', async () => {
    const { registry, figures } = make();
    figures.error('/v1/chat/completions', 'model_not_found');
    figures.error('/v1/messages', 'model_not_found');
    figures.error('/v1/chat/completions', 'model_not_found');
    expect(
      await value(registry, `nebo_inference_errors_total{${service},format="chat",code="model_not_found"}`),
    ).toBe(2);
    for (let index = 0; index < 200; index += 1) figures.error('/v1/responses', `code_${index}`);
    expect(
      await value(registry, `nebo_inference_errors_total{${service},format="responses",code="other"}`),
    ).toBe(101);
  });

  it('shows neither accounts nor keys nor requests in metrics', async () => {
    const { registry, figures } = make();
    figures.count([record]);
    expect(await registry.metrics()).not.toMatch(/account-1|key-1|req-1|op-1/);
  });

  it('makes a span with the attributes of the conventions, with the time of the request, and of no content', async () => {
    const receiver = await startOtlpReceiver();
    const env = { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url };
    const telemetry = await startTelemetry({ service: 'inference-router', env });
    const { figures } = make(env);
    figures.trace(record);
    figures.trace({
      ...record,
      outcome: 'broken',
      status: 502,
      counters: null,
      finish: null,
      upstream: null,
    });
    await telemetry.shutdown();
    receiver.stop();
    const [whole, broken] = receiver.spans;
    const attributes = Object.fromEntries(
      whole!.attributes.map(({ key, value: told }) => [key, Object.values(told)[0]]),
    );
    expect(whole).toMatchObject({ name: 'chat glm-5.3', kind: 3 });
    expect((whole as unknown as { startTimeUnixNano: string }).startTimeUnixNano).toBe(
      `${startedAt.getTime()}000000`,
    );
    expect(attributes).toMatchObject({
      'gen_ai.operation.name': 'chat',
      'gen_ai.provider.name': 'zai',
      'gen_ai.request.model': 'glm-5.3',
      'gen_ai.response.model': 'glm-5.3',
      'gen_ai.response.id': 'op-1',
      'gen_ai.usage.input_tokens': 120,
      'gen_ai.usage.output_tokens': 40,
      'gen_ai.usage.cache_read.input_tokens': 64,
      'gen_ai.response.finish_reasons': { values: [{ stringValue: 'stop' }] },
      'nebo.outcome': 'complete',
    });
    expect(JSON.stringify(receiver.spans)).not.toMatch(/account-1|key-1/);
    expect(broken).toMatchObject({ status: { code: 2 } });
    expect(broken!.attributes).toContainEqual({ key: 'error.type', value: { stringValue: '502' } });
  });

  it('costs nothing noteworthy per request: a few microseconds', () => {
    const { figures } = make();
    const batch = Array.from({ length: 500 }, () => record);
    let best = Infinity;
    for (let round = 0; round < 5; round += 1) {
      const before = process.hrtime.bigint();
      for (const one of batch) figures.trace(one);
      figures.count(batch);
      best = Math.min(best, Number(process.hrtime.bigint() - before) / batch.length);
    }
    process.stderr.write(`figures of a request: ${(best / 1_000).toFixed(2)} µs\n`);
    expect(best).toBeLessThan(100_000);
  });
});
