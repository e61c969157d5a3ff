import { randomUUID } from 'node:crypto';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, eventually, FakeAgent } from '../../test/harness.js';

describe('the agent of machines', () => {
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

  it('401 for every other kind of identity', async () => {
    const call = (as: Parameters<typeof bench.nebo.request>[1]['as']) =>
      bench.nebo.request('compute', { path: '/agent/v1/compute/wanted', as });
    expect((await call(null)).status).toBe(401);
    expect((await call(bench.key)).status).toBe(401);
    expect((await call({ kind: 'service', service: 'networking', account_id: null })).status).toBe(401);
  });

  it('gets everything at first, then only what changed, and waits while nothing does', async () => {
    const vm = await bench.vm();
    const fresh = new FakeAgent(bench);
    await fresh.see(vm.id);
    await eventually('all quiet', async () => (await fresh.poll()).items.length === 0);
    const waiting = fresh.poll(20);
    const next = await bench.vm();
    expect((await waiting).items.map(({ id }) => id)).toEqual([next.id]);
    for (const since of ['00000000.1', `${fresh.cursor!.split('.')[0]}.999999999`, 'x', ''])
      expect((await fresh.call('GET', `wanted?since=${since}`)).body.full).toBe(true);
  });

  it('everything comes in pages when it is much, once each; what changes meanwhile comes as news', async () => {
    const { id: region } = (await bench.internal('POST', 'operator/regions', { name: 'large' })).body as {
      id: string;
    };
    const { id } = await bench.vm();
    await agent.see(id);
    await bench.sql(
      `insert into vm select (jsonb_populate_record(null::vm, to_jsonb(v) || jsonb_build_object('id', gen_random_uuid(),
         'region_id', $2::text, 'name_key', 'many ' || n))).* from vm v cross join generate_series(1, 2300) n where v.id = $1`,
      [id, region],
    );
    const large = new FakeAgent(bench, { kind: 'agent', region_id: region, epoch: 1 });
    const first = (await large.call('GET', 'wanted')).body;
    expect([first.full, first.items.length, first.next]).toEqual([true, 2_000, first.items.at(-1).id]);
    await bench.sql('update vm set generation = generation + 1 where id = $1', [first.items[0].id]);
    const second = (await large.call('GET', `wanted?after=${first.next}`)).body;
    expect([second.full, second.items.length, second.next]).toEqual([true, 300, null]);
    const ids = [...first.items, ...second.items].map((item: { id: string }) => item.id);
    expect(new Set(ids).size).toBe(2_300);
    const news = (await large.call('GET', `wanted?since=${first.cursor}`)).body;
    expect(news).toMatchObject({ full: false, items: [{ id: first.items[0].id, generation: 2 }] });
    await bench.sql('delete from vm where region_id = $1', [region]);
  });

  it('what an agent repeats of many machines is taken as it is said one by one', async () => {
    const ids: string[] = [];
    for (let number = 0; number < 3; number += 1) ids.push((await agent.run((await bench.vm()).id)).id);
    const items = ids.map((id) => agent.wanted.get(id)!);
    const nobody = Array.from({ length: 20 }, () => ({ id: randomUUID(), generation: 1 }));
    const say = (at: number, state = 'running') =>
      agent.call('POST', 'observed', {
        items: [...items, ...nobody].map(({ id, generation }) => ({
          ...{ kind: 'vm', id, generation, state: id === ids[2] ? state : 'running', reason: null },
          facts: { driver: 'fake', real: false, boot: 1, started_at: null, guest_agent: null },
          at: new Date(at).toISOString(),
        })),
      });
    const now = Date.now() + 1_000;
    expect((await say(now)).body).toEqual({ taken: 3 });
    // Older and doubled ones change nothing, whether or not they say the same; one that says something new is heard.
    expect((await say(now)).body).toEqual({ taken: 0 });
    expect((await say(now - 1, 'failed')).body).toEqual({ taken: 0 });
    expect((await say(now + 1, 'failed')).body).toEqual({ taken: 3 });
    expect((await bench.api('GET', `vms/${ids[2]}`)).body.status).toBe('failed');
    expect((await bench.api('GET', `vms/${ids[0]}`)).body.status).toBe('active');
  });

  it('what somebody holds, and lets go of without a word, is told soon', async () => {
    const fresh = new FakeAgent(bench);
    const vm = await agent.run((await bench.vm()).id);
    await fresh.see(vm.id);
    await eventually('all quiet', async () => (await fresh.poll()).items.length === 0);
    await bench.sql('update vm set generation = generation + 1 where id = $1', [vm.id]);
    const hold = await bench.hold('select 1 from vm where id = $1 for update', [vm.id]);
    const region = fresh.identity.region_id;
    const skipped = async () =>
      (await bench.sql<{ skipped: boolean }>('select skipped from feed_now($1)', [region]))[0]!.skipped;
    const isSkipped = await skipped();
    const waiting = fresh.poll(30);
    await hold.release();
    expect(isSkipped).toBe(true);
    expect((await waiting).items.map(({ id }) => id)).toEqual([vm.id]);
    expect(await skipped()).toBe(false);
  });

  it('sees its own region only, and its words on another one’s machine change nothing', async () => {
    const far = (await bench.internal('POST', 'operator/regions', { name: 'far' })).body.id as string;
    const vm = await bench.vm();
    const item = await agent.see(vm.id);
    const stranger = new FakeAgent(bench, { kind: 'agent', region_id: far, epoch: 1 });
    await stranger.poll();
    expect(stranger.wanted.has(vm.id)).toBe(false);
    expect(await stranger.observe(item, 'running')).toBe(0);
    expect(await stranger.observe({ id: randomUUID(), generation: 1 }, 'running')).toBe(0);
  });

  it('409 stale_epoch for an agent that another one has replaced, also in the middle of a long poll', async () => {
    const region = (await bench.internal('POST', 'operator/regions', { name: 'contested' })).body
      .id as string;
    const old = new FakeAgent(bench, { kind: 'agent', region_id: region, epoch: 1 });
    await old.poll();
    const newer = new FakeAgent(bench, { kind: 'agent', region_id: region, epoch: 2 });
    await newer.poll();
    for (const answer of [
      await old.call('GET', `wanted?since=${old.cursor}&wait=10`),
      await old.call('POST', 'observed', { items: [] }),
    ])
      expect(answer).toMatchObject({ status: 409, body: { error: { code: 'stale_epoch' } } });
    expect((await newer.call('POST', 'observed', { items: [] })).status).toBe(200);
  });

  it('doubled, late and future observations change nothing; gone is the last word', async () => {
    const { id } = await agent.run((await bench.vm()).id);
    const item = agent.wanted.get(id)!;
    const early = '2026-01-01T00:00:00Z';
    expect(await agent.observe(item, 'failed', { at: early })).toBe(0);
    expect(await agent.observe({ ...item, generation: 7 }, 'failed')).toBe(0);
    await bench.api('POST', `vms/${id}/stop`);
    const stop = await agent.see(id, 2);
    expect(await agent.observe(stop, 'stopped')).toBe(1);
    expect(await agent.observe(item, 'running')).toBe(0);
    await bench.reach(id, 'stopped');
  });

  it.each([
    ...(
      [
        ['no facts', {}, ['blob', 'sha256']],
        ['a blob without a hash', { blob: { bytes: 1 } }, ['blob', 'sha256']],
        ['a hash that is a path', { blob: { sha256: '../x', bytes: 1 } }, ['blob', 'sha256']],
        ['a blob without a size', { blob: { sha256: 'a'.repeat(64) } }, ['blob', 'bytes']],
        ['an empty blob', { blob: { sha256: 'a'.repeat(64), bytes: 0 } }, ['blob', 'bytes']],
        ['no consistency', { blob: { sha256: 'a'.repeat(64), bytes: 1 } }, ['consistency']],
      ] as const
    ).map(
      ([what, facts, at]) =>
        [
          `a backup that is ready with ${what}`,
          {
            items: [
              {
                kind: 'backup',
                id: randomUUID(),
                generation: 1,
                state: 'ready',
                at: '2026-01-01T00:00:00Z',
                facts,
              },
            ],
          },
          ['body', 'items', 0, 'facts', ...at],
        ] as [string, object, (string | number)[]],
    ),
    [
      'a state of machines for a backup',
      { items: [{ kind: 'backup', id: randomUUID(), generation: 1, state: 'running' }] },
      ['body', 'items', 0, 'state'],
    ],
    ['no list', {}, ['body', 'items']],
    ['another kind', { items: [{ kind: 'build' }] }, ['body', 'items', 0, 'kind']],
    ['no id', { items: [{ kind: 'vm', id: 'x' }] }, ['body', 'items', 0, 'id']],
    [
      'an unknown state',
      { items: [{ kind: 'vm', id: randomUUID(), generation: 1, state: 'fine', at: '2026-01-01T00:00:00Z' }] },
      ['body', 'items', 0, 'state'],
    ],
    [
      'no time',
      { items: [{ kind: 'vm', id: randomUUID(), generation: 1, state: 'running', at: 'now' }] },
      ['body', 'items', 0, 'at'],
    ],
    [
      'a generation beyond all',
      { items: [{ kind: 'vm', id: randomUUID(), generation: 2 ** 31, state: 'running' }] },
      ['body', 'items', 0, 'generation'],
    ],
  ])('422 for %s', async (_what, body, loc) => {
    expect(await agent.call('POST', 'observed', body)).toMatchObject({
      status: 422,
      body: { detail: [{ loc }] },
    });
  });
});
