import { randomUUID } from 'node:crypto';
import { Inject, Injectable } from '@nestjs/common';
import { formatRubles, type V1VMRenewalQuote } from '@nebo/contracts';
import { wake } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import { ApiError, conflict, RUNTIME, type Runtime } from '@nebo/service-kit';
import { CatalogueService } from '../catalogue/catalogue.service.js';
import { type Period, periodEnd, Prices, type Quote } from '../catalogue/prices.js';
import { VmMoney } from './vm-money.js';
import type { VmRow } from './vm.rows.js';

/** How long a quote is good for, milliseconds. */
const quoteMs = 10 * 60_000;

interface Quoted {
  /** 10⁻⁹ rubles. */
  amount: string;
  until: number;
}

/** A renewal under way. */
interface Open {
  id: string;
  until: Date;
  /** Whether the machine ran when it was stopped in doubt of this one; null: it was not. */
  resumes: boolean | null;
}

/**
 * Renewals of periods. At most one is under way per machine and period, kept before any money moves: whoever comes after a
 * death in the middle charges that one and never a second.
 */
@Injectable()
export class VmRenewals {
  constructor(
    private readonly database: Database,
    private readonly catalogue: CatalogueService,
    private readonly prices: Prices,
    private readonly money: VmMoney,
    @Inject(RUNTIME) private readonly runtime: Pick<Runtime, 'masterKey'>,
  ) {}

  /** What the next period costs now. @throws ApiError 503 when prices cannot be read */
  async quote(vm: VmRow): Promise<V1VMRenewalQuote> {
    const from = beginning(vm);
    const { amount } = await this.price(vm, from);
    const quoted: Quoted = { amount: amount.toString(), until: Date.now() + quoteMs };
    return {
      quote_token: this.runtime.masterKey.seal(JSON.stringify(quoted), sealedTo(vm)).toString('base64url'),
      amount: formatRubles(amount),
      period_start: from.toISOString(),
      period_end: periodEnd(from, periodOf(vm)).toISOString(),
      valid_until: new Date(quoted.until).toISOString(),
    };
  }

  /**
   * Pays the next period. A repeat, also at once with another one, pays it once.
   * @param from where the period begins: a machine that runs on pays from where the last one ended
   * @param token the quote that the owner has seen; null: whatever it costs now
   * @throws ApiError 402 with billing's reason, 409 `quote_outdated`, also for what is no quote for this machine and
   *   period, 503; nothing is charged then
   */
  async renew(vm: VmRow, from: Date, token: string | null): Promise<void> {
    const open = await this.open(vm);
    if (open !== null) {
      if ((await this.money.capture({ id: open.id, account_id: vm.account_id })) === null)
        return this.apply(vm, open);
      await this.drop(open.id);
    }
    const quote = await this.price(vm, from);
    if (token !== null) this.check(vm, token, quote);
    const renewal = { id: randomUUID(), from, until: periodEnd(from, periodOf(vm)) };
    const ordered = { id: renewal.id, account_id: vm.account_id };
    if (!(await this.begin(vm, renewal)))
      throw conflict(
        'renewal_in_progress',
        'the period is just being paid, or the machine is just being changed',
      );
    try {
      await this.money.reserve(ordered, quote, `renewal of machine ${vm.hostname}`);
    } catch (error) {
      await this.drop(renewal.id);
      throw error;
    }
    const refused = await this.money.capture(ordered);
    if (refused !== null) {
      await this.drop(renewal.id);
      throw conflict('renewal_expired', 'the payment could not be completed in time; nothing was charged');
    }
    return this.apply(vm, renewal);
  }

  /**
   * Ends a renewal that a death or a lost answer left half done, without a new one: what was charged counts, what is only held
   * goes back.
   * @param doubted only one for which the machine was stopped (`doubt`); the machine runs again when it was charged
   * @returns whether the period is paid
   * @throws ApiError when billing is away: ask again
   */
  async finish(vm: VmRow, doubted = false): Promise<boolean> {
    const open = await this.open(vm);
    if (open === null || (doubted && open.resumes === null)) return false;
    try {
      await this.money.letGo({ id: open.id, account_id: vm.account_id });
    } catch (error) {
      if (!(error instanceof ApiError && error.code === 'already_captured')) throw error;
      await this.apply(vm, open, doubted);
      return true;
    }
    await this.drop(open.id);
    return false;
  }

  /**
   * Nobody knows whether the renewal under way was charged, and the machine is about to be stopped for that; its row is locked.
   * What it was until then is kept.
   */
  async doubt(tx: Sql, { id, paid_until }: VmRow): Promise<void> {
    await tx.query(
      `update vm_renewal r set resumes = v.power = 'running' from vm v
       where r.vm_id = $1::uuid and r.after = $2::timestamptz and r.state = 'open' and v.id = r.vm_id`,
      [id, paid_until],
    );
  }

  /** Its owner wants the machine stopped, whatever comes of a renewal that is in doubt. */
  async rest(tx: Sql, vmId: string): Promise<void> {
    await tx.query('update vm_renewal set resumes = false where vm_id = $1::uuid and resumes', [vmId]);
  }

  private async price(vm: VmRow, from: Date): Promise<Quote> {
    const plan = await this.catalogue.plan(vm.plan_id);
    return this.prices.period({ ...vm, plan }, periodOf(vm), from);
  }

  private check(vm: VmRow, token: string, { amount }: Quote): void {
    let quoted: Quoted;
    try {
      const bytes = Buffer.from(token, 'base64url');
      quoted = JSON.parse(this.runtime.masterKey.open(bytes, sealedTo(vm))) as Quoted;
    } catch {
      throw conflict(
        'quote_outdated',
        'the quote is not one for this machine and period; ask for another one',
      );
    }
    if (quoted.until < Date.now() || BigInt(quoted.amount) !== amount)
      throw conflict('quote_outdated', 'the quote is too old or the price has changed; ask for another one');
  }

  private async open(vm: VmRow): Promise<Open | null> {
    const [row] = await this.database.transaction((tx) =>
      tx.query<Open>(
        `select id, until, resumes from vm_renewal
         where vm_id = $1::uuid and after = $2::timestamptz and state = 'open'`,
        [vm.id, vm.paid_until],
      ),
    );
    return row ?? null;
  }

  /** Of the machine as it was priced: a change of its size and a renewal never pass one another. */
  private begin(vm: VmRow, { id, from, until }: { id: string; from: Date; until: Date }): Promise<boolean> {
    return this.database.transaction(async (tx) => {
      await tx.query('select 1 as held from vm where id = $1::uuid for update', [vm.id]);
      const rows = await tx.query(
        `insert into vm_renewal (id, account_id, vm_id, after, starts, until)
         select $1::uuid, v.account_id, v.id, $3::timestamptz, $7::timestamptz, $4::timestamptz from vm v
         where v.id = $2::uuid and v.deleted_at is null and v.plan_id = $5::uuid and v.disk_gb = $6::int
           and not exists (select 1 from vm_resize r where r.vm_id = v.id and r.state = 'open')
         on conflict do nothing returning 1 as begun`,
        [id, vm.id, vm.paid_until, until, vm.plan_id, vm.disk_gb, from],
      );
      return rows.length === 1;
    });
  }

  private async drop(id: string): Promise<void> {
    await this.database.transaction((tx) =>
      tx.query("update vm_renewal set state = 'dropped' where id = $1::uuid and state = 'open'", [id]),
    );
  }

  /**
   * The period is charged: it counts once, whoever comes first. What was dropped meanwhile is paid back, and that of a
   * machine that was deleted when the machine ends.
   * @param resumes whether a machine that was stopped in doubt of this renewal runs again
   */
  private async apply(vm: VmRow, { id, until }: { id: string; until: Date }, resumes = false): Promise<void> {
    const counts = await this.database.transaction(async (tx) => {
      await tx.query('select 1 as locked from vm where id = $1::uuid for update', [vm.id]);
      const done = await tx.query(
        `update vm_renewal r set state = 'done' from vm v
         where r.id = $1::uuid and r.state = 'open' and v.id = r.vm_id and v.deleted_at is null returning 1 as done`,
        [id],
      );
      if (done.length === 0) return (await this.state(tx, id)) !== 'dropped';
      await tx.query(
        `update vm v set paid_from = coalesce(r.starts, v.paid_until), paid_until = $2::timestamptz
         from vm_renewal r where v.id = $1::uuid and r.id = $3::uuid`,
        [vm.id, until, id],
      );
      if (resumes) {
        await tx.query(
          `update vm v set power = 'running', generation = v.generation + 1, updated_at = now() from vm_renewal r
           where v.id = $1::uuid and r.id = $2::uuid and r.resumes and v.power = 'stopped'`,
          [vm.id, id],
        );
        await wake(tx, 'vm', vm.id);
      }
      await wake(tx, 'vm_period', vm.id);
      return true;
    });
    if (!counts) await this.money.giveBack({ id, account_id: vm.account_id }, 'renewed twice at once');
  }

  private async state(tx: Sql, id: string): Promise<string | null> {
    const [row] = await tx.query<{ state: string }>('select state from vm_renewal where id = $1::uuid', [id]);
    return row?.state ?? null;
  }

  /** The machine ends: what was charged for it and never counted is paid back. @throws ApiError when billing is away */
  async settle(vm: VmRow): Promise<void> {
    const rows = await this.database.transaction((tx) =>
      tx.query<{ id: string }>("select id from vm_renewal where vm_id = $1::uuid and state <> 'done'", [
        vm.id,
      ]),
    );
    for (const { id } of rows)
      await this.money.giveBack({ id, account_id: vm.account_id }, 'the machine was deleted');
  }
}

const sealedTo = (vm: VmRow) => `renewal|${vm.account_id}|${vm.id}|${vm.paid_until?.toISOString() ?? ''}`;

export const periodOf = ({ period_days, period_months }: VmRow): Period =>
  period_days !== null ? { days: period_days } : { months: period_months ?? 1 };

/** A period that goes on begins where the last one ends; one that is paid later begins when it is paid. */
export const beginning = ({ paid_until }: VmRow): Date =>
  new Date(Math.max(Date.now(), paid_until?.getTime() ?? 0));
