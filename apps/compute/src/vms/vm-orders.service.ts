import { randomUUID } from 'node:crypto';
import { Inject, Injectable } from '@nestjs/common';
import {
  decide,
  type KeyIdentity,
  type Owner,
  type V1VM,
  type V1VMCreate,
  type V1VMInterface,
  vmPeriodMonths,
} from '@nebo/contracts';
import { start } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import {
  ApiError,
  badRequest,
  conflict,
  fieldError,
  forbidden,
  type IdempotentRequest,
  idOrNull,
  once,
  type OnceAnswer,
  pathId,
  Peers,
  referenceNotFound,
  RUNTIME,
  type Runtime,
} from '@nebo/service-kit';
import { CatalogueService, type Image, type Plan } from '../catalogue/catalogue.service.js';
import { Prices } from '../catalogue/prices.js';
import { sayAct, says } from '../events.js';
import { RegionsService } from '../regions/regions.service.js';
import { SshKeysService } from '../ssh-keys/ssh-keys.service.js';
import { eventOf } from './vm.lifecycle.js';
import { vmRecord } from './vm.mapper.js';
import { VmMoney } from './vm-money.js';
import { readVm } from './vm.rows.js';

/** Name of a machine as it is compared: without case and Unicode form. */
export const nameKey = (name: string): string => name.normalize('NFKC').toLowerCase();

/** What user data of a machine is sealed to. */
export const userDataContext = (account: string, vm: string) => `vm|${account}|${vm}|user_data`;

/** What a body asks for, with everything that it names. */
interface Order {
  id: string;
  project_id: string;
  region_id: string;
  image: Image;
  plan: Plan;
  vcpu: number;
  memory_mb: number;
  disk_gb: number;
  period: { months: number } | { days: number };
  interfaces: V1VMInterface[];
}

/** Thrown to look whether a request is a repeat without doing anything. */
const notYet = new Error('not a repeat');

/** Orders of machines: money is reserved, the machine written, the price charged (interfaces.md, 5). */
@Injectable()
export class VmOrdersService {
  constructor(
    private readonly database: Database,
    private readonly catalogue: CatalogueService,
    private readonly regions: RegionsService,
    private readonly prices: Prices,
    private readonly money: VmMoney,
    private readonly keys: SshKeysService,
    private readonly peers: Peers,
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'masterKey'>,
  ) {}

  /**
   * Orders a machine; the lifecycle makes it. The gateway has checked that the project is the caller's.
   * @throws ApiError 422 for sizes outside the plan, 404 and 403 for what the body names, 409 `name_taken` and
   *   `project_busy`, 402 with billing's reason, 503 `billing_unavailable`; nothing is made or charged then
   */
  async create(
    caller: KeyIdentity,
    projectId: string,
    body: V1VMCreate,
    idem: IdempotentRequest | null,
  ): Promise<OnceAnswer<V1VM>> {
    const repeat = await this.repeatOf(caller, idem);
    if (repeat) return repeat;
    const order = await this.check(caller, pathId(projectId), body);
    const quote = await this.prices.period(
      { ...order, backup_count: body.backup_count },
      order.period,
      new Date(),
    );
    const ordered = { id: order.id, account_id: caller.account_id };
    await this.money.reserve(ordered, quote, `machine ${body.hostname}, plan ${order.plan.name}`);
    try {
      const answer = await this.database.transaction(
        (tx) => once(tx, idem, () => this.write(tx, caller, order, body, quote.amount)),
        caller.account_id,
      );
      // Somebody sent the same request meanwhile, and its machine stands.
      if (answer.repeated) await this.money.letGo(ordered).catch(() => undefined);
      return answer;
    } catch (error) {
      // Lost, it expires by itself in a minute.
      await this.money.letGo(ordered).catch(() => undefined);
      throw nameTaken(error, body.name);
    }
  }

  /** The answer of the first request, if this one repeats it: asked before money is held for it again. */
  private async repeatOf(
    caller: KeyIdentity,
    idem: IdempotentRequest | null,
  ): Promise<OnceAnswer<V1VM> | null> {
    if (!idem) return null;
    try {
      const look = (tx: Sql) => once<V1VM>(tx, idem, () => Promise.reject(notYet));
      return await this.database.transaction(look, caller.account_id);
    } catch (error) {
      if (error === notYet) return null;
      throw error;
    }
  }

  private async check(caller: KeyIdentity, project_id: string, body: V1VMCreate): Promise<Order> {
    if (body.name.trim() === '') throw fieldError('name', 'must not be blank');
    if (body.ephemeral) throw fieldError('ephemeral', 'ephemeral machines are not offered here yet');
    const interfaces = body.interfaces?.length ? body.interfaces : [defaultInterface];
    checkInterfaces(interfaces);
    const period = periodOf(body);
    const regionId = idOrNull(body.cluster_id);
    const region = (await this.regions.list()).find(({ id }) => id === regionId);
    if (!region) throw referenceNotFound('cluster_id');
    const plan = await this.catalogue.plan(body.vm_plan_id);
    const image = await this.catalogue.image(body.image_id, region.id);
    await this.database.transaction(
      (tx) => this.keys.linesOf(tx, caller, body.ssh_key_ids ?? []),
      caller.account_id,
    );
    for (const { vpc_id } of interfaces) if (vpc_id != null) await this.checkVpc(caller, vpc_id);
    const size = sizeOf(body, plan, image);
    const order: Order = {
      id: randomUUID(),
      project_id,
      region_id: region.id,
      image,
      plan,
      period,
      interfaces,
      ...size,
    };
    await this.checkName(caller, project_id, body.name);
    return order;
  }

  /** The VPC that a body names. @throws ApiError 404 naming the field, 403 without vpc:read */
  private async checkVpc(caller: KeyIdentity, vpcId: string): Promise<void> {
    const id = idOrNull(vpcId);
    const owner = id === null ? null : await this.ownerOfVpc(id);
    if (id === null || owner?.account_id !== caller.account_id) throw referenceNotFound('interfaces.vpc_id');
    if (!decide(caller, 'vpc:read', { kind: 'vpc', id, project_id: null })) throw forbidden('vpc:read');
  }

  private async ownerOfVpc(id: string): Promise<Owner | null> {
    try {
      return await this.peers.call<Owner>('networking', `/internal/v1/owners/vpc/${id}`, { account: null });
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return null;
      throw error;
    }
  }

  /** Asked before the money; the unique index has the last word. @throws ApiError 409 `name_taken` */
  private async checkName({ account_id }: KeyIdentity, project_id: string, name: string): Promise<void> {
    const [taken] = await this.database.transaction(
      (tx) =>
        tx.query(
          `select 1 as taken from vm where account_id = $1::uuid and project_id = $2::uuid and name_key = $3
             and not unlisted`,
          [account_id, project_id, nameKey(name)],
        ),
      account_id,
    );
    if (taken) throw nameIsTaken(name);
  }

  private async write(tx: Sql, caller: KeyIdentity, order: Order, body: V1VMCreate, amount: bigint) {
    await this.holdProject(tx, caller.account_id, order.project_id);
    const { id, period } = order;
    const lines = await this.keys.linesOf(tx, caller, body.ssh_key_ids ?? []);
    const sealed = body.cloud_init
      ? this.runtime.masterKey.seal(body.cloud_init, userDataContext(caller.account_id, id))
      : null;
    await tx.query(
      `insert into vm (id, account_id, project_id, region_id, image_id, plan_id, name, name_key, hostname, default_user,
         vcpu, memory_mb, disk_gb, backup_count, install_guest_agent, ssh_keys, user_data, auto_renew, period_months,
         period_days, amount)
       values ($1::uuid, $2::uuid, $3::uuid, $4::uuid, $5::uuid, $6::uuid, $7, $8, $9, $10, $11::int, $12::int, $13::int,
         $14::int, $15::boolean, $16::text[], $17, $18::boolean, $19::int, $20::int, $21::numeric)`,
      [
        id,
        caller.account_id,
        order.project_id,
        order.region_id,
        order.image.id,
        order.plan.id,
        body.name,
        nameKey(body.name),
        body.hostname,
        body.default_user,
        order.vcpu,
        order.memory_mb,
        order.disk_gb,
        body.backup_count,
        body.install_guest_agent,
        lines,
        sealed,
        body.auto_renew,
        'months' in period ? period.months : null,
        'days' in period ? period.days : null,
        amount.toString(),
      ],
    );
    for (const [position, { vpc_id }] of order.interfaces.entries())
      await tx.query(
        `insert into vm_interface (id, account_id, vm_id, position, wanted_vpc_id)
         values ($1::uuid, $2::uuid, $3::uuid, $4::int, $5::uuid)`,
        [randomUUID(), caller.account_id, id, position, vpc_id ?? null],
      );
    await start(tx, 'vm', id, 'ordered');
    const row = (await readVm(tx, id))!;
    const event = says.vmOrdered(eventOf(row), { account: caller.account_id });
    const details = { name: row.name, plan: order.plan.name, image: order.image.name };
    await sayAct(tx, caller, 'vms_create_vm', { kind: 'vm', ...row }, details, event);
    return { status: 201, body: vmRecord(row) };
  }

  /**
   * Keeps a project from being deleted until the transaction ends: whoever deletes it counts first, and waits here.
   * @throws ApiError 404 when it is gone, 409 `project_busy` when it is just being deleted
   */
  private async holdProject(tx: Sql, account: string, id: string): Promise<void> {
    await tx.query('select pg_advisory_xact_lock_shared(hashtextextended($1, 0))::text as held', [
      `project|${id}`,
    ]);
    await this.peers.call<Owner>('identity-billing', `/internal/v1/owners/project/${id}?settled=true`, {
      account,
    });
  }

  /** Machines that lie in a project, for the service that would delete it; waits for those that are just being made. */
  countIn(projectId: string): Promise<number> {
    const id = pathId(projectId);
    return this.database.transaction(async (tx) => {
      await tx.query('select pg_advisory_xact_lock(hashtextextended($1, 0))::text as held', [
        `project|${id}`,
      ]);
      const [row] = await tx.query<{ count: number }>(
        'select count(*)::int as count from vm where project_id = $1::uuid and not unlisted',
        [id],
      );
      return row!.count;
    });
  }
}

const defaultInterface: V1VMInterface = {
  type: 'vpc',
  floating_ip: false,
  dhcp4: true,
  enable_ipv4: true,
  enable_ipv6: false,
};

function checkInterfaces(interfaces: readonly V1VMInterface[]): void {
  for (const { type, floating_ip } of interfaces) {
    if (type === 'public')
      throw badRequest('interface_not_offered', 'interfaces of type public are not offered; use vpc');
    if (floating_ip)
      throw badRequest('interface_not_offered', 'floating IPs cannot be ordered with a machine yet');
  }
}

/** One month when nothing is said. @throws ApiError 422 */
function periodOf({ period_days, period_months }: V1VMCreate): { months: number } | { days: number } {
  if (period_days != null && period_months != null)
    throw fieldError('period_days', 'give period_days or period_months, not both');
  if (period_days != null) return { days: period_days };
  const months = period_months ?? 1;
  if (!(vmPeriodMonths as readonly number[]).includes(months))
    throw fieldError('period_months', `must be one of ${vmPeriodMonths.join(', ')}`);
  return { months };
}

/** Size within the plan: a smaller one costs the same; more disk than the plan has is paid per GB. @throws ApiError 422 */
function sizeOf({ vcpu, mem, disk_size_gb }: V1VMCreate, plan: Plan, image: Image) {
  const limit = (field: string, value: number, min: number, max: number, unit: string) => {
    if (value < min || value > max)
      throw fieldError(field, `must be ${min} to ${max}${unit} with the plan ${plan.name} and this image`);
    return value;
  };
  return {
    vcpu: limit('vcpu', vcpu ?? plan.vcpu, 1, plan.vcpu, ''),
    memory_mb: limit('mem', mem ?? plan.memory_mb, Math.min(128, plan.memory_mb), plan.memory_mb, ' MB'),
    disk_gb: limit('disk_size_gb', disk_size_gb ?? plan.disk_gb, image.min_disk_gb, plan.max_disk_gb, ' GB'),
  };
}

export const nameIsTaken = (name: string) =>
  conflict('name_taken', `a machine named "${name}" exists in this project`);

/** What the unique index refused, in the contract's words; everything else as it is. */
export function nameTaken(error: unknown, name: string): unknown {
  const { code, constraint } = (error ?? {}) as { code?: string; constraint?: string };
  return code === '23505' && constraint === 'vm_name' ? nameIsTaken(name) : error;
}
