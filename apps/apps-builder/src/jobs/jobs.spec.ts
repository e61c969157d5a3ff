import { randomUUID } from 'node:crypto';
import type { RunSpec } from '@nebo/contracts';
import { sharedPostgres } from '@nebo/test-kit';
import { FakeAgent } from '../../test/fake-agent.js';
import { Bench, eventually } from '../../test/harness.js';

describe('jobs', () => {
  let bench: Bench;
  let agent: FakeAgent;

  beforeAll(async () => {
    bench = await Bench.start();
    agent = new FakeAgent(bench);
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  const create = (app: string, more: object = {}, headers: Record<string, string> = {}) =>
    bench.api(
      'POST',
      `apps/${app}/jobs`,
      { name: 'nightly', command: 'node run.js', ...more },
      bench.key,
      headers,
    );
  /** As the rollout leaves it: a revision that serves. */
  const deployed = async (kind: 'server' | 'static' = 'server') => {
    const { app, build } = await bench.appWithBuild();
    await agent.build(build.id, kind);
    await eventually(
      'built',
      async () => (await bench.api('GET', `apps/${app.id}/builds/${build.id}`)).body.status === 'success',
    );
    await bench.sql(
      `update app set current_build_id = $2, current_revision_id = (select id from revision where build_id = $2 limit 1) where id = $1`,
      [app.id, build.id],
    );
    return { app: app.id, build: build.id };
  };
  const run = (app: string, job: string, headers: Record<string, string> = {}) =>
    bench.api('POST', `apps/${app}/jobs/${job}/run`, undefined, bench.key, headers);
  const runOf = async (app: string, id: string) =>
    (await bench.api('GET', `apps/${app}/job-runs/${id}`)).body;
  const ended = (app: string, id: string, status: string) =>
    eventually(
      `the run is ${status}`,
      async () => {
        const seen = await runOf(app, id);
        return seen.status === status && seen;
      },
      25_000,
    );
  const say = (id: string, ...lines: [number, string][]) =>
    agent.call('POST', `log/${id}`, {
      lines: lines.map(([seq, line]) => ({ seq, line, at: new Date().toISOString() })),
    });

  it('201 with all fields and defaults; read, listed with the newest run, in both addressings', async () => {
    const app = await bench.app();
    const made = await create(app.id, { schedule: '0 3 * * *' });
    expect(made).toMatchObject({
      status: 201,
      body: {
        app_id: app.id,
        name: 'nightly',
        command: 'node run.js',
        schedule: '0 3 * * *',
        timeout_seconds: 900,
        enabled: true,
        last_run: null,
      },
    });
    expect(Date.parse(made.body.created_at)).toBeGreaterThan(0);
    for (const base of [`apps/${app.id}`, `projects/${bench.project}/apps/${app.id}`]) {
      expect((await bench.api('GET', `${base}/jobs/${made.body.id}`)).body).toEqual(made.body);
      expect((await bench.api('GET', `${base}/jobs`)).body).toMatchObject({
        data: [made.body],
        ...{ count: 1, total: 1, limit: 50, offset: 0 },
      });
      expect((await bench.api('GET', `${base}/job-runs`)).body).toMatchObject({ data: [], total: 0 });
    }
    const under = await bench.api('POST', `projects/${bench.project}/apps/${app.id}/jobs`, {
      name: 'by-hand',
      command: 'true',
      schedule: '',
      timeout_seconds: 10,
      enabled: false,
    });
    expect(under).toMatchObject({
      status: 201,
      body: { schedule: null, timeout_seconds: 10, enabled: false },
    });
    expect((await bench.api('GET', `apps/${app.id}/jobs?limit=1&offset=1`)).body).toMatchObject({
      data: [{ name: 'by-hand' }],
      total: 2,
    });
  });

  it.each([
    [{ name: '' }, 'name'],
    [{ name: '-x' }, 'name'],
    [{ name: 'a'.repeat(101) }, 'name'],
    [{ name: null }, 'name'],
    [{ command: '' }, 'command'],
    [{ command: '  ' }, 'command'],
    [{ command: 'a\0b' }, 'command'],
    [{ command: 'x'.repeat(8_001) }, 'command'],
    [{ timeout_seconds: 9 }, 'timeout_seconds'],
    [{ timeout_seconds: 3601 }, 'timeout_seconds'],
    [{ timeout_seconds: '900' }, 'timeout_seconds'],
    [{ enabled: 'yes' }, 'enabled'],
    [{ schedule: '* * * *' }, 'schedule'],
    [{ schedule: '61 * * * *' }, 'schedule'],
    [{ schedule: '@daily' }, 'schedule'],
    [{ schedule: '0 0 30 2 *' }, 'schedule'],
  ])('422 for %j, created and changed', async (wrong, field) => {
    const app = await bench.app();
    const refused = await create(app.id, wrong);
    expect(refused.status).toBe(422);
    expect(refused.text).toContain(field);
    const job = (await create(app.id)).body;
    if (Object.values(wrong)[0] === null) return;
    expect((await bench.api('PATCH', `apps/${app.id}/jobs/${job.id}`, wrong)).status).toBe(422);
    expect((await bench.api('GET', `apps/${app.id}/jobs/${job.id}`)).body).toEqual(job);
  });

  it('400 for what is no JSON, 401 without a key', async () => {
    const app = await bench.app();
    const raw = await bench.nebo.request('apps-builder', {
      method: 'POST',
      path: `/v1/apps/${app.id}/jobs`,
      as: bench.key,
      body: Buffer.from('{'),
      headers: { 'content-type': 'application/json' },
    });
    expect(raw.status).toBe(400);
    expect((await bench.api('GET', `apps/${app.id}/jobs`, undefined, null)).status).toBe(401);
  });

  it('404 for what is absent, of another app, of another account, or of a deleted app', async () => {
    const [app, other] = [await bench.app(), await bench.app()];
    const job = (await create(app.id)).body;
    const asks: [string, string, unknown?][] = [
      ['GET', `jobs/${job.id}`],
      ['PATCH', `jobs/${job.id}`, {}],
      ['POST', `jobs/${job.id}/run`],
      ['DELETE', `jobs/${job.id}`],
    ];
    for (const [method, tail, body] of asks) {
      for (const [base, as] of [
        [`apps/${other.id}`, bench.key],
        [`apps/${app.id}`, bench.stranger],
        [`projects/${randomUUID()}/apps/${app.id}`, bench.key],
      ] as const) {
        expect([method, base, (await bench.api(method, `${base}/${tail}`, body, as)).status]).toEqual([
          method,
          base,
          404,
        ]);
      }
      const absent = tail.replace(job.id, randomUUID());
      expect((await bench.api(method, `apps/${app.id}/${absent}`, body)).status).toBe(404);
      expect((await bench.api(method, `apps/${app.id}/${tail.replace(job.id, 'x')}`, body)).status).toBe(404);
    }
    expect((await bench.api('GET', `apps/${app.id}/job-runs/${randomUUID()}`)).status).toBe(404);
    expect((await bench.api('GET', `apps/${app.id}/job-runs?job_id=x`)).body).toMatchObject({
      data: [],
      total: 0,
    });
    await bench.api('DELETE', `apps/${app.id}`);
    expect((await bench.api('GET', `apps/${app.id}/jobs/${job.id}`)).status).toBe(404);
  });

  it('409 for a name that is taken in the app, made or changed; free again after a delete', async () => {
    const [app, other] = [await bench.app(), await bench.app()];
    const first = (await create(app.id)).body;
    expect(await create(app.id)).toMatchObject({ status: 409, body: { error: { code: 'name_taken' } } });
    expect((await create(other.id)).status).toBe(201);
    const second = (await create(app.id, { name: 'Nightly' })).body;
    expect(await bench.api('PATCH', `apps/${app.id}/jobs/${second.id}`, { name: 'nightly' })).toMatchObject({
      status: 409,
      body: { error: { code: 'name_taken' } },
    });
    expect((await bench.api('PATCH', `apps/${app.id}/jobs/${second.id}`, { name: 'Nightly' })).status).toBe(
      200,
    );
    expect((await bench.api('DELETE', `apps/${app.id}/jobs/${first.id}`)).status).toBe(204);
    expect((await bench.api('DELETE', `apps/${app.id}/jobs/${first.id}`)).status).toBe(404);
    const both = await Promise.all([create(app.id), create(app.id)]);
    expect(both.map(({ status }) => status).sort()).toEqual([201, 409]);
  });

  it('409 too_many_jobs above a hundred, also for creates at once', async () => {
    const app = await bench.app();
    await bench.sql(
      `insert into job (id, account_id, app_id, name, command, timeout_seconds, enabled)
       select gen_random_uuid(), $1, $2, 'j' || n, 'true', 10, false from generate_series(1, 99) n`,
      [bench.account, app.id],
    );
    const answers = await Promise.all([create(app.id, { name: 'a' }), create(app.id, { name: 'b' })]);
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 409]);
    expect(answers.find(({ status }) => status === 409)!.body.error.code).toBe('too_many_jobs');
  });

  it('PATCH changes what is sent; null is no change but for the schedule', async () => {
    const app = await bench.app();
    const job = (await create(app.id, { schedule: '* * * * *', enabled: false })).body;
    const patch = async (body: object) =>
      (await bench.api('PATCH', `apps/${app.id}/jobs/${job.id}`, body)).body;
    expect(await patch({ command: 'true', timeout_seconds: 60, name: 'other' })).toMatchObject({
      ...{ command: 'true', timeout_seconds: 60, name: 'other', schedule: '* * * * *', enabled: false },
    });
    expect(await patch({ command: null, name: null, timeout_seconds: null, enabled: null })).toMatchObject({
      ...{ command: 'true', timeout_seconds: 60, name: 'other', schedule: '* * * * *' },
    });
    expect(await patch({ schedule: null })).toMatchObject({ schedule: null });
    const next = async () =>
      (await bench.sql<{ next_tick: Date | null }>('select next_tick from job where id = $1', [job.id]))[0]!
        .next_tick;
    expect(await next()).toBeNull();
    await patch({ schedule: '0 3 1 1 *', enabled: true });
    expect((await next())!.toISOString()).toMatch(/-01-01T03:00:00/);
    await patch({ enabled: false });
    expect(await next()).toBeNull();
  });

  it('one Idempotency-Key: one job and one run; every act is in the audit log', async () => {
    const { app } = await deployed();
    const headers = { 'idempotency-key': randomUUID() };
    const job = (await create(app, {}, headers)).body;
    expect((await create(app, {}, headers)).body).toEqual(job);
    const again = { 'idempotency-key': randomUUID() };
    const first = await run(app, job.id, again);
    expect(first.status).toBe(202);
    expect((await run(app, job.id, again)).body).toEqual(first.body);
    await bench.api('PATCH', `apps/${app}/jobs/${job.id}`, { command: 'false' });
    await bench.api('DELETE', `apps/${app}/jobs/${job.id}`);
    const said = await bench.sql<{ action: string }>(
      `select envelope->'data'->>'action' as action from outbox
       where envelope->'data'->>'resource' = $1 and envelope->'data'->>'action' like 'app_jobs%' order by 1`,
      [`app:${app}`],
    );
    expect(said.map(({ action }) => action)).toEqual([
      'app_jobs_v1_create_job',
      'app_jobs_v1_delete_job',
      'app_jobs_v1_run_job',
      'app_jobs_v1_update_job',
    ]);
  });

  it('409 with a sentence: nothing deployed, a static site, a run that lives, a suspended account', async () => {
    const fresh = await bench.app();
    const early = (await create(fresh.id)).body;
    expect(await run(fresh.id, early.id)).toMatchObject({
      status: 409,
      body: { error: { code: 'no_revision' } },
    });
    const site = await deployed('static');
    const job = (await create(site.app)).body;
    expect(await run(site.app, job.id)).toMatchObject({
      status: 409,
      body: { error: { code: 'static_app' } },
    });
    const { app } = await deployed();
    const twice = (await create(app)).body;
    const both = await Promise.all([run(app, twice.id), run(app, twice.id)]);
    expect(both.map(({ status }) => status).sort()).toEqual([202, 409]);
    expect(both.find(({ status }) => status === 409)!.body.error.code).toBe('run_in_progress');
    await bench.sql('update app set suspended = true where id = $1', [app]);
    const other = (await create(app, { name: 'other' })).body;
    expect(await run(app, other.id)).toMatchObject({
      status: 409,
      body: { error: { code: 'account_suspended' } },
    });
  });

  it('a run: queued, given to the region with the sealed variables opened, running, success with its log', async () => {
    const { app, build } = await deployed();
    const job = (await create(app, { timeout_seconds: 60 })).body;
    const answer = await run(app, job.id);
    expect(answer).toMatchObject({
      status: 202,
      body: {
        ...{
          app_id: app,
          job_id: job.id,
          build_id: build,
          kind: 'manual',
          command: 'node run.js',
          status: 'queued',
        },
        ...{ exit_code: null, started_at: null, finished_at: null, scheduled_for: null, duration_ms: null },
        ...{ log_tail: null, error: null, triggered_by: `key:${bench.key.key_id}` },
      },
    });
    const item = await agent.until('the run is wanted', ({ id }) => id === answer.body.id);
    expect(item.spec as RunSpec).toMatchObject({
      command: 'node run.js',
      timeout_ms: 60_000,
      begun: false,
      build_id: build,
    });
    expect(await agent.observe(item, 'running')).toBe(1);
    await ended(app, item.id, 'running');
    agent.cursor = null;
    const known = await agent.until('known as begun', ({ id }) => id === item.id);
    expect((known.spec as RunSpec).begun).toBe(true);
    await say(item.id, [0, 'one'], [1, 'two']);
    await say(item.id, [1, 'two'], [2, 'three']);
    await agent.observe(item, 'success', { facts: { exit_code: 0, duration_ms: 1234 } });
    const end = await ended(app, item.id, 'success');
    expect(end).toMatchObject({ exit_code: 0, duration_ms: 1234, error: null, log_tail: 'one\ntwo\nthree' });
    expect(Date.parse(end.finished_at)).toBeGreaterThanOrEqual(Date.parse(end.started_at));
    // What ended stays what it was.
    expect(await agent.observe(item, 'error', { reason: 'late' })).toBe(0);
    expect((await bench.api('GET', `apps/${app}/jobs/${job.id}`)).body.last_run).toEqual(end);
    expect((await bench.api('GET', `apps/${app}/job-runs?job_id=${job.id}`)).body.data).toEqual([end]);
    expect((await bench.api('GET', `apps/${app}/job-runs?job_id=${randomUUID()}`)).body.data).toEqual([]);
    agent.cursor = null;
    await agent.poll();
    expect(agent.wanted.has(item.id)).toBe(false);
  });

  it.each(['error', 'timeout', 'cancelled'] as const)(
    'a run that the region ends with %s says why',
    async (state) => {
      const { app } = await deployed();
      const { id } = (await run(app, (await create(app)).body.id)).body;
      const item = await agent.until('wanted', (wanted) => wanted.id === id);
      // The end may come before the begin was looked at.
      await agent.observe(item, 'running');
      await agent.observe(item, state, {
        reason: 'because',
        facts: { exit_code: state === 'error' ? 7 : null },
      });
      const end = await ended(app, id, state);
      expect(end).toMatchObject({ error: 'because', exit_code: state === 'error' ? 7 : null });
    },
  );

  it('a long log keeps its first and last lines, within lines and characters', async () => {
    const { app } = await deployed();
    const { id } = (await run(app, (await create(app)).body.id)).body;
    await say(id, ...Array.from({ length: 1_000 }, (_, seq): [number, string] => [seq, `line ${seq}`]));
    const lines = (await runOf(app, id)).log_tail.split('\n');
    expect(lines).toHaveLength(221);
    expect([lines[0], lines[19], lines[20], lines[21], lines[220]]).toEqual([
      'line 0',
      'line 19',
      '… 780 lines left out …',
      'line 800',
      'line 999',
    ]);
    await say(
      id,
      ...Array.from({ length: 30 }, (_, at): [number, string] => [1_000 + at, 'x'.repeat(50_000)]),
    );
    expect((await runOf(app, id)).log_tail.length).toBeLessThan(45_000);
  });

  it('deleting the job cancels its run and leaves it listed; deleting the app and suspending it cancel too', async () => {
    const { app } = await deployed();
    const job = (await create(app)).body;
    const { id } = (await run(app, job.id)).body;
    const item = await agent.until('wanted', (wanted) => wanted.id === id);
    await agent.observe(item, 'running');
    await ended(app, id, 'running');
    await bench.api('DELETE', `apps/${app}/jobs/${job.id}`);
    const gone = await agent.until('called off', (wanted) => wanted.id === id && wanted.gone);
    expect(gone.spec.env).toEqual([]);
    await agent.observe(gone, 'cancelled');
    expect(await ended(app, id, 'cancelled')).toMatchObject({ job_id: null, error: 'the job was deleted' });

    const second = (await run(app, (await create(app)).body.id)).body;
    await bench.sql('update app set suspended = true where id = $1', [app]);
    const off = await agent.until('called off', (wanted) => wanted.id === second.id && wanted.gone);
    await agent.observe(off, 'cancelled');
    expect(await ended(app, second.id, 'cancelled')).toMatchObject({ error: 'the account was suspended' });
    await bench.sql('update app set suspended = false where id = $1', [app]);

    const third = (await run(app, (await create(app, { name: 'x' })).body.id)).body;
    await bench.api('DELETE', `apps/${app}`);
    await agent.until('called off', (wanted) => wanted.id === third.id && wanted.gone);
    // A region that says nothing: cancelled all the same.
    await eventually(
      'cancelled',
      async () =>
        (await bench.sql("select 1 from job_run where id = $1 and status = 'cancelled'", [third.id])).length,
      25_000,
    );
  }, 60_000);

  it('a region that vanishes: a run ends as an error after its time-out and a minute', async () => {
    const { app } = await deployed();
    const { id } = (await run(app, (await create(app, { timeout_seconds: 10 })).body.id)).body;
    const item = await agent.until('wanted', (wanted) => wanted.id === id);
    await agent.observe(item, 'running');
    await ended(app, id, 'running');
    await bench.sql("update job_run set started_at = now() - interval '75 seconds' where id = $1", [id]);
    await bench.sql(
      "update lifecycle set wakes = wakes + 1, run_at = now() where kind = 'job_run' and id = $1",
      [id],
    );
    expect((await ended(app, id, 'error')).error).toContain('did not report the end');
    await agent.until('called off', (wanted) => wanted.id === id && wanted.gone);
  });

  it('sees its region only: lines and ends of a run of another one are refused', async () => {
    const { app } = await deployed();
    const { id } = (await run(app, (await create(app)).body.id)).body;
    const far = new FakeAgent(bench, { kind: 'agent', region_id: randomUUID(), epoch: 1 });
    await far.poll();
    expect(far.wanted.size).toBe(0);
    expect(await far.observe({ kind: 'run', id, generation: 1 }, 'success')).toBe(0);
    const line = { seq: 0, line: 'x', at: new Date().toISOString() };
    expect((await far.call('POST', `log/${id}`, { lines: [line] })).status).toBe(404);
    expect(
      (
        await agent.call('POST', 'observed', {
          items: [{ kind: 'run', id, generation: 1, state: 'ready', at: line.at }],
        })
      ).status,
    ).toBe(422);
  });
});
