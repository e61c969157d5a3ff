import { randomUUID } from 'node:crypto';
import type { ComputeUsageRequest, LifeUsage } from '@nebo/contracts';
import { sharedPostgres } from '@nebo/test-kit';
import { FakeAgent, FakeEdge } from '../../test/fake-agent.js';
import { Bench, eventually, otherRegion, pause } from '../../test/harness.js';
import { StandingService } from '../standing/standing.service.js';
import { UsageHourLifecycle } from './usage-hour.lifecycle.js';

const hourMs = 3_600_000;

describe('usage that regions report', () => {
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

  /** Hours of the past stay the same ones when the clock strikes in the middle. */
  const begun = Math.floor(Date.now() / hourMs);
  /** The beginning of an hour so many hours ago; 0: of this one. */
  const hour = (ago: number) => {
    const present = ago > 0 ? begun : Math.floor(Date.now() / hourMs);
    return new Date((present - ago) * hourMs).toISOString();
  };
  /** An app on demand and its replica, as if they had been made a month ago. 1 vCPU and 512 MB unless told. */
  const onDemand = async (more: Record<string, unknown> = {}) => {
    const { app, build } = await bench.appWithBuild({ replica_vcpu: 1, replica_memory_mb: 512, ...more });
    await agent.build(build.id, 'server');
    const [replica] = await agent.replicas(build.id, 1);
    await bench.sql("update replica set created_at = now() - interval '30 days' where id = $1", [
      replica!.id,
    ]);
    return { app, replica: replica!.id, item: replica! };
  };
  const usage = (id: string, more: Partial<LifeUsage> = {}): LifeUsage => ({
    ...{ kind: 'replica', id, life: 'a', hour: hour(1), seq: 1 },
    ...{ cpu_us: 60_000_000, running_ms: 600_000, final: true, real: true },
    ...more,
  });
  const report = (items: unknown, more: object = {}) =>
    agent.call('POST', 'usage', { bucket_seconds: 3_600, items, ...more });
  const tell = async (...items: LifeUsage[]) => {
    const answer = await report(items);
    if (answer.status !== 200) throw new Error(answer.text);
    return answer.body;
  };
  const charged = (app: string): ComputeUsageRequest[] =>
    [...bench.billing.usage.values()].filter(({ app_id }) => app_id === app);
  const parts = (app: string, count: number) =>
    eventually(`${count} parts`, () => Promise.resolve(charged(app).length === count && charged(app)));

  it('200: a finished hour is charged once, whatever is said again', async () => {
    const { app, replica } = await onDemand({ name: 'shop' });
    expect(await tell(usage(replica))).toEqual({ taken: 1, refused: [] });
    const [part] = await parts(app.id, 1);
    expect(part).toEqual({
      operation_id: `usage:${app.id}:replica:${hour(1)}:1`,
      account_id: bench.account,
      app_id: app.id,
      kind: 'replica',
      hour: hour(1),
      cpu_us: 60_000_000,
      memory_mb_ms: String(600_000 * 512),
      free: null,
      description: expect.stringMatching(/^shop, on demand, \d{4}-\d\d-\d\d \d\d:00 UTC$/),
    });
    expect(await tell(usage(replica), usage(replica, { running_ms: 1, cpu_us: 1 }))).toEqual({
      taken: 0,
      refused: [],
    });
    await tell(usage(replica, { seq: 2 }));
    await pause(300);
    expect(charged(app.id)).toHaveLength(1);
  });

  it('an hour that goes on is not charged; late usage of a charged one is a part of its own', async () => {
    const { app, replica } = await onDemand();
    await tell(usage(replica, { hour: hour(0), life: 'now' }), usage(replica, { final: false }));
    await pause(300);
    expect(charged(app.id)).toEqual([]);
    await tell(usage(replica, { seq: 2, cpu_us: 70_000_000 }));
    expect((await parts(app.id, 1))[0]).toMatchObject({ cpu_us: 70_000_000 });
    await tell(usage(replica, { life: 'b', running_ms: 1_000, cpu_us: 5 }));
    expect((await parts(app.id, 2))[1]).toMatchObject({
      operation_id: expect.stringMatching(/:2$/),
      cpu_us: 5,
      memory_mb_ms: String(1_000 * 512),
    });
  });

  it('an answer that was lost, and billing that is away: sent again under the same name', async () => {
    const { app, replica } = await onDemand();
    bench.billing.loseUsage = 1;
    bench.billing.usageCalls.length = 0;
    await tell(usage(replica));
    await eventually('twice', () => Promise.resolve(bench.billing.usageCalls.length === 2));
    bench.billing.away = true;
    await tell(usage(replica, { hour: hour(2) }));
    await pause(200);
    bench.billing.away = false;
    await parts(app.id, 2);
    expect(new Set(bench.billing.usageCalls).size).toBe(2);
  });

  it('401, 409 and 422 say what is wrong, and nothing is taken', async () => {
    const { app, replica } = await onDemand();
    const path = '/agent/v1/apps-builder/usage';
    const body = { bucket_seconds: 3_600, items: [usage(replica)] };
    for (const as of [null, bench.key])
      expect((await bench.nebo.request('apps-builder', { method: 'POST', path, as, body })).status).toBe(401);
    const stale = new FakeAgent(bench, { kind: 'agent', region_id: agent.identity.region_id, epoch: 0 });
    expect(await stale.call('POST', 'usage', body)).toMatchObject({
      status: 409,
      body: { error: { code: 'stale_epoch' } },
    });
    for (const [field, value] of Object.entries({
      kind: 'build',
      id: 'x',
      life: '',
      hour: new Date(Date.parse(hour(1)) + 1_000).toISOString(),
      seq: 0,
      cpu_us: -1,
      running_ms: 0.5,
      final: 'yes',
      real: null,
    }))
      expect(
        await report([usage(replica, { life: 'ok' }), { ...usage(replica), [field]: value }]),
      ).toMatchObject({
        status: 422,
        body: { detail: [{ loc: ['body', 'items', 1, field] }] },
      });
    expect(await report([], { bucket_seconds: 60 })).toMatchObject({
      body: { detail: [{ loc: ['body', 'bucket_seconds'] }] },
    });
    expect((await report('x')).status).toBe(422);
    expect((await report([null])).status).toBe(422);
    expect((await report(Array.from({ length: 501 }, () => usage(replica)))).status).toBe(422);
    expect(await bench.sql('select 1 from usage_hour where app_id = $1', [app.id])).toEqual([]);
  });

  it('refuses what is not its own, not on demand, out of time, or fell; the rest of the report counts', async () => {
    const { app, replica } = await onDemand();
    const permanent = await onDemand({ replica_count: 1 });
    await tell(usage(replica, { seq: 5 }));
    const { taken, refused } = await tell(
      usage(randomUUID()),
      usage(permanent.replica),
      usage(replica, { hour: hour(-2) }),
      usage(replica, { hour: hour(24 * 40) }),
      usage(replica, { seq: 6, running_ms: 599_999 }),
      usage(replica, { seq: 6, cpu_us: 59_999_999 }),
      usage(replica, { kind: 'run' }),
      usage(replica, { seq: 7, running_ms: 700_000 }),
    );
    expect(taken).toBe(1);
    expect(refused.map(({ index, code }: { index: number; code: string }) => [index, code])).toEqual([
      [0, 'unknown'],
      [1, 'not_on_demand'],
      [2, 'out_of_time'],
      [3, 'out_of_time'],
      [4, 'total_fell'],
      [5, 'total_fell'],
      [6, 'unknown'],
    ]);
    const far = new FakeAgent(bench, { kind: 'agent', region_id: otherRegion, epoch: 1 });
    const answer = await far.call('POST', 'usage', {
      bucket_seconds: 3_600,
      items: [usage(replica, { seq: 9 })],
    });
    expect(answer.body.refused).toMatchObject([{ code: 'unknown' }]);
    await eventually('all', () =>
      Promise.resolve(
        charged(app.id).reduce((sum, { memory_mb_ms }) => sum + Number(memory_mb_ms), 0) === 700_000 * 512,
      ),
    );
  });

  it('more than an hour has, or than the processors can, is cut', async () => {
    const { app, replica } = await onDemand();
    await tell(
      usage(replica, { running_ms: 5_000_000, cpu_us: 9_000_000_000 }),
      usage(replica, { life: 'b', running_ms: 1_000, cpu_us: 1 }),
      usage(replica, { hour: hour(2), running_ms: 1_000, cpu_us: 60_000_000 }),
    );
    await parts(app.id, 2);
    const of = (ago: number) => charged(app.id).find((part) => part.hour === hour(ago));
    // What the kernel's own limit lets through beyond its mean: a twentieth and a second.
    expect(of(1)).toMatchObject({
      memory_mb_ms: String(3_600_000 * 512),
      cpu_us: 3_600_000_000 * 1.05 + 1_000_000 + 1,
    });
    expect(of(2)).toMatchObject({ cpu_us: 1_050_000 + 1_000_000 });
    const { text } = await bench.nebo.request('apps-builder', { path: '/metrics', as: null });
    expect(text).toMatch(/^nebo_usage_faults_total\{.*fault="cut".*\} 3$/m);
    expect(text).toMatch(/^nebo_usage_faults_total\{.*fault="refused".*\} [1-9]/m);
  });

  it('an hour of which something was not measured is free of CPU, also for what comes later', async () => {
    const { app, replica } = await onDemand();
    await tell(usage(replica, { cpu_us: null }), usage(replica, { life: 'b' }));
    expect(await parts(app.id, 1)).toMatchObject([
      { cpu_us: 0, memory_mb_ms: String(1_200_000 * 512), free: 'cpu_unmeasured' },
    ]);
    await tell(usage(replica, { life: 'c' }));
    expect((await parts(app.id, 2))[1]).toMatchObject({ cpu_us: 0, memory_mb_ms: String(600_000 * 512) });
  });

  it('an hour that was never reported to its end is given up: charged without CPU', async () => {
    const { app, replica } = await onDemand();
    // The time for reports is six hours.
    await tell(
      usage(replica, { hour: hour(8), final: false }),
      usage(replica, { hour: hour(3), final: false }),
    );
    expect(await parts(app.id, 1)).toMatchObject([{ hour: hour(8), cpu_us: 0, free: 'cpu_unmeasured' }]);
    // Its end comes too late.
    await tell(usage(replica, { hour: hour(8), seq: 2, running_ms: 700_000, cpu_us: 99_000_000 }));
    expect((await parts(app.id, 2))[1]).toMatchObject({ cpu_us: 0, memory_mb_ms: String(100_000 * 512) });
  });

  it('a plain process of a laptop costs nothing, and the hour says why', async () => {
    const { app, replica } = await onDemand();
    await tell(usage(replica, { real: false, cpu_us: null }));
    expect(await parts(app.id, 1)).toMatchObject([{ cpu_us: 0, memory_mb_ms: '0', free: 'simulated' }]);
  });

  it('a run of a job is charged, also when its app has been deleted and its row has gone', async () => {
    const { app } = await onDemand();
    const job = (await bench.api('POST', `apps/${app.id}/jobs`, { name: 'nightly', command: 'true' })).body;
    await bench.sql(
      'update app set current_revision_id = (select id from revision where app_id = $1 limit 1) where id = $1',
      [app.id],
    );
    const run = (await bench.api('POST', `apps/${app.id}/jobs/${job.id}/run`)).body;
    const of = (more: Partial<LifeUsage>) =>
      usage(run.id, { kind: 'run', hour: hour(0), running_ms: 1_000, cpu_us: 7, ...more });
    expect(await tell(of({ final: false }))).toMatchObject({ taken: 1 });
    await bench.sql('delete from app where id = $1', [app.id]);
    // The hour is over now.
    await bench.sql('update usage_hour set ends_at = now(), starts_at = starts_at where app_id = $1', [
      app.id,
    ]);
    expect(await tell(of({ seq: 2, cpu_us: 9 }))).toMatchObject({ taken: 1 });
    expect(await parts(app.id, 1)).toMatchObject([
      { kind: 'run', cpu_us: 9, description: expect.stringContaining('a deleted app, job runs, ') },
    ]);
  });

  it('race: reports and parts at once, in any order, doubled, with lost answers: the parts are exactly the totals', async () => {
    const { app, replica } = await onDemand();
    const truth: LifeUsage[] = [];
    const messages: LifeUsage[][] = [];
    for (let life = 0; life < 12; life += 1) {
      const [of, name] = [hour(1 + (life % 3)), `life-${life}`];
      let [cpu, ms] = [0, 0];
      for (let seq = 1; seq <= 4; seq += 1) {
        ms += Math.floor(Math.random() * 20_000);
        cpu += Math.floor(Math.random() * 900 * ms);
        if (cpu > ms * 1_000) cpu = ms * 1_000;
        const item = usage(replica, {
          hour: of,
          life: name,
          seq,
          running_ms: ms,
          cpu_us: cpu,
          final: seq === 4,
        });
        messages.push([item], ...(Math.random() < 0.4 ? [[item]] : []));
        if (seq === 4) truth.push(item);
      }
    }
    messages.sort(() => Math.random() - 0.5);
    bench.billing.loseUsage = 2;
    await Promise.all(messages.map((items) => tell(...items)));
    const sum = (items: readonly { cpu_us: number | null }[]) =>
      items.reduce((total, { cpu_us }) => total + cpu_us!, 0);
    const memory = truth.reduce((total, { running_ms }) => total + running_ms * 512, 0);
    await eventually(
      'all is charged',
      () =>
        Promise.resolve(
          sum(charged(app.id)) === sum(truth) &&
            charged(app.id).reduce((total, { memory_mb_ms }) => total + Number(memory_mb_ms), 0) === memory,
        ),
      20_000,
    );
    const open = () =>
      bench.sql(
        "select 1 from lifecycle where kind = 'usage_hour' and ended_at is null and id in (select id from usage_hour where app_id = $1)",
        [app.id],
      );
    await eventually('settled', async () => (await open()).length === 0);
    expect(
      await bench.sql(
        'select 1 from usage_part p join usage_hour h on h.id = p.hour_id where app_id = $1 and sent_at is null',
        [app.id],
      ),
    ).toEqual([]);
  }, 60_000);

  it('killed after billing took a part and before that was written: the next one sends the same', async () => {
    const { app, replica } = await onDemand();
    await tell(usage(replica));
    await parts(app.id, 1);
    const [of] = await bench.sql<{ id: string }>('select id from usage_hour where app_id = $1', [app.id]);
    await eventually(
      'settled',
      async () =>
        (await bench.sql('select 1 from lifecycle where id = $1 and ended_at is not null', [of!.id])).length,
    );
    // As the database is after such a kill.
    await bench.sql('update usage_part set sent_at = null where hour_id = $1', [of!.id]);
    const calls = bench.billing.usageCalls.length;
    await bench.sql(
      "update lifecycle set state = 'sending', ended_at = null, run_at = now(), wakes = wakes + 1 where id = $1",
      [of!.id],
    );
    await eventually('again', () => Promise.resolve(bench.billing.usageCalls.length > calls));
    expect(charged(app.id)).toHaveLength(1);
    expect(bench.nebo.services.get('apps-builder')!.app.get(UsageHourLifecycle).kind).toBe('usage_hour');
  });

  it('of an account that is suspended nothing is woken and no run begins; the route says why', async () => {
    const edge = new FakeEdge(bench);
    edge.run();
    try {
      const { app, item } = await onDemand();
      await agent.onDemand(item, 'ready');
      const target = () => edge.of(app.id)?.target;
      await eventually('may be woken', () => Promise.resolve(target()?.wake));
      const job = (await bench.api('POST', `apps/${app.id}/jobs`, { name: 'nightly', command: 'true' })).body;
      const standing = bench.nebo.services.get('apps-builder')!.app.get<StandingService>(StandingService);
      bench.billing.standing = [{ account_id: bench.account, state: 'suspended', since: hour(1) }];
      await standing.compare();
      await eventually('no way to it', () => Promise.resolve(target()?.kind === 'none'));
      expect(target()).toMatchObject({
        reason: 'the app is suspended; its owner can read why',
      });
      expect(await bench.api('POST', `apps/${app.id}/jobs/${job.id}/run`)).toMatchObject({
        status: 409,
        body: { error: { code: 'account_suspended' } },
      });
      // What it used before is charged nevertheless.
      await tell(usage(item.id));
      await parts(app.id, 1);
    } finally {
      bench.billing.standing = [];
      await edge.stop();
    }
  });
});
