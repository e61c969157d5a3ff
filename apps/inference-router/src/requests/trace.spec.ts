import { startTelemetry, type Telemetry } from '@nebo/telemetry';
import { type OtlpReceiver, sharedPostgres, startOtlpReceiver } from '@nebo/test-kit';
import { type Router, startRouter, until } from '../../test/harness.js';

describe('a request with an exporter of traces', () => {
  let receiver: OtlpReceiver;
  let telemetry: Telemetry;
  let router: Router;
  beforeAll(async () => {
    receiver = await startOtlpReceiver();
    const env = { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url };
    telemetry = await startTelemetry({ service: 'inference-router', env });
    router = await startRouter({ env });
  });
  afterAll(async () => {
    await router?.stop();
    await telemetry?.shutdown();
    receiver?.stop();
    await (await sharedPostgres()).stop();
  });

  it.each([true, false])(
    'has one span of the model under that of the request, streamed %s',
    async (stream) => {
      router.upstream.next({
        chunks: ['a', 'secret answer'],
        usage: { prompt_tokens: 12, completion_tokens: 4 },
      });
      const answer = await router.chat(
        { model: 'glm-5.3', messages: [{ role: 'user', content: 'secret question' }], stream },
        { headers: { traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' } },
      );
      await answer.text();
      const id = answer.headers.get('x-nebo-ledger-id')!;
      const idOf = (span: OtlpReceiver['spans'][number]) =>
        span.attributes.find(({ key }) => key === 'gen_ai.response.id')?.value['stringValue'];
      const span = await until(() => receiver.spans.find((one) => idOf(one) === id), 'the span', 15_000);
      expect(span).toMatchObject({ name: 'chat glm-5.3', traceId: '0af7651916cd43dd8448eb211c80319c' });
      const parent = await until(
        () => receiver.spans.find(({ spanId }) => spanId === span.parentSpanId),
        "the request's span",
        15_000,
      );
      expect(parent.name).toBe('POST /v1/chat/completions');
      expect(JSON.stringify(receiver.spans)).not.toContain('secret');
      // Vendors learn nothing of our traces.
      expect(router.upstream.requests.at(-1)!.headers['traceparent']).toBeUndefined();
    },
  );
});
