import { Changes } from '@nebo/service-kit';
import { Injectable } from '@nestjs/common';
import type { KeyIdentity, LogBatch } from '@nebo/contracts';
import { Database, type Sql } from '@nebo/persistence';
import { AppsService } from '../apps/apps.service.js';
import { Store } from '../shared/prisma.js';
import { Settings } from '../shared/settings.js';
import { comment, doneEvent, lineEvent, physicalLine } from '../shared/sse.js';
import { findBuild } from './builds.service.js';
import type { Topic } from '../shared/topics.js';

interface Line {
  seq: bigint;
  line: string;
}

/** What is at hand of a log, and how the build stands; read in this order: the state first. */
interface Portion {
  status: string;
  finished: boolean;
  closed: boolean;
  lines: Line[];
}

/** One read holds at most so many lines and about so many characters: a long history in seconds, little in memory. */
const portion = { lines: 5_000, characters: 1_000_000 } as const;
/** A number that is missing this long in a running log was never sent; milliseconds. */
const gapMs = 3_000;
/** The region's last lines may come after its verdict: so long they are still taken, seconds. */
const graceSeconds = 10;

/** The log of a build: kept by line numbers of the region, read as an event stream that ends with `done`. */
@Injectable()
export class BuildLog {
  constructor(
    private readonly store: Store,
    private readonly apps: AppsService,
    private readonly database: Database,
    private readonly changes: Changes<Topic>,
    private readonly settings: Settings,
  ) {}

  /**
   * Stores lines of a region. A line whose number is present is dropped, as is what comes after the end: two readers of a
   * finished log see the same lines.
   * @returns false when this is no build's stream of the region
   */
  async append(tx: Sql, regionId: string, buildId: string, { lines, done }: LogBatch): Promise<boolean> {
    const [build] = await tx.query<{ account_id: string; open: boolean }>(
      `select account_id, not log_done and (finished_at is null or finished_at > now() - make_interval(secs => $3::int)) as open
       from build where id = $1::uuid and region_id = $2::uuid for share`,
      [buildId, regionId, graceSeconds],
    );
    if (!build) return false;
    if (!build.open) return true;
    if (lines.length > 0) {
      await tx.query(
        `insert into build_log_line (build_id, seq, account_id, at, line)
         select $1::uuid, l.seq, $2::uuid, l.at, l.line from jsonb_to_recordset($3::jsonb) as l (seq bigint, at timestamptz, line text)
         on conflict do nothing`,
        [
          buildId,
          build.account_id,
          JSON.stringify(lines.map(({ seq, at, line }) => ({ seq, at, line: physicalLine(line) }))),
        ],
      );
    }
    if (done === true) await tx.query('update build set log_done = true where id = $1::uuid', [buildId]);
    await tx.query('select changed($1)::text', [`log:${buildId}`]);
    return true;
  }

  /**
   * The log as an event stream: history, then live, then `done` after the last stored line.
   * @param after number of the last line that the client has; null, or a line that this log does not have yet: from the start
   * @throws ApiError 404
   */
  async open(
    caller: KeyIdentity,
    projectId: string | null,
    appId: string,
    id: string,
    after: bigint | null,
    gone: AbortSignal,
  ): Promise<AsyncGenerator<string>> {
    const [build, last] = await this.store.as(caller.account_id, async ({ db, sql }) => {
      const found = await findBuild(db, await this.apps.find(db, caller, projectId, appId), id);
      return [found, after === null ? null : await lastLine(sql, found.id)] as const;
    });
    return this.stream(
      caller.account_id,
      build.app_id,
      build.id,
      after === null || last === null || after > last ? -1n : after,
      AbortSignal.any([gone, this.changes.stopping]),
    );
  }

  private async *stream(
    account: string,
    appId: string,
    buildId: string,
    after: bigint,
    over: AbortSignal,
  ): AsyncGenerator<string> {
    const ear = this.changes.listen(`log:${buildId}`, `app:${appId}`);
    let last = after;
    let gapSince: number | null = null;
    let spoke = Date.now();
    try {
      yield comment('build log');
      while (!over.aborted) {
        const seen: Portion | null = await this.read(account, buildId, last);
        if (seen === null) return;
        const passGap: boolean = seen.closed || (gapSince !== null && Date.now() - gapSince > gapMs);
        const ready: Line[] = passGap ? seen.lines : contiguous(seen.lines, last);
        gapSince = ready.length < seen.lines.length ? (gapSince ?? Date.now()) : null;
        if (ready.length > 0) {
          yield ready.map(({ seq, line }) => lineEvent(seq, line)).join('');
          last = ready.at(-1)!.seq;
          spoke = Date.now();
          continue;
        }
        if (seen.closed) {
          yield doneEvent(seen.status);
          return;
        }
        const quiet = this.settings.keepAliveMs - (Date.now() - spoke);
        if (quiet <= 0) {
          yield comment('keep-alive');
          spoke = Date.now();
          continue;
        }
        // A gap and a log whose end is due change by time alone; nobody notifies of that.
        const patience = gapSince !== null ? 200 : seen.finished ? 1_000 : quiet;
        await ear.next(Math.min(quiet, patience), over);
      }
    } finally {
      ear.close();
    }
  }

  /** Null when the build is gone. */
  private read(account: string, buildId: string, after: bigint): Promise<Portion | null> {
    return this.database.transaction(async (tx) => {
      // The state is read before the lines: when it says closed, no line can come after those that are read then.
      const [state] = await tx.query<Omit<Portion, 'lines'>>(
        // Two seconds more than lines are taken: a batch that began just in time has been committed by then.
        `select status, finished_at is not null as finished,
           finished_at is not null and (log_done or finished_at < now() - make_interval(secs => $2::int)) as closed
         from build where id = $1::uuid`,
        [buildId, graceSeconds + 2],
      );
      if (!state) return null;
      const lines = await tx.query<Line>(
        `select seq, line from (
           select seq, line, sum(length(line)) over (order by seq) - length(line) as before
           from (select seq, line from build_log_line where build_id = $1::uuid and seq > $2::bigint order by seq limit $3::int) l) t
         where before < $4::int order by seq`,
        [buildId, after.toString(), portion.lines, portion.characters],
      );
      return { ...state, lines };
    }, account);
  }
}

/** Number of the last line that is stored; null: none is. */
async function lastLine(sql: Sql, buildId: string): Promise<bigint | null> {
  const [row] = await sql.query<{ seq: bigint | null }>(
    'select max(seq) as seq from build_log_line where build_id = $1::uuid',
    [buildId],
  );
  return row!.seq;
}

/** The lines that follow the last one without a gap: a batch may overtake another on its way. */
function contiguous(rows: Line[], last: bigint): Line[] {
  let next = last + 1n;
  for (const [index, { seq }] of rows.entries()) {
    if (seq !== next) return rows.slice(0, index);
    next += 1n;
  }
  return rows;
}
