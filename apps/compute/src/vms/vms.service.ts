import { Injectable } from '@nestjs/common';
import {
  type DeleteAccepted,
  type KeyIdentity,
  type PageOf,
  pageOf,
  type PageQuery,
  type V1PowerActionResult,
  type V1VM,
  type V1VMRenewalQuote,
  type V1VMUpdate,
  type VMStartRequest,
} from '@nebo/contracts';
import { wake } from '@nebo/lifecycle';
import { BatchedRead, Database, type Sql, type SqlValue } from '@nebo/persistence';
import {
  ApiError,
  conflict,
  fieldError,
  type IdempotentRequest,
  idOrNull,
  notFound,
  once,
  pathId,
  repeatOf,
} from '@nebo/service-kit';
import { sayAct } from '../events.js';
import { noCapacity } from '../regions/capacity.service.js';
import { type Visible, visible } from '../shared/visible.js';
import { statusOf, vmRecord } from './vm.mapper.js';
import { isExpired } from './period.lifecycle.js';
import { VmAddresses } from './vm-addresses.js';
import { nameKey, nameTaken } from './vm-order.checks.js';
import { removeVm } from './vm-removal.js';
import { beginning, VmRenewals } from './vm-renewals.service.js';
import { VmResizes, type Resize } from './vm-resizes.service.js';
import { lockVm, vmColumns, type VmRow } from './vm.rows.js';

export type PowerVerb = 'start' | 'stop' | 'restart';

/** Machines: what their owners want of them. What becomes of it is the lifecycle's and the region's. */
@Injectable()
export class VmsService {
  private readonly reads = new BatchedRead((keys: { account: string; id: string }[]) =>
    this.readSeveral(keys),
  );

  constructor(
    private readonly database: Database,
    private readonly renewals: VmRenewals,
    private readonly resizes: VmResizes,
    private readonly addresses: VmAddresses,
  ) {}

  /**
   * @param projectId null by the flat path; otherwise the machine must lie in it
   * @throws ApiError 404
   */
  async get(caller: KeyIdentity, projectId: string | null, id: string): Promise<V1VM> {
    return this.addresses.of(caller.account_id, await this.look(caller, projectId, id));
  }

  /** The same with the addresses that it had when it was made: for those who wait for a status. @throws ApiError 404 */
  async look(caller: KeyIdentity, projectId: string | null, id: string): Promise<V1VM> {
    const [vmId, project] = [pathId(id), projectId && pathId(projectId)];
    const row = await this.reads.get({ account: caller.account_id, id: vmId });
    if (!row || (project !== null && row.project_id !== project)) throw notFound();
    return vmRecord(row);
  }

  /** Those that are asked for at the same moment, one transaction for each account. */
  private async readSeveral(keys: readonly { account: string; id: string }[]): Promise<(VmRow | null)[]> {
    const found = new Map<string, VmRow>();
    for (const account of new Set(keys.map((key) => key.account))) {
      const ids = keys.filter((key) => key.account === account).map(({ id }) => id);
      // One has a text of its own: for a list PostgreSQL would make a new plan each time.
      const rows = await this.database.read<VmRow>(
        `select ${vmColumns} from vm v
         where v.id = ${ids.length === 1 ? '$1::uuid' : 'any($1::uuid[])'} and v.account_id = $2::uuid and not v.unlisted`,
        [ids.length === 1 ? ids[0]! : ids, account],
        account,
      );
      for (const row of rows) found.set(`${account} ${row.id}`, row);
    }
    return keys.map(({ account, id }) => found.get(`${account} ${id}`) ?? null);
  }

  /** A page of what the key may see, oldest first. A project that is none has nothing. */
  async list(caller: KeyIdentity, projectId: string | null, page: PageQuery): Promise<PageOf<V1VM>> {
    const seen = visible(caller, 'vm:read', 'vm');
    const project = projectId && idOrNull(projectId);
    if (seen === null || (projectId !== null && !project)) return pageOf([], 0, page);
    const { records, total } = await this.database.transaction(async (tx) => {
      // Compared is only what the policy says: a page from the middle walks the index up to there.
      const values: SqlValue[] = [caller.account_id];
      const where = ['v.account_id = $1::uuid', 'not v.unlisted'];
      const narrow = (condition: (parameter: string) => string, value: SqlValue) =>
        where.push(condition(`$${values.push(value)}`));
      if (project !== null) narrow((of) => `v.project_id = ${of}::uuid`, project);
      if (!isAll(seen)) {
        if (seen.allowProjects !== null) {
          const projects = `$${values.push(seen.allowProjects)}::uuid[]`;
          narrow((of) => `(v.project_id = any(${projects}) or v.id = any(${of}::uuid[]))`, seen.allowIds);
        }
        narrow((of) => `v.project_id <> all(${of}::uuid[])`, seen.denyProjects);
        narrow((of) => `v.id <> all(${of}::uuid[])`, seen.denyIds);
        if (seen.withinProjects !== null)
          narrow((of) => `v.project_id = any(${of}::uuid[])`, seen.withinProjects);
      }
      const listed = where.join(' and ');
      const [{ total } = { total: 0 }] = isAll(seen)
        ? await tx.query<{ total: number }>(
            `select coalesce(sum(machines), 0)::int as total from vm_count
             where account_id = $1::uuid and ($2::uuid is null or project_id = $2::uuid)`,
            [caller.account_id, project],
          )
        : await tx.query<{ total: number }>(
            `select count(*)::int as total from vm v where ${listed}`,
            values,
          );
      // Counted from the nearer end, by the index alone: the last page of 100,000 costs what the first one does.
      const left = Math.max(0, total - page.offset);
      const isNearEnd = left < page.offset;
      const limit = isNearEnd ? Math.min(page.limit, left) : page.limit;
      const [way, skip] = isNearEnd ? ['desc', left - limit] : ['asc', page.offset];
      const rows = await tx.query<VmRow>(
        `with page as materialized (
           select v.id from vm v where ${listed} order by v.created_at ${way}, v.id ${way}
           limit $${values.length + 1}::int offset $${values.length + 2}::int)
         select ${vmColumns} from page join vm v on v.id = page.id order by v.created_at, v.id`,
        [...values, limit, skip],
      );
      return { records: rows.map(vmRecord), total };
    }, caller.account_id);
    return pageOf(await this.addresses.overlay(caller.account_id, records), total, page);
  }

  /**
   * Changes the name, the renewal, and the size upwards: what a larger one costs more for the rest of the paid period is
   * charged before the region hears of it. The disk grows at once, processors and memory count from the next start.
   * @throws ApiError 404, 409 `name_taken`, and what `VmResizes` says; nothing is changed or charged then
   */
  async update(caller: KeyIdentity, projectId: string | null, id: string, body: V1VMUpdate): Promise<V1VM> {
    if (body.name !== undefined && body.name.trim() === '') throw fieldError('name', 'must not be blank');
    const resize = await this.priced(caller, projectId, id, body);
    const change = async (tx: Sql) => {
      const row = await this.lock(tx, caller, projectId, id);
      if (resize) await this.resizes.begin(tx, row, resize);
      const [name, autoRenew] = [body.name ?? row.name, body.auto_renew ?? row.auto_renew];
      await tx.query(
        'update vm set name = $2, name_key = $3, auto_renew = $4::boolean, updated_at = now() where id = $1::uuid',
        [row.id, name, nameKey(name), autoRenew && !row.ephemeral],
      );
      const changed = Object.keys(body).filter((field) => body[field as keyof V1VMUpdate] !== undefined);
      await sayAct(tx, caller, 'vms_update_vm', { kind: 'vm', ...row }, { changed });
    };
    try {
      await this.database.transaction(change, caller.account_id);
    } catch (error) {
      if (resize) await this.resizes.letGo(resize);
      throw nameTaken(error, body.name ?? '');
    }
    if (resize) await this.pay(resize);
    return this.get(caller, projectId, id);
  }

  /** What a body wants to be larger, priced and with its money held; null when nothing. */
  private async priced(
    caller: KeyIdentity,
    projectId: string | null,
    id: string,
    body: V1VMUpdate,
  ): Promise<Resize | null> {
    if (body.vm_plan_id === undefined && body.disk_size_gb === undefined) return null;
    const row = await this.database.transaction(
      (tx) => this.lock(tx, caller, projectId, id),
      caller.account_id,
    );
    return this.resizes.prepare(row, body);
  }

  /** Its life pays when this process dies, or when billing is away for a moment. */
  private async pay({ id }: Resize): Promise<void> {
    const paid = await this.resizes.pay(id);
    if (paid === 'paid') return;
    if (typeof paid === 'object') throw noCapacity(paid.lacking);
    throw paid === 'expired'
      ? conflict('payment_expired', 'the payment could not be completed in time; nothing was charged')
      : conflict('vm_changing', 'the machine was changed meanwhile; what was charged goes back');
  }

  /**
   * Deletes a machine from any state. What no region has heard of is gone at once, the rest when its region has
   * confirmed; a repeat changes nothing.
   * @throws ApiError 404
   */
  delete(caller: KeyIdentity, projectId: string | null, id: string): Promise<DeleteAccepted> {
    return this.database.transaction(async (tx) => {
      const row = await this.lock(tx, caller, projectId, id);
      if (row.deleted_at) return { status: 'deleting' };
      const unlisted = await removeVm(tx, row);
      await sayAct(tx, caller, 'vms_delete_vm', { kind: 'vm', ...row }, { name: row.name });
      return { status: unlisted ? 'deleted' : 'deleting' };
    }, caller.account_id);
  }

  /**
   * Starts, stops or restarts a machine and answers with the state that it entered, or with the present one when nothing
   * was to do (interfaces.md, 10).
   * @param request of a start: confirms that an expired period is paid anew
   * @throws ApiError 402 `period_expired` for the start of an expired one without that, `account_suspended`, or with billing's
   *   reason; 404, 409 `vm_not_ready` before it is made and when it could not be, `vm_deleting`, `vm_stopped` (restart)
   */
  async power(
    caller: KeyIdentity,
    projectId: string | null,
    id: string,
    verb: PowerVerb,
    idem: IdempotentRequest | null,
    request: VMStartRequest | null = null,
  ): Promise<V1PowerActionResult> {
    // A repeat of a start that has renewed must not renew again.
    const repeat = await repeatOf<V1PowerActionResult>(this.database, caller.account_id, idem);
    if (repeat) return repeat.body;
    if (verb === 'start') await this.renewIfExpired(caller, projectId, id, request);
    const answer = await this.database.transaction(
      (tx) =>
        once(tx, idem, async () => ({
          status: 200,
          body: await this.turn(tx, caller, await this.lock(tx, caller, projectId, id), verb),
        })),
      caller.account_id,
    );
    return answer.body;
  }

  /**
   * What the next period costs.
   * @throws ApiError 404, 409 `vm_not_ready` and `vm_deleting`, 503 when prices cannot be read
   */
  async quote(caller: KeyIdentity, projectId: string | null, id: string): Promise<V1VMRenewalQuote> {
    const row = await this.database.transaction(
      (tx) => this.lock(tx, caller, projectId, id),
      caller.account_id,
    );
    if (row.deleted_at) throw conflict('vm_deleting', 'the machine is being deleted');
    if (row.ephemeral) throw conflict('vm_ephemeral', 'an ephemeral machine has no period');
    if (row.provisioned_at === null) throw conflict('vm_not_ready', 'the machine has not been made');
    return this.renewals.quote(row);
  }

  private async renewIfExpired(
    caller: KeyIdentity,
    projectId: string | null,
    id: string,
    request: VMStartRequest | null,
  ): Promise<void> {
    const row = await this.database.transaction(
      (tx) => this.lock(tx, caller, projectId, id),
      caller.account_id,
    );
    if (row.deleted_at || !isExpired(row)) return;
    if (row.suspended) throw accountSuspended();
    if (!request?.renew) throw periodExpired();
    await this.renewals.renew(row, beginning(row), request.quote_token ?? null);
  }

  private async turn(
    tx: Sql,
    caller: KeyIdentity,
    row: VmRow,
    verb: PowerVerb,
  ): Promise<V1PowerActionResult> {
    const status = statusOf(row);
    // Looked at again under the lock: it may have expired meanwhile.
    if (verb === 'start' && status !== 'deleting' && isExpired(row)) throw periodExpired();
    if (verb !== 'stop' && status !== 'deleting' && row.suspended) throw accountSuspended();
    if (status === 'deleting') throw conflict('vm_deleting', 'the machine is being deleted');
    if (['pending', 'provisioning', 'error'].includes(status))
      throw conflict('vm_not_ready', `the machine is ${status}; it has not been made`);
    if (verb === 'restart' && row.power === 'stopped')
      throw conflict('vm_stopped', `the machine is ${status}; start it instead`);
    const nothing =
      (verb === 'start' && row.power === 'running' && status !== 'failed') ||
      (verb === 'stop' && row.power === 'stopped' && status !== 'failed') ||
      (verb === 'restart' && status === 'restarting');
    // Its owner's wish counts again when the account is in order.
    if (row.suspended && verb === 'stop')
      await tx.query("update vm set power = 'stopped' where id = $1::uuid", [row.id]);
    if (verb === 'stop' && isExpired(row)) await this.renewals.rest(tx, row.id);
    if (nothing) return { status, message: `nothing to do: the machine is ${status}` };
    const power = verb === 'stop' ? 'stopped' : 'running';
    const boot = verb === 'restart' ? row.boot + 1 : row.boot;
    await tx.query(
      `update vm set power = $2, boot = $3::int, generation = generation + 1, power_generation = generation + 1,
         updated_at = now() where id = $1::uuid`,
      [row.id, power, boot],
    );
    await wake(tx, 'vm', row.id);
    await sayAct(tx, caller, `vms_${verb}_vm`, { kind: 'vm', ...row });
    const entered = { start: 'starting', stop: 'stopping', restart: 'restarting' }[verb];
    return { status: entered, message: `the machine is ${entered}` };
  }

  private async lock(tx: Sql, caller: KeyIdentity, projectId: string | null, id: string): Promise<VmRow> {
    const row = await lockVm(tx, caller.account_id, projectId && pathId(projectId), pathId(id));
    if (!row) throw notFound();
    return row;
  }
}

/** The key sees all machines of its account. */
const isAll = (seen: Visible): boolean =>
  seen.allowProjects === null &&
  seen.withinProjects === null &&
  seen.denyProjects.length === 0 &&
  seen.denyIds.length === 0;

const periodExpired = () =>
  new ApiError(
    402,
    'period_expired',
    'the paid period has ended; start it with renew: true to pay the next one',
  );

const accountSuspended = () =>
  new ApiError(
    402,
    'account_suspended',
    'the balance is used up and the account is suspended; top it up, its machines then start by themselves',
  );
