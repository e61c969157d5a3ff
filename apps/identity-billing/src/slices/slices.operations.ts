import { Injectable } from '@nestjs/common';
import { formatRubles } from '@nebo/contracts';
import { Database } from '@nebo/persistence';
import { AuditService } from '../audit/audit.service.js';
import { guardedError } from '../database/guarded.js';

/** A slice as the operator sees it; amounts in rubles. */
export interface SliceRecord {
  id: string;
  account_id: string;
  router_id: string;
  epoch: number;
  /** Null: of the account's money. */
  key_id: string | null;
  month: string | null;
  amount: string;
  in_use: string;
  state: 'active' | 'frozen' | 'closed';
  expires_at: string;
}

interface Row extends Omit<SliceRecord, 'amount' | 'in_use' | 'expires_at'> {
  amount: bigint;
  in_use: bigint;
  expires_at: Date;
}

/** What is past its term is frozen, whether a sweep has come by or not. */
const columns = `id, account_id, router_id, epoch, key_id, to_char(month, 'YYYY-MM') as month, amount, in_use, expires_at,
  case when state = 'active' and expires_at <= clock_timestamp() then 'frozen' else state end as state`;
const maxListed = 1_000;

/** What the operator may do with slices: look, and give one up. */
@Injectable()
export class SlicesOperations {
  constructor(
    private readonly database: Database,
    private readonly audit: AuditService,
  ) {}

  /** Open slices of an account or of all, frozen ones first, the longest frozen first; at most 1,000. */
  async list(account: string | null): Promise<SliceRecord[]> {
    const rows = await this.database.transaction((tx) =>
      tx.query<Row>(
        `select * from (select ${columns} from slice where state <> 'closed' and ($1::uuid is null or account_id = $1::uuid)) s
         order by state = 'frozen' desc, expires_at, id limit ${maxListed}`,
        [account],
      ),
    );
    return rows.map(record);
  }

  /**
   * Closes a frozen slice and frees its money; a repeat changes nothing.
   * @returns the slice as it was
   * @throws ApiError 404; 409 `slice_in_use` while its term is not over; 503
   */
  async writeOff(id: string, actor: string): Promise<SliceRecord> {
    try {
      return await this.database.transaction(async (tx) => {
        const [row] = await tx.query<Row>(`select ${columns} from slice_write_off($1::uuid)`, [id]);
        const was = record(row!);
        if (was.state === 'closed') return was;
        const { account_id: account, router_id, key_id, amount } = was;
        await this.audit.write(tx, {
          account,
          actor,
          action: 'slice write-off',
          resource: `slice:${was.id}`,
          details: { router_id, amount, ...(key_id === null ? {} : { key_id }) },
        });
        return was;
      });
    } catch (error) {
      throw guardedError(error);
    }
  }
}

const record = ({ amount, in_use, expires_at, ...row }: Row): SliceRecord => ({
  ...row,
  amount: formatRubles(amount),
  in_use: formatRubles(in_use),
  expires_at: expires_at.toISOString(),
});
