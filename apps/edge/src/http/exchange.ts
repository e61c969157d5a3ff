import { randomUUID } from 'node:crypto';
import { type IncomingMessage, type ServerResponse } from 'node:http';
import { type AccessEntry } from '../observe/access.js';
import { type AnswerKind } from '../observe/metrics.js';
import { type ProxyTrace } from '../proxy/proxy.js';
import { type LiveRoute } from '../routes/snapshot.js';
import { type Admitted } from './admission.js';
import { clientAddress, givenRequestId } from './headers.js';
import { Http2Answer } from './http2-answer.js';

/** What is known of one request and its answer, for figures and the access log. */
export interface Exchange {
  began: number;
  requestId: string;
  secure: boolean;
  kind: AnswerKind;
  host: string | null;
  url: string;
  live: LiveRoute | null;
  trace: ProxyTrace;
  remote: string;
  bytesBefore: number;
}

/** @param isLogged whether what only the access log needs is looked up */
export function beginExchange(req: IncomingMessage, secure: boolean, isLogged: boolean): Exchange {
  return {
    began: performance.now(),
    requestId: givenRequestId(req) ?? randomUUID(),
    secure,
    kind: 'edge',
    host: null,
    url: '',
    live: null,
    trace: { replicaId: null, retries: 0 },
    remote: isLogged ? clientAddress(req) : '',
    bytesBefore: isLogged && req.httpVersionMajor < 2 ? (req.socket.bytesWritten ?? 0) : 0,
  };
}

/** Where it leads. */
export function note(exchange: Exchange, admitted: Admitted, live: LiveRoute | null): void {
  exchange.host = admitted.host;
  exchange.url = admitted.url;
  exchange.live = live;
  exchange.kind = live?.kind ?? 'edge';
}

export const protocolOf = (req: IncomingMessage): 'h1' | 'h2' => (req.httpVersionMajor > 1 ? 'h2' : 'h1');

/** The line of the access log. @param end how it ended, after so many milliseconds; `aborted`: the client left before */
export function accessEntry(
  req: IncomingMessage,
  res: ServerResponse | null,
  exchange: Exchange,
  { status, aborted, took }: { status: number; aborted: boolean; took: number },
): AccessEntry {
  const route = exchange.live?.route;
  const isH2 = req.httpVersionMajor > 1;
  return {
    at: new Date(Date.now() - took).toISOString(),
    request_id: exchange.requestId,
    method: req.method ?? '',
    host: exchange.host,
    path: exchange.url.split('?', 1)[0]!,
    secure: exchange.secure,
    remote: exchange.remote,
    user_agent: req.headers['user-agent'] ?? null,
    kind: exchange.kind,
    status,
    protocol: protocolOf(req),
    bytes: isH2 ? bytesOf(res) : Math.max(0, (req.socket.bytesWritten ?? 0) - exchange.bytesBefore),
    duration_ms: Math.round(took * 1000) / 1000,
    aborted,
    account_id: route?.account_id ?? null,
    app_id: route?.app_id ?? null,
    build_id: route?.build_id ?? null,
    replica_id: exchange.trace.replicaId,
    retries: exchange.trace.retries,
  };
}

function bytesOf(res: ServerResponse | null): number {
  const h2: unknown = res;
  return h2 instanceof Http2Answer ? h2.bytes : 0;
}
