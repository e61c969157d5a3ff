import { Injectable } from '@nestjs/common';
import type { LogBatch } from '@nebo/contracts';
import type { Sql } from '@nebo/persistence';
import { physicalLine } from '../shared/sse.js';

/** What is kept of a run's log: its first and its last lines, each part within lines and characters. */
const kept = { head: { lines: 20, characters: 8_192 }, tail: { lines: 200, characters: 32_768 } } as const;
/** The region's last lines may come after its verdict: so long they are still taken, seconds. */
const graceSeconds = 10;

interface LogRow {
  open: boolean;
  log_head: string[];
  log_tail: string[];
  log_lines: bigint;
  log_next: bigint;
}

/** Logs of job runs: the beginning and the end of each stay, in the run's own row. */
@Injectable()
export class RunLog {
  /**
   * Takes lines of a run. They come in order; a number that is below the next one was taken before.
   * @returns false when this is no run's stream of the region
   */
  async append(tx: Sql, regionId: string, runId: string, { lines, done }: LogBatch): Promise<boolean> {
    const [run] = await tx.query<LogRow>(
      `select not log_done and (finished_at is null or finished_at > now() - make_interval(secs => $3::int)) as open,
         log_head, log_tail, log_lines, log_next
       from job_run where id = $1::uuid and region_id = $2::uuid for update`,
      [runId, regionId, graceSeconds],
    );
    if (!run) return false;
    if (!run.open) return true;
    const next = Number(run.log_next);
    const fresh = lines.filter(({ seq }) => seq >= next);
    const { head, tail } = extend(
      run,
      fresh.map(({ line }) => physicalLine(line)),
    );
    await tx.query(
      `update job_run set log_head = $2::jsonb, log_tail = $3::jsonb, log_lines = log_lines + $4::int, log_next = $5::bigint,
         log_done = $6::boolean
       where id = $1::uuid`,
      [
        runId,
        JSON.stringify(head),
        JSON.stringify(tail),
        fresh.length,
        fresh.reduce((most, { seq }) => Math.max(most, seq + 1), next),
        done === true,
      ],
    );
    return true;
  }
}

/** Adds lines to what is kept; a line longer than its part allows is cut. */
function extend(run: LogRow, lines: string[]): { head: string[]; tail: string[] } {
  const head = [...run.log_head];
  const tail = [...run.log_tail];
  // Nothing has gone past the head as long as every line is in it.
  let whole = Number(run.log_lines) === head.length;
  let used = head.reduce((sum, line) => sum + line.length, 0);
  for (const line of lines) {
    const room = kept.head.characters - used;
    if (whole && head.length < kept.head.lines && line.length <= room) {
      head.push(line);
      used += line.length;
      continue;
    }
    whole = false;
    tail.push(line.slice(0, kept.tail.characters));
  }
  let size = tail.reduce((sum, line) => sum + line.length, 0);
  let first = 0;
  while (tail.length - first > kept.tail.lines || size > kept.tail.characters) size -= tail[first++]!.length;
  return { head, tail: tail.slice(first) };
}
