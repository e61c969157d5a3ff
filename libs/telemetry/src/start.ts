import { setExporting } from './spans.js';

/** What to start. */
export interface TelemetryOptions {
  /** `service.name` of the spans; OTEL_SERVICE_NAME wins. */
  service: string;
  version?: string;
  /** Default process.env. */
  env?: Readonly<Record<string, string | undefined>>;
  /** Told what the exporter complains about; telemetry never fails a service. */
  onError?: (error: Error) => void;
}

/** Telemetry of this process. */
export interface Telemetry {
  /** Does an SDK run? */
  readonly exporting: boolean;
  /** Sends what is waiting (at most 5 s) and stops. */
  shutdown(): Promise<void>;
}

/**
 * One SDK serves the process, as OpenTelemetry's registration is global anyway: the all-in-one starts it once per service
 * and the last one stops it.
 */
let running: { users: number; sdk: Promise<{ shutdown(): Promise<void> }> } | undefined;

/** Is an exporter of traces configured? */
export function isConfigured(env: Readonly<Record<string, string | undefined>>): boolean {
  if (env['OTEL_SDK_DISABLED']?.toLowerCase() === 'true' || env['OTEL_TRACES_EXPORTER'] === 'none')
    return false;
  return ['OTEL_EXPORTER_OTLP_ENDPOINT', 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'OTEL_TRACES_EXPORTER'].some(
    (name) => env[name],
  );
}

/**
 * Starts the OpenTelemetry SDK when an exporter is configured (OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_TRACES_EXPORTER), else
 * loads nothing. No automatic instrumentation: it costs 290 µs of CPU a request (shared/facts/stack.md, section 0), so spans
 * are made by hand with `withSpan`. Sampling as OTEL_TRACES_SAMPLER says.
 */
export async function startTelemetry(options: TelemetryOptions): Promise<Telemetry> {
  const env = options.env ?? process.env;
  if (!isConfigured(env)) return { exporting: false, shutdown: async () => undefined };
  const mine = (running ??= { users: 0, sdk: startSdk(options, env) });
  mine.users += 1;
  try {
    await mine.sdk;
  } catch (error) {
    if (running === mine) running = undefined;
    options.onError?.(error as Error);
    return { exporting: false, shutdown: async () => undefined };
  }
  let stopped = false;
  return {
    exporting: true,
    async shutdown() {
      if (stopped) return;
      stopped = true;
      mine.users -= 1;
      if (mine.users > 0) return;
      running = undefined;
      setExporting(false);
      const sdk = await mine.sdk;
      let timer: NodeJS.Timeout | undefined;
      // A collector that hangs must not hold up the ten seconds in which everything stops.
      const patience = new Promise<void>((resolve) => (timer = setTimeout(resolve, 5_000)));
      await Promise.race([sdk.shutdown().catch((error: Error) => options.onError?.(error)), patience]);
      clearTimeout(timer);
      const { context, propagation, trace } = await import('@opentelemetry/api');
      trace.disable();
      context.disable();
      propagation.disable();
    },
  };
}

async function startSdk(options: TelemetryOptions, env: Readonly<Record<string, string | undefined>>) {
  const { NodeSDK } = await import('@opentelemetry/sdk-node');
  // Other exporters and protocols are the SDK's own to choose from the environment; JSON over HTTP is our default.
  const chosen =
    (env['OTEL_TRACES_EXPORTER'] || 'otlp') !== 'otlp' ||
    env['OTEL_EXPORTER_OTLP_PROTOCOL'] ||
    env['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL'];
  const traceExporter = chosen ? undefined : await otlp(env);
  const sdk = new NodeSDK({
    serviceName: env['OTEL_SERVICE_NAME'] || options.service,
    instrumentations: [],
    // Metrics are scraped from /metrics and logs go to stdout: no second way out for either.
    metricReaders: [],
    logRecordProcessors: [],
    autoDetectResources: false,
    ...(traceExporter ? { traceExporter } : {}),
  });
  sdk.start();
  setExporting(true);
  return sdk;
}

async function otlp(env: Readonly<Record<string, string | undefined>>) {
  const { OTLPTraceExporter } = await import('@opentelemetry/exporter-trace-otlp-http');
  const own = env['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT'];
  const base = env['OTEL_EXPORTER_OTLP_ENDPOINT'];
  const url = own || (base ? `${base.replace(/\/$/, '')}/v1/traces` : undefined);
  // Retries included: shorter than shutdown's patience, so that no retry outlives it.
  const timeoutMillis = Number(
    env['OTEL_EXPORTER_OTLP_TRACES_TIMEOUT'] || env['OTEL_EXPORTER_OTLP_TIMEOUT'] || 3_000,
  );
  return new OTLPTraceExporter({ timeoutMillis, ...(url === undefined ? {} : { url }) });
}
