import { randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import type {
  PriceRef,
  AccountStanding,
  PortAddressesRequest,
  PortClaimRequest,
  PortFloatingIpRequest,
  PortInfo,
  SpanCloseRequest,
  SpanOpenRequest,
} from '@nebo/contracts';
import type { ServiceTarget, TargetAnswer, TargetCall } from '@nebo/service-kit';

type Answer = { status: number; body: unknown };
const error = (status: number, code: string): Answer => ({
  status,
  body: { error: { code, message: code } },
});

/** A service that is not under test: answers what it is told, and remembers what it was asked. */
export class StubTarget implements ServiceTarget {
  readonly calls: { path: string; body: unknown }[] = [];

  constructor(private readonly answer: (path: string, body: never) => Answer | undefined | Promise<Answer>) {}

  forward(): void {
    throw new Error('nothing is forwarded to a stub');
  }

  async call({ path, body }: TargetCall): Promise<TargetAnswer> {
    const parsed: unknown = typeof body === 'string' ? JSON.parse(body) : undefined;
    this.calls.push({ path, body: parsed });
    const { status, body: answered } = (await this.answer(path, parsed as never)) ?? error(404, 'not_found');
    return { status, headers: {}, body: Readable.from([Buffer.from(JSON.stringify(answered))]) };
  }

  async close(): Promise<void> {}
}

/** Prices of the tests, 10⁻⁹ rubles. */
export const prices: Readonly<Record<string, bigint>> = {
  'vm.nano.month': 240_000_000_000n,
  'vm.nano.hour': 400_000_000n,
  'vm.small.month': 690_000_000_000n,
  'vm.small.hour': 1_150_000_000n,
  'disk.gb.month': 9_000_000_000n,
  'backup.slot.month': 90_000_000_000n,
  'floating_ip.month': 180_000_000_000n,
};

interface Reservation {
  amount: bigint;
  captured: bigint;
  state: 'held' | 'captured' | 'void';
  refunded: bigint;
}

/** Money as the tests want it, with reservations by the rules of libs/contracts/src/internal/money.ts. */
export class StubBilling {
  available = 10n ** 15n;
  away = false;
  /** Only `capture` is away. */
  captureAway = false;
  /** Only `span-open` is away. */
  spansAway = false;
  /** Reservations expire before they are captured. */
  expired = false;
  /** What a project's owner is answered with. */
  project: Answer = { status: 200, body: {} };
  /** The same when it has become another one since the reservation. */
  ownerOnly: Answer | null = null;
  readonly reservations = new Map<string, Reservation>();
  /** Prices in force; a test may change one. */
  readonly prices: Record<string, bigint> = { ...prices };
  /** That of all of them. */
  version = 7;
  /** Accounts that are not in order. */
  standing: AccountStanding[] = [];
  /** Spans by the id of their machine. */
  readonly spans = new Map<string, SpanOpenRequest & { ended_at: string | null }>();
  /** So many reservations answer only when all of them have come: each of their orders has read the same by then. */
  together = 0;
  private readonly met: (() => void)[] = [];
  readonly target = new StubTarget((path, body: Record<string, string>) =>
    path.endsWith('/reserve') && this.together > 0
      ? this.meet().then(() => this.answer(path, body)!)
      : this.answer(path, body),
  );

  private meet(): Promise<void> {
    return new Promise((resolve) => {
      this.met.push(resolve);
      if (this.met.length < this.together) return;
      this.together = 0;
      for (const go of this.met.splice(0)) go();
    });
  }

  private answer(path: string, body: Record<string, string>): Answer | undefined {
    if (path.startsWith('/internal/v1/owners/project/')) return this.ownerOnly ?? this.project;
    if (this.away) return error(500, 'internal_error');
    if (path === '/internal/v1/standing') return { status: 200, body: this.standing };
    if (path.endsWith('/span-open') && this.spansAway) return error(503, 'billing_unavailable');
    if (path.endsWith('/span-open')) return this.openSpan(body as unknown as SpanOpenRequest);
    if (path.endsWith('/span-close')) return this.closeSpan(body as unknown as SpanCloseRequest);
    if (path.startsWith('/internal/v1/prices')) {
      const prefix = new URL(path, 'http://x').searchParams.get('prefix')!;
      const found = Object.entries(this.prices).filter(([id]) => id.startsWith(prefix));
      return {
        status: 200,
        body: found.map(([id, amount]) => ({
          id,
          version: this.version,
          amount: amount.toString(),
          unit: 'month',
        })),
      };
    }
    // An order's reservation says no more of its project than its owner does, and knows the versions of prices.
    if (path.endsWith('/reserve') && body['project_id'] !== undefined) {
      if (this.project.status !== 200) return this.project;
      const used = (body['prices'] ?? []) as unknown as PriceRef[];
      if (used.some(({ version }) => version !== this.version)) return error(409, 'price_changed');
    }
    return this.money(path.split('/').at(-1)!, body);
  }

  /** What is charged and not paid back. */
  charged(id: string): bigint {
    const found = this.reservations.get(id);
    return found?.state === 'captured' ? found.captured - found.refunded : 0n;
  }

  /** What is only held. */
  held(): bigint {
    const held = [...this.reservations.values()].filter(({ state }) => state === 'held');
    return held.reduce((sum, { amount }) => sum + amount, 0n);
  }

  private openSpan(request: SpanOpenRequest): Answer {
    const vm = request.resource.replace('vm:', '');
    const known = this.spans.get(vm);
    if (known && known.operation_id !== request.operation_id) return error(409, 'operation_reused');
    if (!known) this.spans.set(vm, { ...request, ended_at: null });
    return { status: 200, body: {} };
  }

  private closeSpan({ operation_id, ended_at }: SpanCloseRequest): Answer {
    const known = [...this.spans.values()].find((span) => span.operation_id === operation_id);
    if (!known) return error(404, 'not_found');
    if (known.ended_at !== null && known.ended_at !== ended_at) return error(409, 'already_closed');
    known.ended_at = ended_at;
    return { status: 200, body: {} };
  }

  private money(
    name: string,
    { operation_id: id = '', amount = '' }: Record<string, string>,
  ): Answer | undefined {
    const known = this.reservations.get(id);
    const ok = { status: 200, body: {} };
    if (name === 'reserve') {
      if (BigInt(amount) > this.available) return error(402, 'insufficient_balance');
      this.available -= BigInt(amount);
      const held = BigInt(amount);
      this.reservations.set(id, { amount: held, captured: held, state: 'held', refunded: 0n });
      return ok;
    }
    if (!known) return error(404, 'not_found');
    if (name === 'capture') {
      if (this.captureAway) return error(503, 'billing_unavailable');
      if (this.expired) known.state = 'void';
      if (known.state === 'void') return error(409, 'expired');
      if (known.state === 'held') {
        known.state = 'captured';
        known.captured = amount === '' ? known.amount : BigInt(amount);
        this.available += known.amount - known.captured;
      } else if (amount !== '' && BigInt(amount) !== known.captured) return error(409, 'already_captured');
    } else if (name === 'void') {
      if (known.state === 'captured') return error(409, 'already_captured');
      if (known.state === 'held') this.available += known.amount;
      known.state = 'void';
    } else if (name === 'refund') {
      if (known.state !== 'captured') return error(409, 'not_captured');
      if (known.refunded === 0n) this.available += known.captured;
      known.refunded = known.captured;
    }
    return ok;
  }
}

/** Ports by the rules of libs/contracts/src/internal/ports.ts, in one VPC. */
export class StubNetworking {
  readonly vpc = randomUUID();
  away = false;
  /** Refuse claims with this code. */
  refuse: string | null = null;
  /** Refuse floating IPs with this status and code. */
  refuseAddresses: [status: number, code: string] | null = null;
  /** Whether a floating IP can be paid at this moment. */
  canPay = () => true;
  /** Calls of `addresses`. */
  reads = 0;
  /** Owners of VPCs by id. */
  readonly owners = new Map<string, string>();
  /** Regions of VPCs that lie in another one than the machines. */
  readonly regions = new Map<string, string>();
  readonly ports = new Map<string, PortInfo>();
  private next = 10;
  readonly target = new StubTarget((path, body: PortClaimRequest) => {
    if (this.away) return error(500, 'internal_error');
    const vpc = /owners\/vpc\/(.+)$/.exec(path)?.[1];
    if (vpc) {
      const account_id = this.owners.get(vpc);
      const region_id = this.regions.get(vpc);
      const body = { account_id, project_id: null, parents: [], ...(region_id ? { region_id } : {}) };
      return account_id ? { status: 200, body } : undefined;
    }
    if (path.endsWith('/addresses')) {
      this.reads += 1;
      const { ids } = body as unknown as PortAddressesRequest;
      return { status: 200, body: { ports: ids.flatMap((id) => this.ports.get(id) ?? []) } };
    }
    if (path.endsWith('/floating-ips/order'))
      return this.orderAddress(body as unknown as PortFloatingIpRequest);
    if (path.endsWith('/release')) {
      this.ports.delete(body.operation_id);
      return { status: 200, body: {} };
    }
    if (this.refuse) return error(409, this.refuse);
    const known = this.ports.get(body.operation_id);
    const number = (this.next += 1);
    const port: PortInfo = known ?? {
      id: body.operation_id,
      kind: body.kind,
      owner: body.owner,
      vpc_id: body.vpc_id ?? this.vpc,
      region_id: body.region_id!,
      address: `10.16.0.${number}`,
      prefix: 24,
      gateway: '10.16.0.1',
      mac: `02:00:00:00:00:${number.toString(16).padStart(2, '0')}`,
      floating_ip: null,
    };
    this.ports.set(port.id, port);
    return { status: 200, body: port };
  });

  private orderAddress({ operation_id, port_id }: PortFloatingIpRequest): Answer {
    if (this.refuseAddresses) return error(...this.refuseAddresses);
    if (!this.canPay()) return error(402, 'insufficient_balance');
    const port = this.ports.get(port_id);
    if (!port) return error(404, 'not_found');
    port.floating_ip ??= { id: operation_id, address: `203.0.113.${(this.next += 1)}`, status: 'attaching' };
    return { status: 200, body: port };
  }
}
