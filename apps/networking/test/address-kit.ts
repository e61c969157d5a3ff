import { randomUUID } from 'node:crypto';
import type { PortInfo, V1FloatingIP, V1Vpc } from '@nebo/contracts';
import type { TestAnswer } from '@nebo/service-kit/testing';
import type { Bench, FakeAgent } from './harness.js';

/** Addresses on interfaces of one VPC, as a bench's account and its services handle them. */
export class AddressKit {
  vpc!: V1Vpc;

  constructor(
    private readonly bench: Bench,
    private readonly agent: FakeAgent,
  ) {}

  /** Goes on in a fresh VPC. */
  async renew(): Promise<void> {
    this.vpc = await this.bench.activeVpc(this.agent);
  }

  /** A machine's interface. */
  async nic(more: Record<string, unknown> = {}): Promise<PortInfo> {
    return (await this.bench.claim({ vpc_id: this.vpc.id, project_id: randomUUID(), ...more })).body;
  }

  attach(
    id: string,
    vm_interface_id: unknown,
    as = this.bench.key,
    headers: Record<string, string> = {},
  ): Promise<TestAnswer> {
    return this.bench.api('POST', `floating-ips/${id}/attach`, { vm_interface_id }, as, headers);
  }

  /** As some clients send it: without a body, but with its type. */
  detach(id: string, as = this.bench.key): Promise<TestAnswer> {
    const headers = { 'content-type': 'application/json' };
    return this.bench.api('POST', `floating-ips/${id}/detach`, undefined, as, headers);
  }

  release(id: string, as = this.bench.key): Promise<TestAnswer> {
    return this.bench.api('DELETE', `floating-ips/${id}`, undefined, as);
  }

  /** What compute does when a machine is gone. */
  freePort(operation_id: string): Promise<TestAnswer> {
    return this.bench.internal('POST', 'ports/release', { operation_id, account_id: this.bench.account });
  }

  async get(id: string): Promise<V1FloatingIP> {
    return (await this.bench.api('GET', `floating-ips/${id}`)).body;
  }

  async reach(id: string, status: string): Promise<V1FloatingIP> {
    return (await this.bench.api('GET', `floating-ips/${id}?wait=${status}&timeout=20`)).body;
  }

  async portOf(id: string): Promise<PortInfo | undefined> {
    const body = { account_id: this.bench.account, ids: [id] };
    return (await this.bench.internal('POST', 'ports/addresses', body)).body.ports[0];
  }

  /** Floating IPs that the region shall make. */
  async wanted() {
    await this.agent.poll();
    return this.agent.wanted.get(this.vpc.id)!.spec.floating_ips;
  }

  /** Whether an address of the pool is held by a floating IP. */
  async held(id: string): Promise<boolean> {
    return (await this.bench.sql('select 1 from pool_address where held_by = $1', [id])).length === 1;
  }

  /** An address that works on an interface. */
  async attached(): Promise<{ fip: V1FloatingIP; port: PortInfo }> {
    const [fip, port] = [await this.bench.address(), await this.nic()];
    await this.attach(fip.id, port.id);
    await this.agent.answer(this.vpc.id, 'active');
    return { fip: await this.reach(fip.id, 'attached'), port };
  }
}
