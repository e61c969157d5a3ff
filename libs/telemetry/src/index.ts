export {
  breakerStates,
  collectProcessMetrics,
  Counter,
  createMetrics,
  Gauge,
  Histogram,
  Registry,
  type Metrics,
} from './metrics.js';
export { activeTraceparent, withSpan, type Attributes, type Span, type SpanOptions } from './spans.js';
export { isConfigured, startTelemetry, type Telemetry, type TelemetryOptions } from './start.js';
export {
  childTraceparent,
  formatTraceparent,
  newTrace,
  parseTraceparent,
  type TracePoint,
} from './traceparent.js';
