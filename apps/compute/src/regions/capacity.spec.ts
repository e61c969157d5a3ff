import { randomUUID } from 'node:crypto';
import type { RegionCapacity } from '@nebo/contracts';
import { startServices } from '@nebo/service-kit/testing';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, eventually, FakeAgent } from '../../test/harness.js';
import { compute } from '../compute.module.js';

const month = 240_000_000_000n;

describe('room in a region', () => {
  let bench: Bench;
  let agent: FakeAgent;
  beforeAll(async () => {
    bench = await Bench.start();
    agent = new FakeAgent(bench);
  });
  afterEach(async () => {
    bench.networking.away = false;
    await say(null);
    for (const { id } of await bench.sql<{ id: string }>('select id from vm where deleted_at is null'))
      await bench.api('DELETE', `vms/${id}`);
    await eventually('an empty region', async () => {
      await agent.poll();
      for (const item of agent.wanted.values()) if (item.gone) await agent.observe(item, 'gone');
      return (await use()).machines === 0;
    });
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  /** The agent takes the region and says what it can hold. nano is 1 vCPU (4 to a processor), 1024 MB, 10 GB. */
  const say = async (capacity: RegionCapacity | null | undefined) =>
    bench.internal('POST', `agents/${bench.region}/take-over`, capacity === undefined ? {} : { capacity });
  const roomFor = (machines: number) =>
    say({ vcpu: 100, memory_mb: 1_024 * machines + 100, disk_gb: 10_000 });
  const use = async () => (await bench.internal('GET', 'operator/regions')).body[0];
  const phase = async (id: string) =>
    (await bench.sql<{ phase: string }>('select phase from vm where id = $1', [id]))[0]?.phase;
  const reaches = (id: string, wanted: string) =>
    eventually(`${id} ${wanted}`, async () => (await phase(id)) === wanted);
  const admitted = async (ids: string[]) => {
    const phases = await Promise.all(ids.map(phase));
    return ids.filter((_, at) => phases[at] !== 'ordered' && phases[at] !== 'queued');
  };
  /** Until nothing is on its way into the region or its queue. */
  const settled = (ids: string[]) =>
    eventually('all looked at', async () => {
      const phases = await Promise.all(ids.map(phase));
      return phases.every((each) => ['provisioning', 'living', 'queued'].includes(each!));
    });
  /** The operator's figures against the sum of the rows. */
  const compared = async () => {
    const [row] = await bench.sql<Record<string, number>>(
      `select coalesce(sum(vcpu), 0)::int as vcpu, coalesce(sum(memory_mb), 0)::int as memory_mb,
         coalesce(sum(disk_gb), 0)::int as disk_gb from vm where placed`,
    );
    const region = await use();
    expect(region.used).toEqual(row);
    return region;
  };

  it('an agent says what its region can hold, and the operator reads it with what is taken; 422 for what is no number', async () => {
    expect(await use()).toMatchObject({ capacity: null, machines: 0, queued: 0, vcpu_overcommit: 4 });
    const capacity = { vcpu: 8, memory_mb: 16_384, disk_gb: 500 };
    expect((await say(capacity)).body).toMatchObject({ region_id: bench.region });
    await agent.run((await bench.vm()).id);
    expect(await compared()).toMatchObject({
      capacity,
      machines: 1,
      used: { vcpu: 1, memory_mb: 1_024, disk_gb: 10 },
    });
    // An agent that says nothing of it has not forgotten it.
    await say(undefined);
    expect((await use()).capacity).toEqual(capacity);
    for (const wrong of [
      { vcpu: 'many', memory_mb: 1, disk_gb: 1 },
      { vcpu: 1 },
      7,
      { ...capacity, vcpu: -1 },
    ])
      expect(
        (await bench.internal('POST', `agents/${bench.region}/take-over`, { capacity: wrong })).status,
      ).toBe(422);
    expect((await bench.internal('POST', `agents/${randomUUID()}/take-over`, { capacity })).status).toBe(404);
  });

  it('a machine larger than the whole region holds up nobody, and is made when the region has grown', async () => {
    await roomFor(1);
    const { id: large } = await bench.vm({ vm_plan_id: bench.plans['small'] });
    await reaches(large, 'queued');
    // Ordered by others: the queue is everybody's.
    const brief = await bench.api(
      'POST',
      `projects/${randomUUID()}/vms`,
      bench.order({ ephemeral: true }),
      bench.stranger,
    );
    expect(brief.status).toBe(201);
    await bench.api('DELETE', `vms/${brief.body.id}`, undefined, bench.stranger);
    await eventually('its place is free', async () => {
      await agent.poll();
      for (const item of agent.wanted.values()) if (item.gone) await agent.observe(item, 'gone');
      return (await use()).machines === 0;
    });
    const { id: small } = await bench.vm();
    await reaches(small, 'provisioning');
    expect(await phase(large)).toBe('queued');
    await roomFor(3);
    await reaches(large, 'provisioning');
    await compared();
  });

  it('others stand behind one that waits, whoever asks: 503 for an ephemeral machine of another account', async () => {
    await roomFor(3);
    await agent.run((await bench.vm({ vm_plan_id: bench.plans['small'] })).id);
    const { id } = await bench.vm({ vm_plan_id: bench.plans['small'] });
    await reaches(id, 'queued');
    const answer = await bench.api(
      'POST',
      `projects/${randomUUID()}/vms`,
      bench.order({ ephemeral: true }),
      bench.stranger,
    );
    expect(answer).toMatchObject({ status: 503, body: { error: { code: 'no_capacity' } } });
    expect(answer.body.error.message).toMatch(/others have waited longer/);
  });

  it('without room a machine waits, paid, with the reason; its paid time begins when it runs; a deletion lets it in', async () => {
    await roomFor(1);
    const first = await agent.run((await bench.vm()).id);
    const { id } = await bench.vm();
    await reaches(id, 'queued');
    const waiting = (await bench.api('GET', `vms/${id}`)).body;
    expect(waiting).toMatchObject({ status: 'pending', paid_until: null });
    expect(waiting.status_reason).toMatch(/no memory is free .*24 hours/);
    expect(bench.billing.charged(id)).toBe(month);
    expect(await compared()).toMatchObject({ machines: 1, queued: 1 });
    await bench.sql("update vm set created_at = created_at - interval '10 hours' where id = $1", [id]);
    await bench.api('DELETE', `vms/${first.id}`);
    // The region still runs it: its place is not free.
    await agent.see(first.id, 2);
    expect(await phase(id)).toBe('queued');
    await agent.observe(agent.wanted.get(first.id)!, 'gone');
    const before = Date.now();
    const made = await agent.run(id);
    expect(made.status_reason).toBeNull();
    expect(new Date(made.paid_until).getTime()).toBeGreaterThan(before + 27 * 86_400_000);
    expect(await compared()).toMatchObject({ machines: 1, queued: 0 });
  });

  it.each([
    ['processors', { vcpu: 1, memory_mb: 99_999, disk_gb: 9_999 }, 4],
    ['memory', { vcpu: 99, memory_mb: 3_072, disk_gb: 9_999 }, 3],
    ['disk', { vcpu: 99, memory_mb: 99_999, disk_gb: 20 }, 2],
  ] as const)(
    'no more than there is of %s, however many orders come at once; the others wait in their order',
    async (what, capacity, fit) => {
      await say(capacity);
      const ids = (await Promise.all(Array.from({ length: 8 }, () => bench.vm()))).map(
        ({ id }) => id as string,
      );
      await settled(ids);
      expect(await admitted(ids)).toHaveLength(fit);
      const waiting = ids[(await Promise.all(ids.map(phase))).indexOf('queued')]!;
      expect((await bench.api('GET', `vms/${waiting}`)).body.status_reason).toMatch(
        new RegExp(`no ${what}|others have waited`),
      );
      expect(await compared()).toMatchObject({ machines: fit, queued: 8 - fit });
    },
  );

  it('room that appears is given to who has waited longest, also past a smaller one; a new order stands behind', async () => {
    await roomFor(1);
    const first = (await bench.vm()).id as string;
    await reaches(first, 'provisioning');
    const large = (await bench.vm({ vm_plan_id: bench.plans['small'] })).id as string;
    await reaches(large, 'queued');
    const small = (await bench.vm()).id as string;
    await reaches(small, 'queued');
    // Room for a small one, but the large one is next.
    await roomFor(2);
    const late = (await bench.vm()).id as string;
    await reaches(late, 'queued');
    expect((await bench.api('GET', `vms/${late}`)).body.status_reason).toContain('others have waited longer');
    await roomFor(3);
    await reaches(large, 'provisioning');
    expect([await phase(small), await phase(late)]).toEqual(['queued', 'queued']);
    await roomFor(4);
    await reaches(small, 'provisioning');
    expect(await phase(late)).toBe('queued');
    await roomFor(5);
    await reaches(late, 'provisioning');
    await compared();
  });

  it('who leaves the queue lets the next one in, and gets the money back', async () => {
    await roomFor(2);
    await agent.run((await bench.vm()).id);
    const large = (await bench.vm({ vm_plan_id: bench.plans['small'] })).id as string;
    await reaches(large, 'queued');
    const small = (await bench.vm()).id as string;
    await reaches(small, 'queued');
    expect((await bench.api('DELETE', `vms/${large}`)).body).toEqual({ status: 'deleted' });
    await reaches(small, 'provisioning');
    await eventually('paid back', () => Promise.resolve(bench.billing.charged(large) === 0n));
    await eventually('no rows', async () => (await bench.remains(large)).rows === 0);
  });

  it('nobody waits for ever: after its deadline the money goes back, and the reason says why', async () => {
    await roomFor(0);
    const { id } = await bench.vm();
    await reaches(id, 'queued');
    await bench.sql(
      `update lifecycle set entered_at = now() - interval '25 hours', deadline_at = now() - interval '1 s', run_at = now(),
         wakes = wakes + 1 where id = $1 and kind = 'vm'`,
      [id],
    );
    expect((await bench.reach(id, 'error')).status_reason).toMatch(/24 h.*no room/);
    await eventually('paid back', () => Promise.resolve(bench.billing.charged(id) === 0n));
    expect(await compared()).toMatchObject({ queued: 0, machines: 0 });
  });

  it('an ephemeral one is refused: 503 no_capacity with nothing made or charged, also while others wait', async () => {
    await roomFor(2);
    const answers = await Promise.all(Array.from({ length: 6 }, () => bench.create({ ephemeral: true })));
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 201, 503, 503, 503, 503]);
    expect(answers.find(({ status }) => status === 503)!.body).toMatchObject({
      error: { code: 'no_capacity', message: expect.stringContaining('no memory is free') },
    });
    expect(await compared()).toMatchObject({ machines: 2, queued: 0 });
    await eventually('nothing held', () => Promise.resolve(bench.billing.held() === 0n));
    const { id } = await bench.vm();
    await reaches(id, 'queued');
    await say({ vcpu: 100, memory_mb: 1_024 * 2 + 512, disk_gb: 10_000 });
    expect(await bench.create({ ephemeral: true, mem: 256 })).toMatchObject({
      status: 503,
      body: { error: { message: expect.stringContaining('others have waited') } },
    });
    expect((await bench.sql('select 1 from vm_span where ended_at is null')).length).toBe(2);
  });

  it('what could not be made gives its place back once the region has nothing of it', async () => {
    await roomFor(1);
    const { id } = await bench.vm();
    await agent.observe(await agent.see(id), 'failed', { reason: 'broken' });
    await bench.reach(id, 'error');
    const next = (await bench.vm()).id as string;
    await reaches(next, 'queued');
    await agent.observe(await agent.see(id, 2), 'gone');
    await reaches(next, 'provisioning');
    await compared();
  });

  it('goes on in another process, the queue in its order', async () => {
    await roomFor(0);
    const ids: string[] = [];
    for (let n = 0; n < 3; n += 1) {
      ids.push((await bench.vm()).id);
      await reaches(ids[n]!, 'queued');
    }
    await bench.nebo.close();
    await bench.sql('update region set capacity_memory_mb = 2200');
    bench.nebo = await startServices({ databaseUrl: bench.databaseUrl, definitions: [compute] });
    bench.nebo.runtime.targets.set('identity-billing', bench.billing.target);
    bench.nebo.runtime.targets.set('networking', bench.networking.target);
    agent = new FakeAgent(bench);
    await roomFor(2);
    await reaches(ids[0]!, 'provisioning');
    await reaches(ids[1]!, 'provisioning');
    expect(await phase(ids[2]!)).toBe('queued');
  });
});
