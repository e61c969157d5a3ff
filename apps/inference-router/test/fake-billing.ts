import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { PriceInfo, PricesSetRequest, UsageFacts } from '@nebo/contracts';
import type { Settlements } from '../src/money/settlements.js';
import type { Purses } from '../src/money/purses.js';
import { type FakeAnswer, FakeSlices, refusal } from './fake-slices.js';

/** A request that was held, as the router that ran it saw it. */
interface Hold {
  account: string;
  amount: bigint;
  state: 'held' | 'captured' | 'void';
  captured: bigint;
  usage: UsageFacts | undefined;
}

/** A stand-in for identity-billing's money operations, over HTTP, with the rules of libs/contracts/src/internal/slices.ts. */
export class FakeBilling {
  readonly slices = new FakeSlices();
  /** Requests of the routers that `watch` was told of. */
  readonly holds = new Map<string, Hold>();
  readonly prices = new Map<string, PriceInfo>();
  /** `METHOD path` of each call. */
  readonly calls: string[] = [];
  /** Paths that match are cut off before anything happens. */
  away: RegExp | null = null;
  /** Paths that match do their work, but the answer is lost. */
  mute: RegExp | null = null;
  /** Milliseconds before each answer of a path that matches. */
  slow: { path: RegExp; ms: number } | null = null;
  url = '';
  private readonly routers = new Set<Purses>();
  private readonly server = createServer((request, response) => void this.serve(request, response));

  async start(): Promise<this> {
    await new Promise<void>((resolve) => this.server.listen(0, '127.0.0.1', resolve));
    this.server.unref();
    this.url = `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
    return this;
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  /** All is well again, and nothing was ever called; accounts, slices and prices stay. */
  reset(): void {
    this.calls.length = 0;
    this.holds.clear();
    this.away = this.mute = this.slow = null;
  }

  /** An account with money, 10⁻⁹ rubles. */
  account(id: string, available: bigint, refusal?: string): void {
    this.slices.accounts.set(id, { balance: available, ...(refusal ? { refusal } : {}) });
  }

  /** What the account has, less what watched routers have settled and are about to deliver. */
  available(id: string): bigint {
    let available = this.slices.accounts.get(id)!.balance;
    for (const purses of this.routers) available -= purses.sums(id).owed;
    return available;
  }

  /** Requests in a state. */
  inState(state: Hold['state']): Hold[] {
    return [...this.holds.values()].filter((hold) => hold.state === state);
  }

  /** How often a request was charged. */
  times(operationId: string): number {
    return this.slices.ledger.get(operationId)?.times ?? 0;
  }

  /** Notes what a router in this process holds and settles. */
  watch(settlements: Settlements, purses: Purses): () => void {
    this.routers.add(purses);
    const { reserve, capture, giveBack } = settlements;
    const end = (id: string, more: Partial<Hold>) => {
      const hold = this.holds.get(id);
      if (hold?.state === 'held') Object.assign(hold, more);
    };
    settlements.reserve = async (terms, gone) => {
      const reserved = await reserve.call(settlements, terms, gone);
      const { account, amount } = terms;
      this.holds.set(terms.operationId, { account, amount, state: 'held', captured: 0n, usage: undefined });
      return reserved;
    };
    settlements.capture = async (reserved, amount, usage) => {
      await capture.call(settlements, reserved, amount, usage);
      end(reserved.terms.operationId, { state: 'captured', captured: amount, usage });
    };
    settlements.giveBack = (reserved) => {
      giveBack.call(settlements, reserved);
      end(reserved.terms.operationId, { state: 'void' });
    };
    return () => void this.routers.delete(purses);
  }

  private async serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = request.url!;
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    this.calls.push(`${request.method} ${path}`);
    if (this.away?.test(path)) return void request.socket.destroy();
    if (this.slow?.path.test(path)) await new Promise((resolve) => setTimeout(resolve, this.slow!.ms));
    const text = Buffer.concat(parts).toString();
    const body = (text ? JSON.parse(text) : {}) as never;
    let [status, answer] = this.answer(request.method!, path, body);
    // As the real one: what others do not use is recalled, and for a moment looked for.
    for (
      let left = 16;
      status === 402 && (answer as Refused).error.code === 'held_in_flight' && left > 0;
      left -= 1
    ) {
      await new Promise((resolve) => setTimeout(resolve, 15));
      [status, answer] = this.answer(request.method!, path, body);
    }
    if (this.mute?.test(path)) return void request.socket.destroy();
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(answer));
  }

  private answer(method: string, path: string, body: never): FakeAnswer {
    if (method === 'GET' && path.startsWith('/internal/v1/prices')) return [200, [...this.prices.values()]];
    if (method === 'PUT') return this.setPrices(body);
    const name = /^\/internal\/v1\/slices\/(\w+)$/.exec(path)?.[1];
    return name ? this.slices.call(name, body) : [404, refusal('unknown_operation')];
  }

  private setPrices({ prices }: PricesSetRequest): FakeAnswer {
    for (const { id, amount, unit } of prices) {
      const version = (this.prices.get(id)?.version ?? 0) + 1;
      this.prices.set(id, { id, amount, unit, version });
    }
    return [200, { prices: [...this.prices.values()] }];
  }
}

interface Refused {
  error: { code: string };
}
