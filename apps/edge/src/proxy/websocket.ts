import { type ClientRequest, type IncomingMessage, request as httpRequest } from 'node:http';
import { Socket } from 'node:net';
import { type Duplex, pipeline } from 'node:stream';
import { requestHeaders, responseHeaders } from '../http/headers.js';
import { type LiveRoute, type Replica } from '../routes/snapshot.js';
import { classify, type UpstreamFailure } from './failure.js';
import { type Balancer } from './balancer.js';
import { type ProxyRequest, type ProxyTrace } from './proxy.js';
import { type WebSocketClient } from './websocket-client.js';

/** Whether a request asks for a WebSocket (RFC 6455 section 4.1). Other upgrades are answered as plain requests. */
export function wantsWebSocket(req: IncomingMessage): boolean {
  return (
    req.method === 'GET' &&
    req.httpVersion === '1.1' &&
    req.headers.upgrade?.trim().toLowerCase() === 'websocket'
  );
}

export interface WebSocketOptions {
  connectTimeoutMs: number;
  answerTimeoutMs: number;
}

export type WebSocketOutcome =
  | { kind: 'open'; status: 101; closed: Promise<void> }
  /** The replica answered otherwise; its answer was passed on. */
  | { kind: 'answered'; status: number }
  | { kind: 'failed'; failure: UpstreamFailure }
  | { kind: 'left' };

/**
 * Passes a WebSocket on to a replica and then moves bytes both ways until either side ends. A refusal of the replica (401,
 * 426, …) is passed on as it is. On failure nothing has been written to the client.
 * @param again asks for a woken replica anew after it took no connection
 * @throws what `again` throws
 */
export async function forwardWebSocket(
  req: IncomingMessage,
  client: WebSocketClient,
  route: Extract<LiveRoute, { kind: 'replicas' }>,
  request: ProxyRequest,
  balancer: Balancer,
  options: WebSocketOptions,
  trace: ProxyTrace,
  again?: () => Promise<Replica>,
): Promise<WebSocketOutcome> {
  const tried: Replica[] = [];
  let woken: Replica | null = null;
  for (;;) {
    const replica = woken ?? balancer.choose(route, tried)!;
    tried.push(replica);
    trace.replicaId = replica.id;
    const outcome = await attempt(req, client, replica, request, options);
    if (outcome.kind !== 'failed') return outcome;
    if (!outcome.failure.notSent) return outcome;
    balancer.refused(replica);
    if (tried.length > 1 || (route.replicas.length < 2 && !again)) return outcome;
    trace.retries++;
    if (again) woken = await again();
  }
}

function attempt(
  req: IncomingMessage,
  client: WebSocketClient,
  replica: Replica,
  request: ProxyRequest,
  options: WebSocketOptions,
): Promise<WebSocketOutcome> {
  return new Promise((resolve) => {
    const { stream } = client;
    const headers = [
      ...requestHeaders(req, request),
      ...client.more,
      'Connection',
      'Upgrade',
      'Upgrade',
      'websocket',
    ];
    let upstream: ClientRequest | null = null;
    const onClientClose = (): void => {
      upstream?.destroy();
      finish({ kind: 'left' });
    };
    const timers: NodeJS.Timeout[] = [];
    const finish = (outcome: WebSocketOutcome): void => {
      timers.forEach(clearTimeout);
      stream.off('close', onClientClose);
      resolve(outcome);
    };
    if (stream.destroyed) return finish({ kind: 'left' });
    stream.once('close', onClientClose);

    upstream = httpRequest({
      host: replica.host,
      port: replica.port,
      path: request.url,
      method: 'GET',
      headers: headers as never,
      agent: false,
      setHost: false,
    });
    const fail = (code: string): void => void upstream?.destroy(Object.assign(new Error(code), { code }));
    const connecting = setTimeout(() => fail('HTTP1_CONNECT_TIMEOUT'), options.connectTimeoutMs);
    timers.push(
      connecting,
      setTimeout(() => fail('HTTP1_ANSWER_TIMEOUT'), options.answerTimeoutMs),
    );
    upstream.once('socket', (socket) => socket.once('connect', () => clearTimeout(connecting)));
    upstream.once('error', (error) => finish({ kind: 'failed', failure: classify(error) }));
    upstream.once('response', (answer) => {
      const res = client.plainly();
      res.writeHead(
        answer.statusCode ?? 502,
        answer.statusMessage,
        responseHeaders(answer.rawHeaders) as never,
      );
      pipeline(answer, res, () => undefined);
      finish({ kind: 'answered', status: answer.statusCode ?? 502 });
    });
    upstream.once('upgrade', (answer, socket: Socket, first: Buffer) => {
      if (!client.open(responseHeaders(answer.rawHeaders))) {
        socket.on('error', () => undefined).destroy();
        return finish({ kind: 'failed', failure: classify(null) });
      }
      if (first.length > 0) stream.write(first);
      if (client.head.length > 0) socket.write(client.head);
      finish({ kind: 'open', status: 101, closed: join(stream, socket) });
    });
    upstream.end();
  });
}

/** How long the last bytes for one side may take after the other has gone. */
const LINGER_MS = 5_000;

/** Moves bytes both ways; when one side is gone, so is the other, after what was still to be sent to it. */
function join(client: Duplex, upstream: Socket): Promise<void> {
  if (client instanceof Socket) client.setNoDelay(true).setTimeout(0);
  upstream.setNoDelay(true);
  return new Promise((resolve) => {
    let open = 2;
    for (const [side, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      side.on('error', () => undefined);
      side.once('close', () => {
        endSoon(other);
        if (!other.destroyed) setTimeout(() => other.destroy(), LINGER_MS).unref();
        if (--open === 0) resolve();
      });
    }
    client.pipe(upstream);
    upstream.pipe(client);
  });
}

/** Ends a side after what was still to be sent to it. */
function endSoon(side: Duplex): void {
  const { destroySoon } = side as Partial<Socket>;
  if (destroySoon) destroySoon.call(side as Socket);
  else side.end();
}
