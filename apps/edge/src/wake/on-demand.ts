import { type IncomingMessage, type ServerResponse } from 'node:http';
import { type Proxy, type ProxyOptions, type ProxyRequest, type ProxyTrace } from '../proxy/proxy.js';
import { forwardWebSocket, type WebSocketOutcome } from '../proxy/websocket.js';
import { type WebSocketClient, withHead } from '../proxy/websocket-client.js';
import { type LiveRoute, type Replica } from '../routes/snapshot.js';
import { departureOf, departureOfSocket } from './departure.js';
import { type Lease, WakeFailed, type Waker } from './waker.js';

/** A route that leads to an on-demand replica. */
export type SleepyRoute = Extract<LiveRoute, { kind: 'replicas' }> & { wake: { id: string } };

/** What became of a request for a sleeping app; `left`: nobody wants an answer any more. */
export type Held<T> = { kind: 'done'; value: T } | { kind: 'left' } | { kind: 'failed'; why: WakeFailed };

export const isSleepy = (live: LiveRoute): live is SleepyRoute =>
  live.kind === 'replicas' && live.wake !== null;

const only = (live: SleepyRoute, replica: Replica): SleepyRoute => ({
  ...live,
  replicas: [replica],
  turn: { next: 0 },
});

/**
 * Holds a request until its replica is awake, then forwards it. The replica does not sleep before the answer is out.
 * @param still whether the route still leads here
 */
export async function forwardToSleepy(
  parts: { waker: Waker; proxy: Proxy },
  req: IncomingMessage,
  res: ServerResponse,
  live: SleepyRoute,
  request: ProxyRequest,
  trace: ProxyTrace,
  still: () => boolean,
): Promise<Held<void>> {
  const { waker, proxy } = parts;
  const departure = departureOf(res);
  let lease: Lease | null = null;
  try {
    lease = await waker.acquire(live.wake.id, departure.signal, still);
    const again = async (): Promise<Lease> => {
      lease!.lost();
      lease!.done();
      return (lease = await waker.acquire(live.wake.id, departure.signal, still));
    };
    // The exchange with the replica may be over before the client has read the last byte; the use is over with the former.
    await proxy.forwardWoken(req, res, only(live, lease.replica), request, trace, { ...lease, again });
    return { kind: 'done', value: undefined };
  } catch (error) {
    return failureOf(error, departure.signal);
  } finally {
    departure.stop();
    lease?.done();
  }
}

/** The same for a WebSocket; its replica stays awake as long as it is open. */
export async function upgradeToSleepy(
  parts: { waker: Waker; proxy: Proxy; options: ProxyOptions },
  req: IncomingMessage,
  client: WebSocketClient,
  live: SleepyRoute,
  request: ProxyRequest,
  trace: ProxyTrace,
  still: () => boolean,
): Promise<Held<WebSocketOutcome>> {
  const { waker, proxy, options } = parts;
  const departure = departureOfSocket(client.stream);
  let lease: Lease | null = null;
  const done = (): void => lease?.done();
  try {
    lease = await waker.acquire(live.wake.id, departure.signal, still);
    const early = withHead(client, departure.stop());
    const again = async (): Promise<Replica> => {
      lease!.lost();
      lease!.done();
      lease = await waker.acquire(live.wake.id, departure.signal, still);
      return lease.replica;
    };
    const route = only(live, lease.replica);
    const value = await forwardWebSocket(req, early, route, request, proxy.balancer, options, trace, again);
    if (value.kind === 'open') void value.closed.then(done);
    else if (value.kind === 'answered') client.stream.once('close', done);
    else done();
    return { kind: 'done', value };
  } catch (error) {
    departure.stop();
    done();
    return failureOf(error, departure.signal);
  }
}

function failureOf(
  error: unknown,
  left: AbortSignal,
): { kind: 'left' } | { kind: 'failed'; why: WakeFailed } {
  if (error instanceof WakeFailed) return { kind: 'failed', why: error };
  if (left.aborted) return { kind: 'left' };
  throw error;
}
