import { randomUUID } from 'node:crypto';
import type { PortClaimRequest, PortInfo } from '@nebo/contracts';
import { StubTarget } from './stub-target.js';

interface StubVpc {
  account_id: string;
  region_id: string;
  /** Ports that it still takes. */
  room: number;
}

/** Networking as the tests want it: idempotent by the id of a claim as the real one, and away when it shall be. */
export class StubNetworking {
  readonly vpcs = new Map<string, StubVpc>();
  readonly ports = new Map<string, PortInfo>();
  readonly released = new Set<string>();
  /** Every claim and release that arrived, repeats too. */
  readonly heard: { what: 'claim' | 'release'; id: string }[] = [];
  away = false;
  /** What is asked is done, and the next so many answers are lost. */
  loseAnswers = 0;
  private last = 1;

  readonly target = new StubTarget((path, body: unknown) => {
    if (this.away) return unavailable;
    const answer = this.answer(path, body);
    if (answer && path.includes('/ports/') && this.loseAnswers > 0) {
      this.loseAnswers -= 1;
      return unavailable;
    }
    return answer;
  });

  vpc(account_id: string, region_id: string, room = 1_000): string {
    const id = randomUUID();
    this.vpcs.set(id, { account_id, region_id, room });
    return id;
  }

  /** Ports in a VPC. */
  in(vpcId: string): PortInfo[] {
    return [...this.ports.values()].filter(({ vpc_id }) => vpc_id === vpcId);
  }

  private answer(path: string, body: unknown): { status: number; body: unknown } | undefined {
    const owner = /^\/internal\/v1\/owners\/vpc\/(.+)$/.exec(path);
    if (owner) {
      const vpc = this.vpcs.get(owner[1]!);
      const { account_id, region_id } = vpc ?? {};
      return vpc && { status: 200, body: { account_id, region_id, project_id: null, parents: [] } };
    }
    if (path === '/internal/v1/ports/claim') return this.claim(body as PortClaimRequest);
    if (path !== '/internal/v1/ports/release') return undefined;
    const { operation_id: id } = body as { operation_id: string };
    this.heard.push({ what: 'release', id });
    this.ports.delete(id);
    this.released.add(id);
    return { status: 200, body: {} };
  }

  private claim({ operation_id: id, account_id, owner, kind, vpc_id, region_id }: PortClaimRequest) {
    this.heard.push({ what: 'claim', id });
    const known = this.ports.get(id);
    if (known) return { status: 200, body: known };
    if (this.released.has(id)) return refusal(409, 'already_released', 'this port was given back');
    const vpc = this.vpcs.get(vpc_id!);
    if (!vpc || vpc.account_id !== account_id) return refusal(404, 'not_found', 'vpc_id: not found');
    if (vpc.region_id !== region_id) return refusal(400, 'vpc_region_mismatch', 'vpc_id: another region');
    if (this.in(vpc_id!).length >= vpc.room) return refusal(409, 'subnet_full', 'no free address left');
    const n = (this.last += 1);
    const port: PortInfo = {
      ...{ id, kind, owner, vpc_id: vpc_id!, region_id, prefix: 16, gateway: '10.80.0.1', floating_ip: null },
      address: `10.80.${n >> 8}.${n & 255}`,
      mac: `02:00:00:00:${(n >> 8).toString(16).padStart(2, '0')}:${(n & 255).toString(16).padStart(2, '0')}`,
    };
    this.ports.set(id, port);
    return { status: 200, body: port };
  }
}

const refusal = (status: number, code: string, message: string) => ({
  status,
  body: { error: { code, message } },
});
const unavailable = refusal(503, 'unavailable', 'away');
