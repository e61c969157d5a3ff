import { Injectable, type OnApplicationBootstrap } from '@nestjs/common';
import { say } from '@nebo/bus';
import { formatRubles, type PriceInfo, type PricesSetRequest, type TariffPlanInfo } from '@nebo/contracts';
import { Database, type Sql } from '@nebo/persistence';
import { AuditService } from '../audit/audit.service.js';
import { PrismaService } from '../database/prisma.service.js';
import { says } from '../events.js';
import { Settings } from '../settings.js';
import { type FilePrice, findPriceFile, readPriceFile } from './price-file.js';

/** PostgreSQL's advisory lock of all that write prices, so that versions follow each other. */
const priceLock = 4_738_202;

interface PriceRow {
  id: string;
  version: number;
  amount: bigint;
  unit: string;
}

const latest = 'select distinct on (id) id, version, amount, unit from price';

/** The versioned price table: a price that was charged at is never changed, only followed by a new version. */
@Injectable()
export class PricesService implements OnApplicationBootstrap {
  constructor(
    private readonly database: Database,
    private readonly prisma: PrismaService,
    private readonly audit: AuditService,
    private readonly settings: Settings,
  ) {}

  /** Takes the price file: at the first start all of it, later the lines that changed in it since. */
  async onApplicationBootstrap(): Promise<void> {
    const file = readPriceFile(this.settings.pricesFile ?? findPriceFile());
    await this.database.transaction(async (tx) => {
      await tx.query('select pg_advisory_xact_lock($1)', [priceLock]);
      // Compared with what the file said last, so that a price which the operator set stays until its line is changed.
      const said = await tx.query<PriceRow>(`${latest} where origin = 'file' order by id, version desc`);
      const known = new Map(said.map((row) => [row.id, row]));
      const changed = file.prices.filter(
        ({ id, amount, unit }) => known.get(id)?.amount !== amount || known.get(id)?.unit !== unit,
      );
      await this.insert(tx, changed, 'file');
      await tx.query('update tariff_plan set is_default = false where is_default');
      for (const plan of file.plans) {
        await tx.query(
          `insert into tariff_plan (id, name, active_cpu_hours, memory_gb_hours, is_default) values ($1, $2, $3, $4, $5)
           on conflict (id) do update set name = excluded.name, active_cpu_hours = excluded.active_cpu_hours,
             memory_gb_hours = excluded.memory_gb_hours, is_default = excluded.is_default`,
          [plan.id, plan.name, plan.active_cpu_hours, plan.memory_gb_hours, plan.is_default],
        );
      }
    });
  }

  /** The newest version of each price whose id begins with `prefix`, by id. */
  async list(prefix = ''): Promise<PriceInfo[]> {
    const rows = await this.database.query<PriceRow>(
      `${latest} where starts_with(id, $1) order by id, version desc`,
      [prefix],
    );
    return rows.map(priceInfo);
  }

  /**
   * Sets prices: those that differ get a new version, the others stay.
   * @param actor for the audit log
   * @returns the prices that were asked for, as they stand now
   */
  async set(request: PricesSetRequest, actor: string): Promise<PriceInfo[]> {
    const wanted = [
      ...new Map(
        request.prices.map((price) => [price.id, { ...price, amount: BigInt(price.amount) }]),
      ).values(),
    ];
    return this.database.transaction(async (tx) => {
      await tx.query('select pg_advisory_xact_lock($1)', [priceLock]);
      const ids = wanted.map((price) => price.id);
      const now = async () =>
        tx.query<PriceRow>(`${latest} where id = any($1::text[]) order by id, version desc`, [ids]);
      const known = new Map((await now()).map((row) => [row.id, row]));
      const changed = wanted.filter(
        ({ id, amount, unit }) => known.get(id)?.amount !== amount || known.get(id)?.unit !== unit,
      );
      await this.insert(tx, changed, 'set');
      for (const { id, amount, unit } of changed) {
        const details = { amount: formatRubles(amount), unit };
        await this.audit.write(tx, {
          account: null,
          actor,
          action: 'price set',
          resource: `price:${id}`,
          details,
        });
      }
      if (changed.length > 0) await say(tx, says.priceChanged({ ids: changed.map(({ id }) => id) }));
      return (await now()).map(priceInfo);
    });
  }

  private async insert(tx: Sql, prices: readonly FilePrice[], origin: 'file' | 'set'): Promise<void> {
    for (const { id, amount, unit } of prices) {
      await tx.query(
        `insert into price (id, version, amount, unit, origin)
         select $1, coalesce(max(version), 0) + 1, $2::bigint, $3, $4 from price where id = $1`,
        [id, amount.toString(), unit, origin],
      );
    }
  }

  /** Tariff plans of accounts, the default one first. */
  async tariffPlans(): Promise<TariffPlanInfo[]> {
    return this.prisma.forAccount('system', (tx) =>
      tx.tariffPlan.findMany({ orderBy: [{ is_default: 'desc' }, { active_cpu_hours: 'asc' }] }),
    );
  }
}

const priceInfo = (row: PriceRow): PriceInfo => ({
  id: row.id,
  version: row.version,
  amount: row.amount.toString(),
  unit: row.unit,
});
