import {
  type ReplicaHold,
  type WakeAddress,
  type WakeDesk,
  WakeRefused,
  wakeRefusals,
  type WakeRefusalCode,
} from '@nebo/contracts';
import { Agent, type Dispatcher } from 'undici';
import { abortable } from '../abortable.js';

/** Milliseconds for a connection to the agent and for answers that wait for nothing. */
const CALL_MS = 5_000;

/** A connection that stands as long as one life of the agent. */
interface Life {
  id: string;
  over: AbortController;
}

/**
 * The agent of another process. One connection is always open: when it breaks, the agent or the way to it is gone, and all
 * holds with it. Each answer must come from the same life of the agent as that connection.
 */
export class HttpWakeDesk implements WakeDesk {
  private readonly agent: Agent;
  private readonly origin: string;
  private readonly listeners = new Set<() => void>();
  private life: Promise<Life> | null = null;

  constructor(
    address: WakeAddress,
    private readonly token: string | null,
  ) {
    const connect = {
      timeout: CALL_MS,
      ...('socketPath' in address ? { socketPath: address.socketPath } : {}),
    };
    // A start takes as long as the app does; who waits for it brings a signal.
    this.agent = new Agent({ connect, connections: null, headersTimeout: 0, bodyTimeout: 0 });
    this.origin = 'socketPath' in address ? 'http://agent' : originOf(address);
  }

  async hold(holder: string, replicaId: string, signal: AbortSignal): Promise<ReplicaHold> {
    const { hold } = await this.call<{ hold: ReplicaHold }>(replicaId, 'hold', holder, signal);
    return hold;
  }

  async renew(holder: string, replicaId: string): Promise<ReplicaHold | null> {
    const limit = AbortSignal.timeout(CALL_MS);
    return (await this.call<{ hold: ReplicaHold | null }>(replicaId, 'renew', holder, limit)).hold;
  }

  async release(holder: string, replicaId: string): Promise<boolean> {
    const limit = AbortSignal.timeout(CALL_MS);
    return (await this.call<{ sleeps: boolean }>(replicaId, 'release', holder, limit)).sleeps;
  }

  onLost(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Cuts all connections. */
  async close(): Promise<void> {
    await this.agent.destroy();
  }

  /** @throws WakeRefused, or the signal's reason */
  private async call<T>(replicaId: string, verb: string, holder: string, signal: AbortSignal): Promise<T> {
    const life = await abortable(this.alive(), signal);
    const either = AbortSignal.any([signal, life.over.signal]);
    try {
      const query = { holder };
      const path = `/wake/v1/replicas/${encodeURIComponent(replicaId)}/${verb}`;
      const answer = await this.ask('POST', path, query, either);
      const body: unknown = await answer.body.json();
      if (answer.headers['x-nebo-agent-life'] !== life.id || either.aborted) throw new WakeRefused('away');
      if (answer.statusCode === 200) return body as T;
      throw refusalOf(body);
    } catch (error) {
      if (error instanceof WakeRefused) throw error;
      if (signal.aborted) throw signal.reason;
      throw new WakeRefused('away');
    }
  }

  /** The life of the agent that is there now. */
  private alive(): Promise<Life> {
    this.life ??= this.connect().catch((error: unknown) => {
      this.life = null;
      throw error;
    });
    return this.life;
  }

  private async connect(): Promise<Life> {
    const over = new AbortController();
    // Only for the head: the body has no end.
    const head = setTimeout(() => over.abort(), CALL_MS);
    let answer: Dispatcher.ResponseData;
    try {
      answer = await this.ask('GET', '/wake/v1/alive', {}, over.signal);
    } catch {
      throw new WakeRefused('away');
    } finally {
      clearTimeout(head);
    }
    const id = answer.headers['x-nebo-agent-life'];
    if (answer.statusCode !== 200 || typeof id !== 'string') {
      answer.body.on('error', () => undefined).destroy();
      throw new WakeRefused('away');
    }
    const lost = (): void => {
      if (over.signal.aborted) return;
      this.life = null;
      over.abort(new WakeRefused('away'));
      for (const listener of this.listeners) listener();
    };
    answer.body.on('error', lost).on('end', lost).on('close', lost).resume();
    return { id, over };
  }

  private ask(
    method: 'GET' | 'POST',
    path: string,
    query: Record<string, string>,
    signal: AbortSignal,
  ): Promise<Dispatcher.ResponseData> {
    const headers = this.token === null ? {} : { authorization: `Bearer ${this.token}` };
    return this.agent.request({ origin: this.origin, path, method, query, headers, signal });
  }
}

function originOf({ host, port }: { host: string; port: number }): string {
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
}

function refusalOf(body: unknown): WakeRefused {
  const { code, retry_after_ms: ms } = (body ?? {}) as Record<string, unknown>;
  const known = wakeRefusals.find((candidate): candidate is WakeRefusalCode => candidate === code);
  return new WakeRefused(known ?? 'away', typeof ms === 'number' && ms > 0 ? ms : undefined);
}
