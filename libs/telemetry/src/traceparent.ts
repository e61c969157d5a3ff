import { randomBytes } from 'node:crypto';

/** A place in a trace, as the W3C header `traceparent` carries it. */
export interface TracePoint {
  /** 32 lower-case hex digits, not all zero. */
  traceId: string;
  /** 16 lower-case hex digits, not all zero. */
  spanId: string;
  sampled: boolean;
}

const form = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;

/**
 * Reads a `traceparent` header or the `trace` of an envelope (W3C Trace Context, section 3.2).
 * @returns null for anything malformed, which the caller treats as no trace at all
 */
export function parseTraceparent(text: string | readonly string[] | null | undefined): TracePoint | null {
  if (typeof text !== 'string' || text.length > 512) return null;
  const match = form.exec(text);
  if (match === null) return null;
  const [, version, traceId, spanId, flags, rest] = match as unknown as [
    string,
    string,
    string,
    string,
    string,
    string?,
  ];
  // Version 00 ends here; later versions may add fields, ff is none.
  if (version === 'ff' || (version === '00' && rest !== undefined)) return null;
  if (/^0+$/.test(traceId) || /^0+$/.test(spanId)) return null;
  return { traceId, spanId, sampled: (Number.parseInt(flags, 16) & 1) === 1 };
}

/** The header's text, version 00. */
export function formatTraceparent({ traceId, spanId, sampled }: TracePoint): string {
  return `00-${traceId}-${spanId}-${sampled ? '01' : '00'}`;
}

/** A trace that begins here. */
export function newTrace(sampled = false): TracePoint {
  return { traceId: randomHex(16), spanId: randomHex(8), sampled };
}

/**
 * A new point below `parent`: same trace, own span id. A malformed or missing parent begins a new trace. For what passes
 * a request or event on without an SDK; with one, `activeTraceparent` of the span says it better.
 */
export function childTraceparent(parent: string | readonly string[] | null | undefined): string {
  const point = parseTraceparent(parent);
  return formatTraceparent(point === null ? newTrace() : { ...point, spanId: randomHex(8) });
}

function randomHex(bytes: number): string {
  for (;;) {
    const hex = randomBytes(bytes).toString('hex');
    if (!/^0+$/.test(hex)) return hex;
  }
}
