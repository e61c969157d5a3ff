import { Injectable } from '@nestjs/common';
import type { RunFacts } from '@nebo/contracts';
import { Lifecycle, minutes, type Outcome, seconds, State, type StepContext, wake } from '@nebo/lifecycle';
import type { Sql } from '@nebo/persistence';

/** A run as its life sees it. */
export interface LivingRun {
  id: string;
  app_id: string;
  kind: string;
  status: string;
  generation: number;
  gone: boolean;
  timeout_ms: number;
  /** Milliseconds since the region began it; null: it has not. */
  running_ms: number | null;
  observed_generation: number | null;
  observed_state: 'running' | 'success' | 'error' | 'timeout' | 'cancelled' | null;
  observed_reason: string | null;
  observed_facts: Partial<RunFacts> | null;
  /** Why it shall not go on, or null. */
  called_off: string | null;
  /** Why it gets no address in the app's private network, or has none yet; null: it has one, or needs none. */
  port_refused: string | null;
  port_trouble: string | null;
}

type Final = 'success' | 'error' | 'timeout' | 'cancelled';

/** Beyond its time-out a run may take so long to stop and be reported. */
const reportMs = seconds(60);

/**
 * Life of a run. queued → running → success | error | timeout | cancelled. The region begins it once and keeps its time;
 * a region that vanishes cannot hold it for longer than the time-out and a minute.
 */
@Injectable()
export class JobRunLifecycle extends Lifecycle<LivingRun> {
  override readonly kind = 'job_run';

  override async load(tx: Sql, id: string): Promise<LivingRun | null> {
    const [row] = await tx.query<LivingRun>(
      `select r.id, r.app_id, r.kind, r.status, r.generation, r.gone, r.timeout_ms, (extract(epoch from now() - r.started_at) * 1000)::float8 as running_ms,
         r.observed_generation, r.observed_state, r.observed_reason, r.observed_facts,
         case when a.deleted_at is not null then 'the app was deleted' when a.suspended then 'the account was suspended'
           when r.gone then 'the job was deleted' end as called_off, t.refused as port_refused, t.trouble as port_trouble
       from job_run r join app a on a.id = r.app_id left join app_port t on t.id = r.port_id where r.id = $1::uuid`,
      [id],
    );
    return row ?? null;
  }

  @State({ deadline: minutes(15), onMissed: 'lost' })
  queued(run: LivingRun): Outcome {
    if (run.called_off !== null) return this.callOff(run);
    if (run.port_refused !== null) return this.fail(run.port_refused, 'lost');
    if (run.observed_state === null)
      return this.wait(Infinity, run.port_trouble ?? 'the region has not begun this run');
    return this.go('running', (tx) =>
      tx.query(
        "update job_run set status = 'running', started_at = now() where id = $1::uuid and status = 'queued'",
        [run.id],
      ),
    );
  }

  @State({ deadline: minutes(70), onMissed: 'lost' })
  running(run: LivingRun): Outcome {
    if (run.observed_state !== null && run.observed_state !== 'running') return this.report(run);
    if (run.called_off !== null) return this.callOff(run);
    const left = run.timeout_ms + reportMs - (run.running_ms ?? 0);
    if (left <= 0)
      return this.fail('the region did not report the end of this run within its time-out', 'lost');
    return this.wait(left, 'the region has not reported its end');
  }

  /** It shall not go on; the region may still write its last lines. */
  @State({ deadline: seconds(15), onMissed: 'cancelled' })
  stopping(run: LivingRun): Outcome {
    const ended = run.observed_state !== null && run.observed_state !== 'running';
    return ended ? this.report(run) : this.wait(Infinity, 'the region has not stopped it');
  }

  @State()
  cancelled(run: LivingRun): Outcome {
    return this.end((tx) => finish(tx, run, 'cancelled', run.called_off));
  }

  @State()
  lost(run: LivingRun, { reason }: StepContext): Outcome {
    return this.end((tx) => finish(tx, run, 'error', reason ?? 'the region is away'));
  }

  private callOff(run: LivingRun): Outcome {
    return this.go('stopping', (tx) =>
      tx.query(
        'update job_run set gone = true, generation = generation + 1 where id = $1::uuid and not gone',
        [run.id],
      ),
    );
  }

  /** The region has said how it ended. */
  private report(run: LivingRun): Outcome {
    const status = run.observed_state as Final;
    const words = status === 'cancelled' ? (run.called_off ?? run.observed_reason) : run.observed_reason;
    const error = status === 'success' ? null : (words ?? `the run ended with ${status}`);
    return this.end((tx) => finish(tx, run, status, error));
  }
}

/** Writes the end once; what the region may still do for the run is called off. */
async function finish(tx: Sql, run: LivingRun, status: Final, error: string | null): Promise<void> {
  const { exit_code, duration_ms } = run.observed_facts ?? {};
  const ended = await tx.query(
    `update job_run set status = $2, error = $3, exit_code = $4::int, finished_at = now(),
       started_at = coalesce(started_at, case when $5::int is null then null else now() - $5::int * interval '1 millisecond' end),
       duration_ms = coalesce($5::int, (extract(epoch from now() - started_at) * 1000)::int),
       generation = generation + (not gone and (observed_state is null or observed_state = 'running'))::int,
       gone = gone or observed_state is null or observed_state = 'running'
     where id = $1::uuid and status in ('queued', 'running') returning 1 as ended`,
    [run.id, status, error, whole(exit_code, -1), whole(duration_ms, 0)],
  );
  // The rollout of its version waits for it.
  if (ended.length > 0 && run.kind === 'predeploy') await wake(tx, 'rollout', run.app_id);
}

const whole = (value: unknown, min: number): number | null =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= min && value < 2 ** 31 ? value : null;
