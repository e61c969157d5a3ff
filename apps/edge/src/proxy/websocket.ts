import { type ClientRequest, type IncomingMessage, request as httpRequest, ServerResponse } from 'node:http';
import { type Socket } from 'node:net';
import { type Duplex, pipeline } from 'node:stream';
import { requestHeaders, responseHeaders } from '../http/headers.js';
import { type LiveRoute, type Replica } from '../routes/snapshot.js';
import { classify, type UpstreamFailure } from './failure.js';
import { type Balancer } from './balancer.js';
import { type ProxyRequest, type ProxyTrace } from './proxy.js';

/** Whether a request asks for a WebSocket (RFC 6455 section 4.1). Other upgrades are answered as plain requests. */
export function wantsWebSocket(req: IncomingMessage): boolean {
  return (
    req.method === 'GET' &&
    req.httpVersion === '1.1' &&
    req.headers.upgrade?.trim().toLowerCase() === 'websocket'
  );
}

/** An answer object over a socket that the server has already given away. */
export function responseOn(req: IncomingMessage, socket: Duplex): ServerResponse {
  const res = new ServerResponse(req);
  res.shouldKeepAlive = false;
  res.assignSocket(socket as Socket);
  res.once('finish', () => {
    res.detachSocket(socket as Socket);
    socket.end();
  });
  socket.once('close', () => res.destroy());
  return res;
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
  client: Duplex,
  head: Buffer,
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
    const outcome = await attempt(req, client, head, replica, request, options);
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
  client: Duplex,
  head: Buffer,
  replica: Replica,
  request: ProxyRequest,
  options: WebSocketOptions,
): Promise<WebSocketOutcome> {
  return new Promise((resolve) => {
    const headers = [...requestHeaders(req, request), 'Connection', 'Upgrade', 'Upgrade', 'websocket'];
    let upstream: ClientRequest | null = null;
    const onClientClose = (): void => {
      upstream?.destroy();
      finish({ kind: 'left' });
    };
    const timers: NodeJS.Timeout[] = [];
    const finish = (outcome: WebSocketOutcome): void => {
      timers.forEach(clearTimeout);
      client.off('close', onClientClose);
      resolve(outcome);
    };
    if (client.destroyed) return finish({ kind: 'left' });
    client.once('close', onClientClose);

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
    const connecting = setTimeout(() => fail('UND_ERR_CONNECT_TIMEOUT'), options.connectTimeoutMs);
    timers.push(
      connecting,
      setTimeout(() => fail('UND_ERR_HEADERS_TIMEOUT'), options.answerTimeoutMs),
    );
    upstream.once('socket', (socket) => socket.once('connect', () => clearTimeout(connecting)));
    upstream.once('error', (error) => finish({ kind: 'failed', failure: classify(error) }));
    upstream.once('response', (answer) => {
      const res = responseOn(req, client);
      res.writeHead(
        answer.statusCode ?? 502,
        answer.statusMessage,
        responseHeaders(answer.rawHeaders) as never,
      );
      pipeline(answer, res, () => undefined);
      finish({ kind: 'answered', status: answer.statusCode ?? 502 });
    });
    upstream.once('upgrade', (answer, socket: Socket, first: Buffer) => {
      const lines = ['HTTP/1.1 101 Switching Protocols', 'Connection: Upgrade', 'Upgrade: websocket'];
      const passed = responseHeaders(answer.rawHeaders);
      for (let i = 0; i < passed.length; i += 2) lines.push(`${passed[i]}: ${passed[i + 1]}`);
      client.write(Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'));
      if (first.length > 0) client.write(first);
      if (head.length > 0) socket.write(head);
      finish({ kind: 'open', status: 101, closed: join(client, socket) });
    });
    upstream.end();
  });
}

/** How long the last bytes for one side may take after the other has gone. */
const LINGER_MS = 5_000;

/** Moves bytes both ways; when one side is gone, so is the other, after what was still to be sent to it. */
function join(client: Duplex, upstream: Socket): Promise<void> {
  const down = client as Socket;
  down.setNoDelay(true);
  down.setTimeout(0);
  upstream.setNoDelay(true);
  return new Promise((resolve) => {
    let open = 2;
    for (const [side, other] of [
      [down, upstream],
      [upstream, down],
    ] as const) {
      side.on('error', () => undefined);
      side.once('close', () => {
        other.destroySoon();
        if (!other.destroyed) setTimeout(() => other.destroy(), LINGER_MS).unref();
        if (--open === 0) resolve();
      });
    }
    down.pipe(upstream);
    upstream.pipe(down);
  });
}
