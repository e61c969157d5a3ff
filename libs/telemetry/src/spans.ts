import {
  context,
  INVALID_SPAN_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
  TraceFlags,
  type Attributes,
  type Context,
  type Span,
} from '@opentelemetry/api';
import { formatTraceparent, parseTraceparent } from './traceparent.js';

export { type Attributes, type Span } from '@opentelemetry/api';

/** Where a span hangs and what it is. */
export interface SpanOptions {
  /** `traceparent` of the caller or of an envelope; default: the active span. Malformed text is ignored. */
  parent?: string | null;
  kind?: 'internal' | 'server' | 'client' | 'producer' | 'consumer';
  /** When it began, for a span of what is over; `openSpan` only. Default: now. */
  startTime?: Date;
}

const kinds = {
  internal: SpanKind.INTERNAL,
  server: SpanKind.SERVER,
  client: SpanKind.CLIENT,
  producer: SpanKind.PRODUCER,
  consumer: SpanKind.CONSUMER,
};

/** Swallows all calls; what `fn` gets while no SDK runs. */
const noSpan = trace.wrapSpanContext(INVALID_SPAN_CONTEXT);

/**
 * Is an SDK running? Of the process like OpenTelemetry's own globals: one exporter serves all services in it. Only
 * `startTelemetry` sets it.
 */
let exporting = false;

/** Switched by `startTelemetry`. */
export function setExporting(value: boolean): void {
  exporting = value;
}

/**
 * Runs `fn` in a span of this name; it ends when `fn` returns or its promise settles, and carries what was thrown. While
 * no SDK runs it costs one comparison.
 * @param attributes shown on the span; a function is only called when a span is made. No secrets, no bodies.
 * @returns what `fn` returns; what it throws is thrown on
 */
export function withSpan<T>(
  name: string,
  attributes: Attributes | (() => Attributes),
  fn: (span: Span) => T,
  options?: SpanOptions,
): T {
  if (!exporting) return fn(noSpan);
  const parent = options?.parent === undefined ? context.active() : under(options.parent);
  const span = trace.getTracer('nebo').startSpan(
    name,
    {
      kind: kinds[options?.kind ?? 'internal'],
      attributes: typeof attributes === 'function' ? attributes() : attributes,
    },
    parent,
  );
  try {
    const result = context.with(trace.setSpan(parent, span), fn, undefined, span);
    if (!isPromise(result)) {
      span.end();
      return result;
    }
    return result.then(
      (value: unknown) => {
        span.end();
        return value;
      },
      (error: unknown) => {
        endWith(span, error);
        throw error;
      },
    ) as T;
  } catch (error) {
    endWith(span, error);
    throw error;
  }
}

/** A span that outlives a call, as a request's does; whoever opened it ends it. */
export interface OpenSpan {
  /** `traceparent` of this span, for what is called on its behalf. */
  readonly traceparent: string;
  /** Runs `fn` with this span as the active one, also in what it awaits. */
  run<T>(fn: () => T): T;
  /** Ends it once; later calls do nothing. */
  end(last?: { name?: string; attributes?: Attributes; failed?: boolean }): void;
}

/**
 * Opens a span that is ended by hand: for work that callbacks and streams finish. Only worth calling where an SDK is
 * configured; without one it makes a span that goes nowhere.
 */
export function openSpan(name: string, attributes: Attributes, options: SpanOptions = {}): OpenSpan {
  const parent = options.parent === undefined ? context.active() : under(options.parent);
  const kind = kinds[options.kind ?? 'internal'];
  const { startTime } = options;
  const span = trace
    .getTracer('nebo')
    .startSpan(name, { kind, attributes, ...(startTime ? { startTime } : {}) }, parent);
  const within = trace.setSpan(parent, span);
  let ended = false;
  return {
    traceparent: textOf(span),
    run: (fn) => context.with(within, fn),
    end(last = {}) {
      if (ended) return;
      ended = true;
      if (last.name !== undefined) span.updateName(last.name);
      if (last.attributes !== undefined) span.setAttributes(last.attributes);
      if (last.failed) span.setStatus({ code: SpanStatusCode.ERROR });
      span.end();
    },
  };
}

function textOf(span: Span): string {
  const { traceId, spanId, traceFlags } = span.spanContext();
  return formatTraceparent({ traceId, spanId, sampled: (traceFlags & TraceFlags.SAMPLED) !== 0 });
}

function isPromise(value: unknown): value is Promise<unknown> {
  return (
    value instanceof Promise || typeof (value as { then?: unknown } | null | undefined)?.then === 'function'
  );
}

function endWith(span: Span, error: unknown): void {
  const words = error instanceof Error ? error : new Error(String(error));
  span.recordException(words);
  span.setStatus({ code: SpanStatusCode.ERROR, message: words.message });
  span.end();
}

function under(parent: string | null): Context {
  const point = parseTraceparent(parent);
  const active = context.active();
  if (point === null) return active;
  const { traceId, spanId, sampled } = point;
  const traceFlags = sampled ? TraceFlags.SAMPLED : TraceFlags.NONE;
  return trace.setSpanContext(active, { traceId, spanId, traceFlags, isRemote: true });
}

/** `traceparent` of the active span; `otherwise` (what came in) when there is none, so that a trace is passed on. */
export function activeTraceparent(otherwise: string | null = null): string | null {
  const span = exporting ? trace.getActiveSpan() : undefined;
  if (span !== undefined) return textOf(span);
  return parseTraceparent(otherwise) === null ? null : otherwise;
}
