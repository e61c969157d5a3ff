import { context, trace } from '@opentelemetry/api';
import { startOtlpReceiver as startReceiver } from '@nebo/test-kit';
import { activeTraceparent, openSpan, withSpan } from './spans.js';
import { isConfigured, startTelemetry } from './start.js';
import { parseTraceparent } from './traceparent.js';

const incoming = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';

describe('without an exporter', () => {
  it('runs fn as it is and starts nothing', async () => {
    const telemetry = await startTelemetry({ service: 'x', env: {} });
    expect(telemetry.exporting).toBe(false);
    expect(withSpan('a', {}, (span) => (span.isRecording() ? 'recording' : 'plain'))).toBe('plain');
    expect(await withSpan('a', {}, async () => 7)).toBe(7);
    expect(() =>
      withSpan('a', {}, () => {
        throw new Error('boom');
      }),
    ).toThrow('boom');
    await expect(withSpan('a', {}, () => Promise.reject(new Error('late')))).rejects.toThrow('late');
    const unused = () => {
      throw new Error('attributes were made for nothing');
    };
    expect(withSpan('a', unused, () => 1)).toBe(1);
    await telemetry.shutdown();
  });

  it('passes a trace on, and nothing malformed', () => {
    expect(activeTraceparent(incoming)).toBe(incoming);
    expect(activeTraceparent('junk')).toBeNull();
    expect(activeTraceparent()).toBeNull();
  });

  it('costs nothing noteworthy: under a microsecond a span', () => {
    const work = (n: number) => n + 1;
    let sum = 0;
    const time = (body: () => void) => {
      let best = Infinity;
      for (let round = 0; round < 7; round += 1) {
        const before = process.hrtime.bigint();
        for (let i = 0; i < 100_000; i += 1) body();
        best = Math.min(best, Number(process.hrtime.bigint() - before) / 100_000);
      }
      return best;
    };
    const plain = time(() => {
      sum = work(sum);
    });
    const spanned = time(() => {
      sum = withSpan('hot', { a: 1 }, () => work(sum));
    });
    process.stderr.write(
      `withSpan without SDK: ${(spanned - plain).toFixed(1)} ns a call over ${plain.toFixed(1)} ns\n`,
    );
    expect(spanned - plain).toBeLessThan(1_000);
    expect(sum).toBe(1_400_000);
  });

  it.each([
    [{}, false],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://x' }, true],
    [{ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://x' }, true],
    [{ OTEL_TRACES_EXPORTER: 'console' }, true],
    [{ OTEL_TRACES_EXPORTER: 'none' }, false],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: '' }, false],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://x', OTEL_TRACES_EXPORTER: 'none' }, false],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://x', OTEL_SDK_DISABLED: 'true' }, false],
  ])('%j: configured is %s', (env, expected) => {
    expect(isConfigured(env)).toBe(expected);
  });
});

describe('with an OTLP receiver', () => {
  it('exports spans with parents, attributes, errors and the remote parent', async () => {
    const receiver = await startReceiver();
    const telemetry = await startTelemetry({
      service: 'compute',
      env: { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url },
    });
    expect(telemetry.exporting).toBe(true);
    let outside: string | null = null;
    await withSpan(
      'request',
      () => ({ 'nebo.account': 'a1', rows: 3 }),
      async (span) => {
        outside = activeTraceparent();
        expect(span.isRecording()).toBe(true);
        await new Promise((resolve) => setTimeout(resolve, 5));
        await withSpan('query', {}, async () => undefined, { kind: 'client' });
        await expect(withSpan('broken', {}, () => Promise.reject(new Error('no such row')))).rejects.toThrow(
          'no such row',
        );
        expect(() =>
          withSpan('thrown', {}, () => {
            throw new Error('at once');
          }),
        ).toThrow('at once');
      },
      { parent: incoming, kind: 'server' },
    );
    withSpan('alone', {}, () => 1, { parent: 'malformed' });
    await telemetry.shutdown();

    expect(receiver.paths[0]).toBe('/v1/traces');
    expect(receiver.services[0]).toBe('compute');
    const find = (name: string) => receiver.spans.find((span) => span.name === name)!;
    const request = find('request');
    expect(request).toMatchObject({
      traceId: '0af7651916cd43dd8448eb211c80319c',
      parentSpanId: 'b7ad6b7169203331',
      kind: 2,
    });
    expect(request.attributes).toEqual(
      expect.arrayContaining([{ key: 'nebo.account', value: { stringValue: 'a1' } }]),
    );
    expect(parseTraceparent(outside)).toEqual({
      traceId: request.traceId,
      spanId: request.spanId,
      sampled: true,
    });
    expect(find('query')).toMatchObject({ traceId: request.traceId, parentSpanId: request.spanId, kind: 3 });
    expect(find('broken')).toMatchObject({
      parentSpanId: request.spanId,
      status: { code: 2, message: 'no such row' },
    });
    expect(find('broken').events[0]!.name).toBe('exception');
    expect(find('thrown').status.code).toBe(2);
    expect(find('alone').traceId).not.toBe(request.traceId);
    receiver.stop();
  });

  it('keeps an open span over callbacks until its end, which is told once', async () => {
    const receiver = await startReceiver();
    const telemetry = await startTelemetry({
      service: 'x',
      env: { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url },
    });
    const span = openSpan('request', { a: 1 }, { parent: incoming, kind: 'server' });
    await span.run(async () => {
      await new Promise((resolve) => setTimeout(resolve, 5));
      expect(activeTraceparent()).toBe(span.traceparent);
      withSpan('inside', {}, () => undefined);
    });
    expect(activeTraceparent()).toBeNull();
    span.end({ name: 'GET /x', attributes: { b: 2 }, failed: true });
    span.end({ name: 'again' });
    await telemetry.shutdown();
    const [inside, request] = receiver.spans;
    expect(request).toMatchObject({
      name: 'GET /x',
      traceId: '0af7651916cd43dd8448eb211c80319c',
      parentSpanId: 'b7ad6b7169203331',
      status: { code: 2 },
    });
    expect(inside).toMatchObject({ name: 'inside', parentSpanId: request!.spanId });
    expect(receiver.spans).toHaveLength(2);
    receiver.stop();
  });

  it('is one SDK for all services of a process; the last one stops it, and it can start again', async () => {
    const receiver = await startReceiver();
    const env = { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `${receiver.url}/custom` };
    const [one, two] = await Promise.all([
      startTelemetry({ service: 'nebo', env }),
      startTelemetry({ service: 'other', env }),
    ]);
    await one.shutdown();
    await one.shutdown();
    withSpan('after the first', {}, () => undefined);
    await two.shutdown();
    expect(receiver.spans.map((span) => span.name)).toEqual(['after the first']);
    expect(receiver.paths).toEqual(['/custom']);
    expect(withSpan('off', {}, (span) => span.isRecording())).toBe(false);
    const again = await startTelemetry({ service: 'nebo', env });
    withSpan('again', {}, () => undefined);
    await again.shutdown();
    expect(receiver.spans.map((span) => span.name)).toEqual(['after the first', 'again']);
    expect(trace.getActiveSpan()).toBeUndefined();
    expect(context.active()).toBeDefined();
    receiver.stop();
  });

  it('follows the sampling of the caller', async () => {
    const receiver = await startReceiver();
    const telemetry = await startTelemetry({
      service: 'x',
      env: { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url },
    });
    withSpan('unsampled', {}, () => expect(activeTraceparent()).toMatch(/-00$/), {
      parent: incoming.replace(/01$/, '00'),
    });
    await telemetry.shutdown();
    expect(receiver.spans).toEqual([]);
    receiver.stop();
  });

  it('does not fail or hang a service when the collector is away', async () => {
    const telemetry = await startTelemetry({
      service: 'x',
      env: { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1' },
    });
    expect(withSpan('lost', {}, () => 5)).toBe(5);
    const before = Date.now();
    await telemetry.shutdown();
    expect(Date.now() - before).toBeLessThan(6_500);
  });
});
