import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type {
  CaptureRequest,
  PriceInfo,
  PricesSetRequest,
  Reservation,
  ReserveRequest,
  VoidRequest,
} from '@nebo/contracts';

interface Hold {
  account: string;
  amount: bigint;
  state: Reservation['state'];
  captured: bigint;
  captures: number;
  usage: CaptureRequest['usage'];
  expiresIn: number;
}

interface Account {
  available: bigint;
  /** Code of the 402 that every reserve gets, whatever the balance. */
  refusal?: string;
}

/** A stand-in for identity-billing's money operations, over HTTP, with the rules of libs/contracts/src/internal/money.ts. */
export class FakeBilling {
  readonly holds = new Map<string, Hold>();
  readonly accounts = new Map<string, Account>();
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

  /** All is well again, and nothing was ever called; accounts and prices stay. */
  reset(): void {
    this.calls.length = 0;
    this.holds.clear();
    this.away = this.mute = this.slow = null;
  }

  /** An account with money, 10⁻⁹ rubles. */
  account(id: string, available: bigint, refusal?: string): void {
    this.accounts.set(id, { available, ...(refusal ? { refusal } : {}) });
  }

  available(id: string): bigint {
    return this.accounts.get(id)!.available;
  }

  /** Holds in a state. */
  inState(state: Reservation['state']): Hold[] {
    return [...this.holds.values()].filter((hold) => hold.state === state);
  }

  private async serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = request.url!;
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    this.calls.push(`${request.method} ${path}`);
    if (this.away?.test(path)) return void request.socket.destroy();
    if (this.slow?.path.test(path)) await new Promise((resolve) => setTimeout(resolve, this.slow!.ms));
    const text = Buffer.concat(parts).toString();
    const [status, body] = this.answer(request.method!, path, (text ? JSON.parse(text) : {}) as never);
    if (this.mute?.test(path)) return void request.socket.destroy();
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  }

  private answer(method: string, path: string, body: never): [number, unknown] {
    if (method === 'GET' && path.startsWith('/internal/v1/prices')) return [200, [...this.prices.values()]];
    if (method === 'PUT') return this.setPrices(body);
    if (path.endsWith('/reserve')) return this.reserve(body);
    if (path.endsWith('/capture')) return this.capture(body);
    if (path.endsWith('/void')) return this.void(body);
    return [404, refusal('unknown_operation')];
  }

  private setPrices({ prices }: PricesSetRequest): [number, unknown] {
    for (const { id, amount, unit } of prices) {
      const version = (this.prices.get(id)?.version ?? 0) + 1;
      this.prices.set(id, { id, amount, unit, version });
    }
    return [200, { prices: [...this.prices.values()] }];
  }

  private reserve(request: ReserveRequest): [number, unknown] {
    const known = this.holds.get(request.operation_id);
    if (known) return [200, this.view(request.operation_id)];
    const account = this.accounts.get(request.account_id);
    const amount = BigInt(request.amount);
    if (!account || account.refusal) return [402, refusal(account?.refusal ?? 'topup_required')];
    if (account.available < amount) return [402, refusal('insufficient_balance')];
    account.available -= amount;
    this.holds.set(request.operation_id, {
      account: request.account_id,
      amount,
      state: 'held',
      captured: 0n,
      captures: 0,
      usage: undefined,
      expiresIn: request.expires_in_seconds ?? 60,
    });
    return [201, this.view(request.operation_id)];
  }

  private capture(request: CaptureRequest): [number, unknown] {
    const hold = this.holds.get(request.operation_id);
    if (!hold) return [404, refusal('not_found')];
    const amount = BigInt(request.amount ?? hold.amount);
    if (hold.state === 'void') return [409, refusal('already_void')];
    if (amount > hold.amount) return [422, refusal('validation_error')];
    hold.captures += 1;
    if (hold.state === 'captured')
      return hold.captured === amount
        ? [200, this.view(request.operation_id)]
        : [409, refusal('already_captured')];
    Object.assign(hold, { state: 'captured', captured: amount, usage: request.usage });
    this.accounts.get(hold.account)!.available += hold.amount - amount;
    return [200, this.view(request.operation_id)];
  }

  private void(request: VoidRequest): [number, unknown] {
    const hold = this.holds.get(request.operation_id);
    if (!hold) return [404, refusal('not_found')];
    if (hold.state === 'captured') return [409, refusal('already_captured')];
    if (hold.state === 'held') this.accounts.get(hold.account)!.available += hold.amount;
    hold.state = 'void';
    return [200, this.view(request.operation_id)];
  }

  private view(id: string): Reservation {
    const { amount, state, captured } = this.holds.get(id)!;
    return {
      operation_id: id,
      amount: amount.toString(),
      state,
      captured: captured.toString(),
      refunded: '0',
      expires_at: new Date(Date.now() + 60_000).toISOString(),
    };
  }
}

const refusal = (code: string) => ({ error: { code, message: `refused: ${code}` } });
