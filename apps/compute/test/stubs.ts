import { randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import type { PortClaimRequest, PortInfo } from '@nebo/contracts';
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
  state: 'held' | 'captured' | 'void';
  refunded: bigint;
}

/** Money as the tests want it, with reservations by the rules of libs/contracts/src/internal/money.ts. */
export class StubBilling {
  available = 10n ** 15n;
  away = false;
  /** Only `capture` is away. */
  captureAway = false;
  /** Reservations expire before they are captured. */
  expired = false;
  /** What a project's owner is answered with. */
  project: Answer = { status: 200, body: {} };
  readonly reservations = new Map<string, Reservation>();
  readonly target = new StubTarget((path, body: Record<string, string>) => {
    if (path.startsWith('/internal/v1/owners/project/')) return this.project;
    if (this.away) return error(500, 'internal_error');
    if (path.startsWith('/internal/v1/prices')) {
      const prefix = new URL(path, 'http://x').searchParams.get('prefix')!;
      const found = Object.entries(prices).filter(([id]) => id.startsWith(prefix));
      return {
        status: 200,
        body: found.map(([id, amount]) => ({ id, version: 7, amount: amount.toString(), unit: 'month' })),
      };
    }
    return this.money(path.split('/').at(-1)!, body);
  });

  /** What is charged and not paid back. */
  charged(id: string): bigint {
    const found = this.reservations.get(id);
    return found?.state === 'captured' ? found.amount - found.refunded : 0n;
  }

  private money(
    name: string,
    { operation_id: id = '', amount = '0' }: Record<string, string>,
  ): Answer | undefined {
    const known = this.reservations.get(id);
    const ok = { status: 200, body: {} };
    if (name === 'reserve') {
      if (BigInt(amount) > this.available) return error(402, 'insufficient_balance');
      this.available -= BigInt(amount);
      this.reservations.set(id, { amount: BigInt(amount), state: 'held', refunded: 0n });
      return ok;
    }
    if (!known) return error(404, 'not_found');
    if (name === 'capture') {
      if (this.captureAway) return error(503, 'billing_unavailable');
      if (this.expired) known.state = 'void';
      if (known.state === 'void') return error(409, 'expired');
      known.state = 'captured';
    } else if (name === 'void') {
      if (known.state === 'captured') return error(409, 'already_captured');
      known.state = 'void';
    } else if (name === 'refund') {
      if (known.state !== 'captured') return error(409, 'not_captured');
      known.refunded = known.amount;
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
  /** Owners of VPCs by id. */
  readonly owners = new Map<string, string>();
  readonly ports = new Map<string, PortInfo>();
  private next = 10;
  readonly target = new StubTarget((path, body: PortClaimRequest) => {
    if (this.away) return error(500, 'internal_error');
    const vpc = /owners\/vpc\/(.+)$/.exec(path)?.[1];
    if (vpc) {
      const account_id = this.owners.get(vpc);
      return account_id ? { status: 200, body: { account_id, project_id: null, parents: [] } } : undefined;
    }
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
    };
    this.ports.set(port.id, port);
    return { status: 200, body: port };
  });
}
