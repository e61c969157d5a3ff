import { randomUUID } from 'node:crypto';
import { Inject, Injectable } from '@nestjs/common';
import {
  decide,
  type KeyIdentity,
  type Owner,
  type V1VM,
  type V1VMCreate,
  type V1VMInterface,
} from '@nebo/contracts';
import { start } from '@nebo/lifecycle';
import { Database, type Ending, type Sql } from '@nebo/persistence';
import {
  ApiError,
  billingUnavailable,
  fieldError,
  forbidden,
  type IdempotentRequest,
  idOrNull,
  once,
  type OnceAnswer,
  pathId,
  Peers,
  referenceNotFound,
  repeatOf,
  RUNTIME,
  type Runtime,
} from '@nebo/service-kit';
import { CatalogueService, type Image, type Plan } from '../catalogue/catalogue.service.js';
import { type HourlyQuote, type Period, Prices, type Quote } from '../catalogue/prices.js';
import { sayAct, says } from '../events.js';
import { Capacity, noCapacity } from '../regions/capacity.service.js';
import { RegionsService } from '../regions/regions.service.js';
import { SshKeysService } from '../ssh-keys/ssh-keys.service.js';
import { eventOf } from './vm.lifecycle.js';
import { vmRecord } from './vm.mapper.js';
import { type Ordered, VmMoney } from './vm-money.js';
import {
  checkInterfaces,
  checkRegion,
  defaultInterface,
  nameIsTaken,
  nameKey,
  nameTaken,
  periodOf,
  sizeOf,
} from './vm-order.checks.js';
import { openSpan } from './vm-span.rows.js';
import { readVm } from './vm.rows.js';

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
  /** Null: billed by the second. */
  period: Period | null;
  interfaces: V1VMInterface[];
}

/** What a machine's disk is made of instead of its image's bytes. */
export interface DiskSource {
  image: Image;
  /** Notes it in the transaction that writes the machine. @throws ApiError when it is gone */
  take(tx: Sql, vmId: string): Promise<void>;
}

/** What an order costs. */
interface Bill {
  /** What must be available: it is held for a minute. */
  held: Quote;
  /** What is charged at once, 10⁻⁹ rubles. */
  amount: bigint;
  /** What is charged by the second. */
  hourly: HourlyQuote | null;
}

/** Orders of machines: money is reserved, the machine written, the price charged (interfaces.md, 5). */
@Injectable()
export class VmOrdersService {
  constructor(
    private readonly database: Database,
    private readonly catalogue: CatalogueService,
    private readonly regions: RegionsService,
    private readonly capacity: Capacity,
    private readonly prices: Prices,
    private readonly money: VmMoney,
    private readonly keys: SshKeysService,
    private readonly peers: Peers,
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'masterKey'>,
  ) {}

  /**
   * Orders a machine; the lifecycle makes it. The gateway has checked that the project is the caller's.
   * @throws ApiError 422 for sizes outside the plan, 404 and 403 for what the body names, 409 `name_taken` and
   *   `project_busy`, 402 with billing's reason, 503 `billing_unavailable`, and `no_capacity` for an ephemeral one that has no
   *   room; nothing is made or charged then
   */
  async create(
    caller: KeyIdentity,
    projectId: string,
    body: V1VMCreate,
    idem: IdempotentRequest | null,
    source: DiskSource | null = null,
  ): Promise<OnceAnswer<V1VM>> {
    const repeat = await repeatOf<V1VM>(this.database, caller.account_id, idem);
    if (repeat) return repeat;
    const order = await this.check(caller, pathId(projectId), body, source);
    const ordered = { id: order.id, account_id: caller.account_id };
    const bill = await this.reserve(ordered, order, body);
    const put = (asks: boolean) =>
      this.database.transaction(
        (tx) =>
          once(tx, idem, () => this.write(tx, caller, order, body, bill, { source, asks, ends: !idem })),
        caller.account_id,
      );
    try {
      const answer = await put(false).catch((error: unknown) => {
        if (isLeaving(error)) return put(true);
        throw error;
      });
      // Somebody sent the same request meanwhile, and its machine stands.
      if (answer.repeated) await this.money.letGo(ordered).catch(() => undefined);
      return answer;
    } catch (error) {
      // Lost, it expires by itself in a minute.
      await this.money.letGo(ordered).catch(() => undefined);
      throw nameTaken(error, body.name);
    }
  }

  /** Holds what the order costs at the prices in force. @throws ApiError as `VmMoney.reserve` */
  private async reserve(ordered: Ordered, order: Order, body: V1VMCreate): Promise<Bill> {
    for (let attempt = 1; ; attempt += 1) {
      const bill = await this.billOf(order, body);
      try {
        await this.money.reserve(ordered, bill.held, describe(order, body), order.project_id);
        return bill;
      } catch (error) {
        if (!(error instanceof ApiError && error.code === 'price_changed')) throw error;
        this.prices.forget();
        if (attempt === 3) throw billingUnavailable(error);
      }
    }
  }

  /**
   * A period is paid whole. Of what is billed by the time the beginning must be there: an hour of an ephemeral machine, a month
   * of each floating IP, which is ordered once the machine has its ports (interfaces.md, 5).
   */
  private async billOf(order: Order, body: V1VMCreate): Promise<Bill> {
    const machine = { ...order, backup_count: body.backup_count };
    const addresses = await this.prices.floatingIps(
      order.interfaces.filter(({ floating_ip }) => floating_ip).length,
      true,
    );
    const hold = (amount: bigint, prices: Quote['prices']): Quote => ({
      amount: amount + addresses.amount,
      prices: [...prices, ...addresses.prices],
    });
    if (order.period === null) {
      const hourly = await this.prices.hourly(machine, new Date(), true);
      return { held: hold(hourly.first_hour, hourly.prices), amount: 0n, hourly };
    }
    const { amount, prices } = await this.prices.period(machine, order.period, new Date(), true);
    return { held: hold(amount, prices), amount, hourly: null };
  }

  private async check(
    caller: KeyIdentity,
    project_id: string,
    body: V1VMCreate,
    source: DiskSource | null,
  ): Promise<Order> {
    if (body.name.trim() === '') throw fieldError('name', 'must not be blank');
    const interfaces = body.interfaces?.length ? body.interfaces : [defaultInterface];
    checkInterfaces(interfaces);
    const period = periodOf(body);
    const regionId = idOrNull(body.cluster_id);
    const image = (tx: Sql) => source?.image ?? this.catalogue.image(body.image_id, regionId, tx);
    // In one round trip; of several that are not there the first is told.
    const [region, plan, found, isTaken] = await this.database.transaction(
      (tx) =>
        Promise.all([
          this.regions.find(regionId, tx),
          this.catalogue.plan(body.vm_plan_id, tx),
          image(tx),
          this.isNameTaken(tx, caller, project_id, body.name),
          tx.commit(),
        ]),
      caller.account_id,
    );
    for (const { vpc_id } of interfaces) if (vpc_id != null) await this.checkVpc(caller, vpc_id, region.id);
    const size = sizeOf(body, plan, found);
    const order: Order = {
      id: randomUUID(),
      project_id,
      region_id: region.id,
      image: found,
      plan,
      period,
      interfaces,
      ...size,
    };
    const keyIds = body.ssh_key_ids ?? [];
    if (keyIds.length > 0)
      await this.database.transaction((tx) => this.keys.linesOf(tx, caller, keyIds), caller.account_id);
    if (isTaken) throw nameIsTaken(body.name);
    return order;
  }

  /** The VPC that a body names. @throws ApiError 404 naming the field, 403 without vpc:read, 400 `vpc_region_mismatch` */
  private async checkVpc(caller: KeyIdentity, vpcId: string, regionId: string): Promise<void> {
    const id = idOrNull(vpcId);
    const owner = id === null ? null : await this.ownerOfVpc(id);
    if (id === null || owner?.account_id !== caller.account_id) throw referenceNotFound('interfaces.vpc_id');
    if (!decide(caller, 'vpc:read', { kind: 'vpc', id, project_id: null })) throw forbidden('vpc:read');
    checkRegion(owner, regionId);
  }

  private async ownerOfVpc(id: string): Promise<Owner | null> {
    try {
      return await this.peers.call<Owner>('networking', `/internal/v1/owners/vpc/${id}`, { account: null });
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return null;
      throw error;
    }
  }

  /** Asked before the money; the unique index has the last word. */
  private async isNameTaken(
    tx: Sql,
    { account_id }: KeyIdentity,
    project_id: string,
    name: string,
  ): Promise<boolean> {
    const [row] = await tx.query<{ taken: boolean }>(
      'select vm_name_taken($1::uuid, $2::uuid, $3) as taken',
      [account_id, project_id, nameKey(name)],
    );
    return row!.taken;
  }

  /**
   * All of an order in one round trip, its commit included, unless more than that is to be decided on the way. One that is
   * paid in advance takes its place in the region with it when there is room; who has none waits for it once it is charged.
   */
  private async write(
    tx: Ending,
    caller: KeyIdentity,
    order: Order,
    body: V1VMCreate,
    bill: Bill,
    { source, asks, ends }: Writing,
  ) {
    const { id, period } = order;
    const lines = body.ssh_key_ids?.length ? await this.keys.linesOf(tx, caller, body.ssh_key_ids) : [];
    const sealed = body.cloud_init
      ? this.runtime.masterKey.seal(body.cloud_init, userDataContext(caller.account_id, id))
      : null;
    const held = asks ? this.askForProject(tx, caller.account_id, order.project_id) : holdProject(tx, order);
    if (asks) await held;
    const machine = tx.query(
      `insert into vm (id, account_id, project_id, region_id, image_id, plan_id, name, name_key, hostname, default_user,
         vcpu, memory_mb, disk_gb, backup_count, install_guest_agent, ssh_keys, user_data, auto_renew, period_months,
         period_days, amount, ephemeral, placed)
       values ($1::uuid, $2::uuid, $3::uuid, $4::uuid, $5::uuid, $6::uuid, $7, $8, $9, $10, $11::int, $12::int, $13::int,
         $14::int, $15::boolean, $16::text[], $17, $18::boolean, $19::int, $20::int, $21::numeric, $22::boolean,
         case when $22::boolean then false else vm_room($4::uuid, $11::int, $12::int, $13::int, $23::int, true) is null end)`,
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
        body.auto_renew && period !== null,
        period && 'months' in period ? period.months : null,
        period && 'days' in period ? period.days : null,
        bill.amount.toString(),
        period === null,
        this.capacity.overcommit,
      ],
    );
    const interfaces = order.interfaces.map(({ vpc_id, floating_ip }, position) =>
      tx.query(
        `insert into vm_interface (id, account_id, vm_id, position, wanted_vpc_id, floating_ip, fip_id)
         values ($1::uuid, $2::uuid, $3::uuid, $4::int, $5::uuid, $6::boolean, $7::uuid)`,
        [
          randomUUID(),
          caller.account_id,
          id,
          position,
          vpc_id ?? null,
          floating_ip,
          floating_ip ? randomUUID() : null,
        ],
      ),
    );
    const first = [held, machine, ...interfaces];
    if (source || bill.hourly) await Promise.all(first);
    if (source) await source.take(tx, id);
    if (bill.hourly)
      await openSpan(tx, { id, account_id: caller.account_id }, bill.hourly, describe(order, body));
    const named = { id, project_id: order.project_id, region_id: order.region_id };
    const event = says.vmOrdered(eventOf(named), { account: caller.account_id });
    const details = { name: body.name, plan: order.plan.name, image: order.image.name };
    const ending = ends && !source && period !== null;
    const [row] = await Promise.all([
      readVm(tx, id),
      start(tx, 'vm', id, 'ordered'),
      sayAct(tx, caller, 'vms_create_vm', { kind: 'vm', ...named }, details, event),
      ...first,
      ...(ending ? [tx.commit()] : []),
    ]);
    if (period === null) await this.placeNow(tx, order);
    return { status: 201, body: vmRecord(row!) };
  }

  /** An ephemeral machine waits for no place. Last of all: orders in this region take turns from here on. */
  private async placeNow(tx: Sql, order: Order): Promise<void> {
    const lacking = await this.capacity.lacking(tx, order.region_id, order, true);
    if (lacking !== null) throw noCapacity(lacking);
    await tx.query('update vm set placed = true where id = $1::uuid', [order.id]);
  }

  /**
   * The same as `hold_project` when machines of the project were counted lately: somebody was about to delete it then, and is so
   * still, or has done it, or could not.
   * @throws ApiError 404 when it is gone, 409 `project_busy` when it is just being deleted
   */
  private async askForProject(tx: Sql, account: string, id: string): Promise<void> {
    await tx.query('select pg_advisory_xact_lock_shared(hashtextextended($1, 0))::text as held', [
      `project|${id}`,
    ]);
    await this.peers.call<Owner>('identity-billing', `/internal/v1/owners/project/${id}?settled=true`, {
      account,
    });
    // It stays. Who deletes it after this counts again first, and waits for this transaction.
    await tx.query('delete from leaving_project where id = $1::uuid', [id]);
  }

  /** Machines that lie in a project, for the service that would delete it; waits for those that are just being made. */
  countIn(projectId: string): Promise<number> {
    const id = pathId(projectId);
    return this.database.transaction(async (tx) => {
      await tx.query('select pg_advisory_xact_lock(hashtextextended($1, 0))::text as held', [
        `project|${id}`,
      ]);
      await tx.query(
        `with old as (delete from leaving_project where at < now() - interval '1 hour' and id <> $1::uuid)
         insert into leaving_project (id) values ($1::uuid) on conflict (id) do update set at = now()`,
        [id],
      );
      const [row] = await tx.query<{ count: number }>(
        'select count(*)::int as count from vm where project_id = $1::uuid and not unlisted',
        [id],
      );
      return row!.count;
    });
  }
}

/** How an order is written. */
interface Writing {
  source: DiskSource | null;
  /** Whether identity-billing is asked for the project while it is held. */
  asks: boolean;
  /** Whether nothing else is written in the transaction. */
  ends: boolean;
}

/** Refused with `NBPRJ` when its machines were counted lately. */
const holdProject = (tx: Sql, { project_id }: Order): Promise<unknown> =>
  tx.query('select hold_project($1::uuid)::text as held', [project_id]);

const isLeaving = (error: unknown) => (error as { code?: string } | null)?.code === 'NBPRJ';

/** The line in the account's ledger. */
const describe = ({ plan, period }: Order, { hostname }: V1VMCreate) =>
  `${period === null ? 'ephemeral machine' : 'machine'} ${hostname}, plan ${plan.name}`;
