import { randomUUID } from 'node:crypto';
import { networkInterfaces } from 'node:os';
import { createMetrics, parseTraceparent, startTelemetry } from '@nebo/telemetry';
import { startOtlpReceiver } from '@nebo/test-kit';
import { FakeInstallation, send } from '../../test/fake-installation.js';

const given = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
/** An address of this machine that is not loopback. */
const outside = Object.values(networkInterfaces())
  .flat()
  .find((address) => address?.family === 'IPv4' && !address.internal)?.address;
const identity = {
  kind: 'key' as const,
  account_id: randomUUID(),
  key_id: randomUUID(),
  policy: [{ effect: 'allow' as const, actions: ['*'], resources: ['*'] }],
  project_ids: null,
  role: 'owner' as const,
};

describe('traces at the gateway', () => {
  it('without an exporter a client’s traceparent goes through as it came, and none is made', async () => {
    const nebo = await new FakeInstallation().start();
    const headers = { authorization: `Bearer ${nebo.addKey(identity)}` };
    await send(`${nebo.api}/v1/account`, { headers: { ...headers, traceparent: given } });
    await send(`${nebo.api}/v1/account`, { headers });
    expect(nebo.seen.map((seen) => seen.headers['traceparent'])).toEqual([given, undefined]);
    await nebo.stop();
  });

  it('with one each request has a span named by its operation, which the services see as their parent', async () => {
    const receiver = await startOtlpReceiver();
    const env = { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url };
    const telemetry = await startTelemetry({ service: 'api-gateway', env });
    const nebo = await new FakeInstallation().start(env);
    const headers = { authorization: `Bearer ${nebo.addKey(identity)}` };
    await send(`${nebo.api}/v1/account`, { headers: { ...headers, traceparent: given } });
    await send(`${nebo.api}/v1/account`, { headers });
    await send(`${nebo.api}/v1/account`);
    await send(`${nebo.api}/v1/nothing-of-the-kind`, { headers });
    await send(`${nebo.api}/healthz`);
    await nebo.stop();
    await telemetry.shutdown();
    receiver.stop();

    const doors = receiver.spans.filter((span) => span.kind === 2);
    const status = (span: (typeof doors)[number]) =>
      span.attributes.find(({ key }) => key === 'http.response.status_code')?.value['intValue'];
    const operation = 'control whoami';
    expect(doors.map((span) => [span.name, status(span)])).toEqual([
      [operation, 200],
      [operation, 200],
      [operation, 401],
      ['control GET', 404],
    ]);
    expect(doors[0]).toMatchObject({
      traceId: '0af7651916cd43dd8448eb211c80319c',
      parentSpanId: 'b7ad6b7169203331',
    });
    expect(doors[1]!.traceId).not.toBe(doors[0]!.traceId);
    for (const [index, seen] of nebo.seen.entries()) {
      const { traceId, spanId } = doors[index]!;
      expect(parseTraceparent(seen.headers['traceparent'])).toMatchObject({ traceId, spanId });
    }
    // The lookup of the key is a call to a service and hangs below the request that needed it.
    const lookup = receiver.spans.find((span) => span.name === 'call identity-billing')!;
    expect(lookup.parentSpanId).toBe(doors[0]!.spanId);
  });

  it('/metrics shows the figures of all services of the process beside the doors’', async () => {
    const nebo = await new FakeInstallation().start();
    createMetrics('compute', nebo.runtime.figures).requests('GET', 'list_vms')(200, 0.01);
    const { status, text } = await send(`${nebo.api}/metrics`);
    expect(status).toBe(200);
    expect(text).toContain('# TYPE nebo_gateway_requests_total counter');
    expect(text).toContain(
      'nebo_http_requests_total{service="compute",method="GET",operation="list_vms",status="200"} 1',
    );
    await nebo.stop();
  });

  (outside ? it : it.skip)('404 /metrics from elsewhere (skipped without a network address)', async () => {
    const nebo = await new FakeInstallation().start({ NEBO_BIND: '0.0.0.0' });
    const { port } = new URL(nebo.api);
    expect((await send(`${nebo.api}/metrics`)).status).toBe(200);
    const answer = await send(`http://${outside}:${port}/metrics`, {
      headers: { 'x-forwarded-for': '127.0.0.1', host: '127.0.0.1' },
    });
    expect(answer).toMatchObject({ status: 404, body: { error: { code: 'unknown_operation' } } });
    await nebo.stop();
  });
});
