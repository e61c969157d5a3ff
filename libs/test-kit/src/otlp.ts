import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A span as OTLP sends it in JSON. */
export interface ExportedSpan {
  name: string;
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  /** 1 internal, 2 server, 3 client, 4 producer, 5 consumer. */
  kind: number;
  status: { code?: number; message?: string };
  attributes: { key: string; value: Record<string, unknown> }[];
  events: { name: string }[];
}

/** A collector of traces in this process. */
export interface OtlpReceiver {
  /** For OTEL_EXPORTER_OTLP_ENDPOINT. */
  url: string;
  /** All that it was sent, in order. */
  spans: ExportedSpan[];
  /** `service.name` of each resource that it was sent. */
  services: unknown[];
  paths: string[];
  stop(): void;
}

/** Starts an OTLP/HTTP receiver that keeps what it is sent. @param status what it answers */
export async function startOtlpReceiver(status = 200): Promise<OtlpReceiver> {
  const spans: ExportedSpan[] = [];
  const services: unknown[] = [];
  const paths: string[] = [];
  const server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      paths.push(request.url!);
      const body = JSON.parse(Buffer.concat(parts).toString()) as {
        resourceSpans: {
          resource: { attributes: { key: string; value: { stringValue?: string } }[] };
          scopeSpans: { spans: ExportedSpan[] }[];
        }[];
      };
      for (const { resource, scopeSpans } of body.resourceSpans) {
        services.push(resource.attributes.find(({ key }) => key === 'service.name')?.value.stringValue);
        for (const scope of scopeSpans) spans.push(...scope.spans);
      }
      response.writeHead(status, { 'content-type': 'application/json' }).end('{}');
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const stop = () => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${port}`, spans, services, paths, stop };
}
