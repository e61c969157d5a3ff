import { randomUUID } from 'node:crypto';
import { Database } from '@nebo/persistence';
import { startServices, type TestProcess } from '@nebo/service-kit/testing';
import { sharedPostgres } from '@nebo/test-kit';
import { FakeAgent } from '../../test/fake-agent.js';
import { Bench, eventually, pause } from '../../test/harness.js';
import { appsBuilder } from '../apps-builder.module.js';
import { Housekeeping } from '../shared/housekeeping.js';
import { settleTicks } from './job.rows.js';

interface Row {
  status: string;
  error: string | null;
  kind: string;
  scheduled_for: string;
  triggered_by: string;
}

/** The schedule: which ticks are run, which are missed, and that none is either twice. */
describe('ticks of jobs', () => {
  let bench: Bench;
  let agent: FakeAgent;
  let app: string;

  beforeAll(async () => {
    bench = await Bench.start();
    agent = new FakeAgent(bench);
    const made = await bench.appWithBuild();
    app = made.app.id;
    await agent.build(made.build.id, 'server');
    await eventually(
      'built',
      async () => (await bench.api('GET', `apps/${app}/builds/${made.build.id}`)).body.status === 'success',
    );
    await bench.sql(
      'update app set current_revision_id = (select id from revision where build_id = $2 limit 1) where id = $1',
      [app, made.build.id],
    );
  });
  // A minute that turns in the middle of a test brings a tick of its own.
  beforeEach(async () => {
    const second = new Date().getUTCSeconds();
    if (second >= 48) await pause((60 - second) * 1_000);
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  const create = async (schedule = '* * * * *', of = app): Promise<string> => {
    const name = `j${randomUUID()}`;
    const answer = await bench.api('POST', `apps/${of}/jobs`, { name, command: 'true', schedule });
    if (answer.status !== 201) throw new Error(answer.text);
    return answer.body.id;
  };
  /** As if the next tick had been due at that moment and nobody had looked; the scheduler wakes. */
  const dueSince = async (job: string, ago: string) => {
    await bench.sql(`update job set next_tick = date_trunc('minute', now() - $2::interval) where id = $1`, [
      job,
      ago,
    ]);
    await bench.sql("update lifecycle set wakes = wakes + 1, run_at = now() where kind = 'job' and id = $1", [
      job,
    ]);
  };
  const runs = async (job: string, of = app): Promise<Row[]> =>
    (await bench.api('GET', `apps/${of}/job-runs?job_id=${job}&limit=200`)).body.data;
  const settled = (job: string, of = app) =>
    eventually('settled', async () => {
      const [row] = await bench.sql<{ ahead: boolean }>(
        'select next_tick > now() as ahead from job where id = $1',
        [job],
      );
      return row!.ahead && (await runs(job, of));
    });
  const finishAll = async (job: string) => {
    for (const { id } of await bench.sql<{ id: string }>(
      "select id from job_run where job_id = $1 and status in ('queued', 'running')",
      [job],
    )) {
      const item = await agent.until('wanted', (wanted) => wanted.id === id);
      await agent.observe(item, 'running');
      await agent.observe(item, 'success', { facts: { exit_code: 0, duration_ms: 1 } });
      await eventually(
        'ended',
        async () =>
          (await bench.sql("select 1 from job_run where id = $1 and status = 'success'", [id])).length,
      );
    }
  };
  const missedMetric = async (cause: string): Promise<number> => {
    const text = (await bench.nebo.request('apps-builder', { path: '/metrics', as: null })).text;
    const line = text
      .split('\n')
      .find((one) => one.startsWith('nebo_job_ticks_missed_total{') && one.includes(`cause="${cause}"`));
    return line ? Number(line.split(' ').at(-1)) : 0;
  };

  it('begins a run of the tick that is due, by the schedule, and moves on to the next one', async () => {
    const job = await create();
    await dueSince(job, '0 seconds');
    const [run, ...rest] = await settled(job);
    expect(rest).toEqual([]);
    expect(run).toMatchObject({ status: 'queued', kind: 'scheduled', triggered_by: 'schedule', error: null });
    expect(new Date(run!.scheduled_for).getUTCSeconds()).toBe(0);
  });

  it('a tick that nobody began in time is missed with its reason, and counted for the alert', async () => {
    const before = await missedMetric('late');
    const job = await create();
    await dueSince(job, '3 minutes 10 seconds');
    const rows = await settled(job);
    // The newest one is begun: it is due for less than a minute.
    expect(rows[0]).toMatchObject({ status: 'queued' });
    const missed = rows.slice(1);
    expect(missed.length).toBeGreaterThanOrEqual(3);
    for (const row of missed)
      expect(row).toMatchObject({
        status: 'missed',
        kind: 'scheduled',
        error: 'the control plane was not there when it was due',
      });
    expect(new Set(rows.map(({ scheduled_for }) => scheduled_for)).size).toBe(rows.length);
    expect(await missedMetric('late')).toBe(before + missed.length);
  });

  it('a tick of a rare schedule that is long over is missed, none is begun', async () => {
    const job = await create('0 0 1 1 *');
    await dueSince(job, '2 hours');
    const rows = await settled(job);
    expect(rows).toMatchObject([{ status: 'missed' }]);
  });

  it('a long absence is one row that counts its ticks', async () => {
    const job = await create();
    await dueSince(job, '3 days');
    const rows = await settled(job);
    expect(rows).toHaveLength(2);
    expect(rows[0]).toMatchObject({ status: 'queued' });
    expect(rows[1]!.error).toMatch(/^43(19|2\d) ticks from \S+ to \S+: the control plane was not there/);
    const older = await create();
    await dueSince(older, '400 days');
    const [summary] = await settled(older);
    expect(summary).toMatchObject({
      status: 'missed',
      error: expect.stringMatching(/^at least 10000 ticks/),
    });
    expect(await runs(older)).toHaveLength(1);
  });

  it('while the previous run lives, a tick is missed with that reason', async () => {
    const job = await create();
    await dueSince(job, '0 seconds');
    await settled(job);
    await bench.sql(
      "update job_run set scheduled_for = scheduled_for - interval '5 minutes' where job_id = $1",
      [job],
    );
    await dueSince(job, '0 seconds');
    const rows = await settled(job);
    expect(rows).toHaveLength(2);
    expect(rows[0]).toMatchObject({ status: 'missed', error: 'the previous run of this job has not ended' });
    await finishAll(job);
    await bench.sql(
      "update job_run set scheduled_for = scheduled_for - interval '7 minutes' where job_id = $1",
      [job],
    );
    await dueSince(job, '0 seconds');
    expect((await settled(job))[0]).toMatchObject({ status: 'queued' });
  });

  it('an app with nothing deployed misses its ticks, and says so', async () => {
    const empty = (await bench.app()).id;
    const job = await create('* * * * *', empty);
    await dueSince(job, '0 seconds');
    expect(await settled(job, empty)).toMatchObject([
      { status: 'missed', error: 'this app has no running version: deploy it first' },
    ]);
    expect(await missedMetric('no_revision')).toBeGreaterThan(0);
  });

  it('a job that is switched off or has no schedule has no ticks', async () => {
    const job = await create();
    await bench.api('PATCH', `apps/${app}/jobs/${job}`, { enabled: false });
    await bench.sql("update lifecycle set wakes = wakes + 1, run_at = now() where kind = 'job' and id = $1", [
      job,
    ]);
    await pause(300);
    expect(await runs(job)).toEqual([]);
    // Switched on again it counts from now: what passed meanwhile was not wanted.
    await bench.api('PATCH', `apps/${app}/jobs/${job}`, { enabled: true });
    expect(await settled(job)).toEqual([]);
  });

  it('a change settles what is due by the old schedule first', async () => {
    const job = await create('0 0 1 1 *');
    await bench.sql("update job set next_tick = now() - interval '1 hour' where id = $1", [job]);
    await bench.api('PATCH', `apps/${app}/jobs/${job}`, { schedule: null });
    expect(await runs(job)).toMatchObject([{ status: 'missed' }]);
  });

  it('the clock set back begins nothing again: the next tick stays where it is', async () => {
    const job = await create();
    // A clock that was set back sees the next tick further ahead than the schedule would have it.
    await bench.sql(
      "update job set next_tick = date_trunc('minute', now()) + interval '30 minutes' where id = $1",
      [job],
    );
    await bench.sql("update lifecycle set wakes = wakes + 1, run_at = now() where kind = 'job' and id = $1", [
      job,
    ]);
    await pause(300);
    expect(await runs(job)).toEqual([]);
  });

  it('old runs are forgotten, those that live and the newest stay', async () => {
    const job = await create('0 0 1 1 *');
    for (const [status, age] of [
      ['success', '31 days'],
      ['running', '31 days'],
      ['missed', '29 days'],
    ])
      await bench.sql(
        `insert into job_run (id, account_id, app_id, job_id, region_id, kind, command, timeout_ms, status, triggered_by, created_at)
         select gen_random_uuid(), account_id, id, $2, region_id, 'manual', 'true', 10000, $3, 'schedule', now() - $4::interval
         from app where id = $1`,
        [app, job, status, age],
      );
    await bench.nebo.services.get('apps-builder')!.app.get(Housekeeping).run();
    expect((await runs(job)).map(({ status }) => status).sort()).toEqual(['missed', 'running']);
  });

  it('many schedulers at one tick: each is settled once', async () => {
    const database = new Database({ url: bench.roleUrl, schema: 'apps_builder', max: 8 });
    try {
      for (let round = 0; round < 10; round += 1) {
        const job = await create();
        await bench.sql(
          "update job set next_tick = date_trunc('minute', now()) - interval '5 minutes' where id = $1",
          [job],
        );
        const counts = await Promise.all(
          Array.from({ length: 8 }, () => database.transaction((tx) => settleTicks(tx, job, 60_000))),
        );
        // The service's own scheduler may have been the one.
        expect(counts.filter((missed) => missed.size > 0).length).toBeLessThanOrEqual(1);
        const rows = await runs(job);
        expect(rows.filter(({ status }) => status === 'queued')).toHaveLength(1);
        expect(new Set(rows.map(({ scheduled_for }) => scheduled_for)).size).toBe(rows.length);
      }
    } finally {
      await database.close();
    }
  });

  it('fifty jobs, three control planes that come and go: no tick is lost and none is there twice', async () => {
    const jobs = await Promise.all(Array.from({ length: 50 }, () => create()));
    const start = (): Promise<TestProcess> =>
      startServices({ databaseUrl: bench.databaseUrl, definitions: [appsBuilder], env: {} });
    await bench.sql(
      `update job set next_tick = date_trunc('minute', now()) - (floor(random() * 8) * interval '1 minute') where id = any($1)`,
      [jobs],
    );
    const first = await bench.sql<{ id: string; next_tick: Date }>(
      'select id, next_tick from job where id = any($1)',
      [jobs],
    );
    const others = await Promise.all([start(), start()]);
    await bench.sql(
      "update lifecycle set wakes = wakes + 1, run_at = now() where kind = 'job' and id = any($1)",
      [jobs],
    );
    await pause(30);
    // In the middle, without a word: its steps are undone or written, nothing between.
    await others[0]!.close();
    for (const job of jobs) await settled(job);
    await others[1]!.close();
    for (const { id, next_tick: from } of first) {
      const rows = await runs(id);
      const [{ next_tick: to }] = (await bench.sql<{ next_tick: Date }>(
        'select next_tick from job where id = $1',
        [id],
      )) as [{ next_tick: Date }];
      const wanted: string[] = [];
      for (let at = from.getTime(); at < to.getTime(); at += 60_000) wanted.push(new Date(at).toISOString());
      expect(rows.map(({ scheduled_for }) => scheduled_for).sort()).toEqual(wanted);
    }
  }, 60_000);
});
