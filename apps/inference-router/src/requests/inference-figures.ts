import { Inject, Injectable } from '@nestjs/common';
import { METRICS, RUNTIME, type Runtime } from '@nebo/service-kit';
import { type Attributes, isConfigured, type Metrics, openSpan } from '@nebo/telemetry';
import type { Counters } from '../dialects/dialect.js';
import type { RequestRecord } from './request-record.js';

/** Seconds; answers of agents take minutes. */
const durations = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640];
const firstTokens = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 60];
/** Codes are ours and few; should that ever fail, the rest is one. */
const mostCodes = 100;

/**
 * Requests as seen from outside: metrics by model, and a span for each where an exporter is configured. Names follow
 * OpenTelemetry's conventions for generative AI where there is one. Models are the catalogue's names, so labels stay
 * bounded; content is in neither.
 */
@Injectable()
export class InferenceFigures {
  private readonly isTracing: boolean;
  private readonly codes = new Set<string>();
  private readonly duration: ReturnType<typeof this.metrics.histogram<'model' | 'outcome'>>;
  private readonly firstToken: ReturnType<typeof this.metrics.histogram<'model'>>;
  private readonly tokens: ReturnType<typeof this.metrics.counter<'model' | 'type'>>;
  private readonly cost: ReturnType<typeof this.metrics.counter<'model'>>;
  private readonly requests: ReturnType<typeof this.metrics.counter<'model' | 'format' | 'outcome'>>;
  private readonly errors: ReturnType<typeof this.metrics.counter<'format' | 'code'>>;

  constructor(
    @Inject(METRICS) private readonly metrics: Pick<Metrics, 'counter' | 'histogram'>,
    @Inject(RUNTIME) runtime: Pick<Runtime, 'config'>,
  ) {
    this.isTracing = isConfigured(runtime.config.env);
    this.duration = metrics.histogram(
      'gen_ai_server_request_duration_seconds',
      'Admitted requests from their arrival to the end of the answer',
      ['model', 'outcome'],
      durations,
    );
    this.firstToken = metrics.histogram(
      'gen_ai_server_time_to_first_token_seconds',
      "Admitted requests from their arrival to the upstream's first event",
      ['model'],
      firstTokens,
    );
    this.tokens = metrics.counter(
      'gen_ai_token_usage_total',
      'Counted tokens: input (of it cached), output (of it reasoning)',
      ['model', 'type'],
    );
    this.cost = metrics.counter(
      'nebo_inference_cost_rubles_total',
      'What requests cost; rounded, for a graph only',
      ['model'],
    );
    this.requests = metrics.counter(
      'nebo_inference_requests_total',
      'Admitted requests by how they ended: complete, uncounted, aborted, drained, broken, failed, stopped',
      ['model', 'format', 'outcome'],
    );
    this.errors = metrics.counter(
      'nebo_inference_errors_total',
      'Requests that were answered with an error, by its code',
      ['format', 'code'],
    );
  }

  /**
   * A request was refused or failed.
   * @param path of its format; the word after `/v1/` is the label
   * @param code what its client was told
   */
  error(path: string, code: string): void {
    const format = path.split('/')[2] ?? '';
    if (!this.codes.has(code) && this.codes.size >= mostCodes) code = 'other';
    this.codes.add(code);
    this.errors({ format, code });
  }

  /** Makes the span of a request that is over; to be called in its own context. Costs a comparison without exporter. */
  trace(record: RequestRecord): void {
    if (!this.isTracing) return;
    const { outcome, status } = record;
    const failed = outcome === 'failed' || outcome === 'broken';
    openSpan(`chat ${record.model}`, attributesOf(record), {
      kind: 'client',
      startTime: record.startedAt,
    }).end({ failed, ...(failed ? { attributes: { 'error.type': String(status) } } : {}) });
  }

  /** Counts requests that are over; those of one batch that end alike in one go. */
  count(records: readonly RequestRecord[]): void {
    const sums = new Map<string, Sum>();
    for (const record of records) {
      const { model, format, outcome, counters, startedAt, firstByteAt, endedAt } = record;
      this.duration(secondsBetween(startedAt, endedAt), { model, outcome });
      if (firstByteAt) this.firstToken(secondsBetween(startedAt, firstByteAt), { model });
      const key = `${model} ${format} ${outcome}`;
      let sum = sums.get(key);
      if (!sum) {
        sum = { model, format, outcome, requests: 0, cost: 0, input: 0, cached: 0, output: 0, reasoning: 0 };
        sums.set(key, sum);
      }
      sum.requests += 1;
      sum.cost += Number(record.cost);
      if (counters) for (const type of tokenTypes) sum[type] += counters[type];
    }
    for (const sum of sums.values()) this.tell(sum);
  }

  private tell({ model, format, outcome, requests, cost, ...tokens }: Sum): void {
    this.requests({ model, format, outcome }, requests);
    if (cost > 0) this.cost({ model }, cost / 1e9);
    for (const type of tokenTypes) if (tokens[type] > 0) this.tokens({ model, type }, tokens[type]);
  }
}

const tokenTypes = ['input', 'cached', 'output', 'reasoning'] as const;

/** Requests of one batch that ended alike. */
interface Sum extends Pick<RequestRecord, 'model' | 'format' | 'outcome'>, Counters {
  requests: number;
  /** 10⁻⁹ rubles. */
  cost: number;
}

const secondsBetween = (from: Date, to: Date): number => Math.max(0, to.getTime() - from.getTime()) / 1_000;

/** https://opentelemetry.io/docs/specs/semconv/gen-ai/ */
function attributesOf(record: RequestRecord): Attributes {
  const { model, upstream, finish, counters, firstByteAt, startedAt } = record;
  return {
    'gen_ai.operation.name': 'chat',
    'gen_ai.request.model': model,
    'gen_ai.response.model': model,
    'gen_ai.response.id': record.operationId,
    'gen_ai.output.type': 'text',
    ...(upstream === null ? {} : { 'gen_ai.provider.name': upstream, 'gen_ai.system': upstream }),
    ...(finish === null ? {} : { 'gen_ai.response.finish_reasons': [finish] }),
    ...(counters
      ? {
          'gen_ai.usage.input_tokens': counters.input,
          'gen_ai.usage.cache_read.input_tokens': counters.cached,
          'gen_ai.usage.output_tokens': counters.output,
          'gen_ai.usage.reasoning.output_tokens': counters.reasoning,
        }
      : {}),
    ...(firstByteAt ? { 'gen_ai.server.time_to_first_token': secondsBetween(startedAt, firstByteAt) } : {}),
    'nebo.format': record.format,
    'nebo.streamed': record.streamed,
    'nebo.outcome': record.outcome,
    'nebo.request_id': record.requestId,
    'nebo.cost': record.cost.toString(),
  };
}
