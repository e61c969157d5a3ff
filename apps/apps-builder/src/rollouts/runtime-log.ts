import { Changes } from '@nebo/service-kit';
import { Injectable } from '@nestjs/common';
import type { KeyIdentity, LogBatch } from '@nebo/contracts';
import { Database, type Sql } from '@nebo/persistence';
import { AppsService } from '../apps/apps.service.js';
import { Store } from '../shared/prisma.js';
import { Settings } from '../shared/settings.js';
import { comment, doneEvent, lineEvent, physicalLine } from '../shared/sse.js';
import type { Topic } from '../shared/topics.js';

interface Line {
  pos: bigint;
  line: string;
}

/** One read holds at most so many lines and about so many characters. */
const portion = { lines: 2_000, characters: 1_000_000 } as const;

/** How much history comes first, and whether the stream goes on. */
export interface RuntimeLogQuery {
  /** Lines; ignored when `after` is given. */
  tail: number;
  /** False: `done` after the history. */
  follow: boolean;
  /** Position of the last line that the client has; one that this log has never had counts as none. */
  after: bigint | null;
}

/** What an app's replicas print, in the order in which it arrived. */
@Injectable()
export class RuntimeLog {
  constructor(
    private readonly store: Store,
    private readonly apps: AppsService,
    private readonly database: Database,
    private readonly changes: Changes<Topic>,
    private readonly settings: Settings,
  ) {}

  /** Stores lines of a replica. @returns false when this is no replica's stream of the region */
  async append(tx: Sql, regionId: string, replicaId: string, { lines }: LogBatch): Promise<boolean> {
    const [replica] = await tx.query<{ account_id: string; app_id: string }>(
      'select account_id, app_id from replica where id = $1::uuid and region_id = $2::uuid',
      [replicaId, regionId],
    );
    if (!replica) return false;
    if (lines.length === 0) return true;
    // Positions must become visible in their order, or a reader would pass over one: writers of an app take turns.
    await tx.query('select pg_advisory_xact_lock(hashtextextended($1, 1))', [`runtime:${replica.app_id}`]);
    await tx.query(
      `insert into runtime_log_line (account_id, app_id, replica_id, seq, at, line)
       select $1::uuid, $2::uuid, $3::uuid, l.seq, l.at, l.line
       from jsonb_to_recordset($4::jsonb) as l (seq bigint, at timestamptz, line text) order by l.seq
       on conflict (replica_id, seq) do nothing`,
      [
        replica.account_id,
        replica.app_id,
        replicaId,
        JSON.stringify(lines.map(({ seq, at, line }) => ({ seq, at, line: physicalLine(line) }))),
      ],
    );
    await tx.query('select changed($1)', [`runtime:${replica.app_id}`]);
    return true;
  }

  /** @throws ApiError 404 */
  async open(
    caller: KeyIdentity,
    projectId: string | null,
    appId: string,
    query: RuntimeLogQuery,
    gone: AbortSignal,
  ): Promise<AsyncGenerator<string>> {
    const app = await this.store.as(caller.account_id, ({ db }) =>
      this.apps.find(db, caller, projectId, appId),
    );
    return this.stream(caller.account_id, app.id, query, AbortSignal.any([gone, this.changes.stopping]));
  }

  private async *stream(
    account: string,
    appId: string,
    query: RuntimeLogQuery,
    over: AbortSignal,
  ): AsyncGenerator<string> {
    const ear = this.changes.listen(`runtime:${appId}`, `app:${appId}`);
    let spoke = Date.now();
    try {
      yield comment('runtime log');
      let last = await this.start(account, appId, query);
      while (!over.aborted) {
        const rows = await this.read(account, appId, last);
        if (rows === null) return;
        if (rows.length > 0) {
          yield rows.map(({ pos, line }) => lineEvent(pos, line)).join('');
          last = rows.at(-1)!.pos;
          spoke = Date.now();
          continue;
        }
        if (!query.follow) {
          yield doneEvent('end of the stored log');
          return;
        }
        const quiet = this.settings.keepAliveMs - (Date.now() - spoke);
        if (quiet <= 0) {
          yield comment('keep-alive');
          spoke = Date.now();
          continue;
        }
        await ear.next(quiet, over);
      }
    } finally {
      ear.close();
    }
  }

  /** The position that a reader has already, or else the one before the last `tail` lines. */
  private async start(account: string, appId: string, { after, tail }: RuntimeLogQuery): Promise<bigint> {
    const [row] = await this.database.transaction(
      (tx) =>
        tx.query<{ newest: bigint | null; pos: bigint }>(
          `select (select max(pos) from runtime_log_line where app_id = $1::uuid) as newest,
             coalesce(min(pos), (select max(pos) + 1 from runtime_log_line where app_id = $1::uuid), 1) - 1 as pos
           from (select pos from runtime_log_line where app_id = $1::uuid order by pos desc limit $2::int) newest`,
          [appId, tail],
        ),
      account,
    );
    const { newest, pos } = row!;
    // The newest line goes last: a reader ahead of it never had that one from here, but from a database of before, say.
    return after !== null && newest !== null && after <= newest ? after : pos;
  }

  /** Null when the app is gone. */
  private read(account: string, appId: string, after: bigint): Promise<Line[] | null> {
    return this.database.transaction(async (tx) => {
      const present = await tx.query(
        'select 1 as present from app where id = $1::uuid and deleted_at is null',
        [appId],
      );
      if (present.length === 0) return null;
      return tx.query<Line>(
        `select pos, line from (
           select pos, line, sum(length(line)) over (order by pos) - length(line) as before
           from (select pos, line from runtime_log_line where app_id = $1::uuid and pos > $2::bigint order by pos limit $3::int) l) t
         where before < $4::int order by pos`,
        [appId, after.toString(), portion.lines, portion.characters],
      );
    }, account);
  }
}
