import { Injectable } from '@nestjs/common';
import type {
  SliceInfo,
  SliceOpenAnswer,
  SliceRenewAnswer,
  SliceRenewRequest,
  SliceReturnAnswer,
  SliceReturnRequest,
  SliceTakeAnswer,
  SliceTakeRequest,
} from '@nebo/contracts';
import { Database, type SqlValue } from '@nebo/persistence';
import { guardedError } from '../database/guarded.js';
import { MoneyService } from '../ledger/money.service.js';
import { BillingMetrics } from '../observe/billing-metrics.js';
import { Settings } from '../settings.js';
import { Recalls } from './recalls.js';

interface SliceRow {
  id: string;
  version: number;
  amount: bigint;
  month: string | null;
  expires_in: number;
}

/** Of the type `slice`. The month as text: a date would be read in the zone of this process. */
const columns = `id, version, amount, to_char(month, 'YYYY-MM') as month,
  greatest(0, floor(extract(epoch from expires_at - clock_timestamp()) * 1000))::integer as expires_in`;
/** Accounts that one transaction closes or freezes slices of. */
const accountsAtOnce = 100;

/**
 * Slices of money for routers of inference (contract: libs/contracts/src/internal/slices.ts). Each call is one guarded
 * statement: what is granted never makes balance − holds − leased negative, whatever happens at once.
 */
@Injectable()
export class SlicesService {
  constructor(
    private readonly database: Database,
    private readonly money: MoneyService,
    private readonly recalls: Recalls,
    private readonly metrics: BillingMetrics,
    private readonly settings: Settings,
  ) {}

  /** Begins a life of a router; what its former lives held comes free. @throws ApiError 503 */
  async open(router: string): Promise<SliceOpenAnswer> {
    try {
      const [row] = await this.database.query<{ epoch: number }>('select slice_open($1::uuid) as epoch', [
        router,
      ]);
      // Nobody can use them from now on; a death here leaves the rest to the sweep.
      while ((await this.closeFenced(router)) === accountsAtOnce);
      return { epoch: row!.epoch };
    } catch (error) {
      throw guardedError(error);
    }
  }

  /**
   * Grants money of an account, and of a key's limit with it. What other routers do not use is recalled first.
   * @throws ApiError 402 with `SliceRefusal` as details; 404 for an account or key that is gone; 409 `fenced`; 422; 503
   */
  async take(request: SliceTakeRequest): Promise<SliceTakeAnswer> {
    const { account_id: account, router_id: router, need, want, key } = request;
    const values: SqlValue[] = [
      router,
      request.epoch,
      account,
      need,
      want,
      key?.key_id ?? null,
      key?.need ?? null,
      key?.want ?? null,
      this.settings.sliceTermSeconds,
    ];
    const text = `select ${columns} from slice_take(
      $1::uuid, $2::integer, $3::uuid, $4::bigint, $5::bigint, $6::uuid, $7::bigint, $8::bigint, $9::integer)`;
    try {
      const rows = await this.recalls.patiently(account, router, () =>
        this.money.withoutExpired(account, () => this.database.named<SliceRow>('slice-take', text, values)),
      );
      return { account: sliceInfo(rows[0]!), key: rows[1] ? sliceInfo(rows[1]) : null };
    } catch (error) {
      throw guardedError(error, BigInt(need), true);
    }
  }

  /** Prolongs slices and notes what is in use. @throws ApiError 409 `fenced`; 503 */
  renew({ router_id, epoch, slices }: SliceRenewRequest): Promise<SliceRenewAnswer> {
    const wanted = once(slices);
    return this.many(
      'slice-renew',
      `select ${columns} from slice_renew($1::uuid, $2::integer, $3::uuid[], $4::bigint[], $5::integer)`,
      [
        router_id,
        epoch,
        wanted.map(({ id }) => id),
        wanted.map(({ in_use }) => in_use),
        this.settings.sliceTermSeconds,
      ],
    );
  }

  /** Takes back what is not used, once per version. @throws ApiError 409 `fenced`; 503 */
  giveBack({ router_id, epoch, slices }: SliceReturnRequest): Promise<SliceReturnAnswer> {
    const wanted = once(slices);
    return this.many(
      'slice-return',
      `select ${columns} from slice_return($1::uuid, $2::integer, $3::uuid[], $4::integer[], $5::bigint[])`,
      [
        router_id,
        epoch,
        wanted.map(({ id }) => id),
        wanted.map(({ version }) => version.toString()),
        wanted.map(({ amount }) => amount),
      ],
    );
  }

  /** Freezes what is past its term and ends what lives of the past have left; several may run at once. */
  async sweep(): Promise<void> {
    while ((await this.closeFenced(null)) === accountsAtOnce);
    for (let count = accountsAtOnce; count >= accountsAtOnce;) {
      const [row] = await this.database.query<{ count: number }>('select slice_sweep($1::integer) as count', [
        accountsAtOnce,
      ]);
      count = row!.count;
    }
    const [frozen] = await this.database.transaction((tx) =>
      tx.query<{ count: number }>("select count(*)::integer as count from slice where state = 'frozen'"),
    );
    this.metrics.frozenSlices(frozen!.count);
  }

  private async closeFenced(router: string | null): Promise<number> {
    const [row] = await this.database.query<{ count: number }>(
      'select slice_close_fenced($1::uuid, $2::integer) as count',
      [router, accountsAtOnce],
    );
    return row!.count;
  }

  private async many(name: string, text: string, values: SqlValue[]): Promise<{ slices: SliceInfo[] }> {
    try {
      return { slices: (await this.database.named<SliceRow>(name, text, values)).map(sliceInfo) };
    } catch (error) {
      throw guardedError(error);
    }
  }
}

const sliceInfo = ({ id, version, amount, expires_in, month }: SliceRow): SliceInfo => ({
  id,
  version,
  amount: amount.toString(),
  expires_in,
  ...(month === null ? {} : { month }),
});

/** The last word on each slice: one that is named twice would be changed twice or by chance. */
const once = <T extends { id: string }>(slices: readonly T[]): T[] => [
  ...new Map(slices.map((slice) => [slice.id.toLowerCase(), slice])).values(),
];
