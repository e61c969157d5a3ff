export { Figures, type Refresh } from './figures.js';
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
export { type CountRequest } from './request-figures.js';
export {
  activeTraceparent,
  openSpan,
  withSpan,
  type Attributes,
  type OpenSpan,
  type Span,
  type SpanOptions,
} from './spans.js';
export { isConfigured, startTelemetry, type Telemetry, type TelemetryOptions } from './start.js';
export {
  childTraceparent,
  formatTraceparent,
  newTrace,
  parseTraceparent,
  type TracePoint,
} from './traceparent.js';
