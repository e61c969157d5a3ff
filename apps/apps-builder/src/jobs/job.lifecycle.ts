import { Injectable } from '@nestjs/common';
import { Lifecycle, type Outcome, State } from '@nebo/lifecycle';
import { Database, type Sql } from '@nebo/persistence';
import { Settings } from '../shared/settings.js';
import { settleTicks } from './job.rows.js';
import { MissedTicks } from './missed-ticks.js';

/** A job as its life sees it. */
export interface LivingJob {
  id: string;
  /** Milliseconds until the next tick by database time; null: none is due ever. */
  due_in: number | null;
  app_deleted: boolean;
}

/**
 * Life of a job: one state, which waits for the next tick and settles those that are due. It ends with the job or its app.
 * The clock is the database's. Set forward, it makes ticks late, and late ones are missed; set back, it makes the job wait:
 * the next tick never moves back.
 */
@Injectable()
export class JobLifecycle extends Lifecycle<LivingJob> {
  override readonly kind = 'job';

  constructor(
    private readonly database: Database,
    private readonly settings: Settings,
    private readonly missed: MissedTicks,
  ) {
    super();
  }

  override async load(tx: Sql, id: string): Promise<LivingJob | null> {
    const [row] = await tx.query<LivingJob>(
      `select j.id, (extract(epoch from j.next_tick - now()) * 1000)::float8 as due_in, a.deleted_at is not null as app_deleted
       from job j join app a on a.id = j.app_id where j.id = $1::uuid`,
      [id],
    );
    return row ?? null;
  }

  @State()
  async scheduled(job: LivingJob): Promise<Outcome> {
    if (job.app_deleted) return this.end();
    if (job.due_in === null) return this.wait();
    if (job.due_in > 0) return this.wait(job.due_in);
    // Guarded by the job's row and its next tick, not by the lease: a step that comes twice settles nothing twice.
    this.missed.count(
      await this.database.transaction((tx) => settleTicks(tx, job.id, this.settings.jobLateMs)),
    );
    return this.wait(0);
  }
}
