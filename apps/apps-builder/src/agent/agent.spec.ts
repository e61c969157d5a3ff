import { randomBytes, randomUUID } from 'node:crypto';
import { sharedPostgres } from '@nebo/test-kit';
import pg from 'pg';
import { FakeAgent } from '../../test/fake-agent.js';
import { archive, Bench, eventually, otherRegion, pause, region, sha256 } from '../../test/harness.js';

describe('the agent', () => {
  let bench: Bench;
  let agent: FakeAgent;

  beforeAll(async () => {
    bench = await Bench.start({ NEBO_ARTIFACT_MAX: '100000' });
    agent = new FakeAgent(bench);
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  it('401 for every other kind of identity', async () => {
    const call = (as: Parameters<typeof bench.nebo.request>[1]['as']) =>
      bench.nebo.request('apps-builder', { path: '/agent/v1/apps-builder/wanted', as });
    expect((await call(null)).status).toBe(401);
    expect((await call(bench.key)).status).toBe(401);
    expect((await call({ kind: 'service', service: 'compute', account_id: null })).status).toBe(401);
  });

  it('gets everything at first, then only what changed, and waits while nothing does', async () => {
    const { build } = await bench.appWithBuild();
    const fresh = new FakeAgent(bench);
    expect(await fresh.poll()).toMatchObject({ full: true });
    expect(fresh.wanted.has(build.id)).toBe(true);
    expect(await fresh.poll()).toMatchObject({ full: false, items: [] });
    const begun = Date.now();
    const waiting = fresh.poll(20);
    await pause(150);
    const { build: next } = await bench.appWithBuild();
    expect((await waiting).items.map(({ id }) => id)).toEqual([next.id]);
    expect(Date.now() - begun).toBeLessThan(5_000);
    expect((await fresh.poll(1)).items).toEqual([]);
  });

  it('a cursor of another database, of the future or without form gets everything', async () => {
    const { cursor } = await agent.poll();
    for (const since of [`00000000.1`, `${cursor.split('.')[0]}.999999999`, 'x', '-1', '']) {
      expect((await agent.call('GET', `wanted?since=${since}`)).body.full).toBe(true);
    }
    expect((await agent.call('GET', `wanted?since=${cursor}`)).body.full).toBe(false);
  });

  it('sees its own region only', async () => {
    const app = await bench.app({ cluster_id: otherRegion });
    const build = (await bench.upload(`apps/${app.id}/deployments`, archive({ far: randomUUID() }))).body;
    const far = new FakeAgent(bench, { kind: 'agent', region_id: otherRegion, epoch: 1 });
    await far.poll();
    expect([...far.wanted.keys()]).toEqual([build.id]);
    await agent.poll();
    expect(agent.wanted.has(build.id)).toBe(false);
    const item = far.wanted.get(build.id)!;
    expect(await agent.observe(item, 'building')).toBe(0);
    expect((await agent.call('POST', `log/${build.id}`, { lines: [] })).status).toBe(404);
    expect(
      (await agent.call('GET', `blob/${(item.spec as { source: { sha256: string } }).source.sha256}`)).status,
    ).toBe(404);
  });

  it('409 stale_epoch on every call once a newer agent has shown itself, also in the middle of a long poll', async () => {
    const old = new FakeAgent(bench, { kind: 'agent', region_id: region, epoch: 1 });
    await old.poll();
    const waiting = old.call('GET', `wanted?since=${old.cursor}&wait=10`);
    await pause(100);
    const newer = new FakeAgent(bench, { kind: 'agent', region_id: region, epoch: 2 });
    await newer.poll();
    const { build } = await bench.appWithBuild();
    expect(await waiting).toMatchObject({ status: 409, body: { error: { code: 'stale_epoch' } } });
    const at = new Date().toISOString();
    const refused = [
      await old.call('GET', 'wanted'),
      await old.call('POST', 'observed', { items: [] }),
      await old.call('POST', 'observed', {
        items: [
          { kind: 'build', id: build.id, generation: 1, state: 'building', reason: null, facts: {}, at },
        ],
      }),
      await old.call('POST', `log/${build.id}`, { lines: [] }),
      await old.call('POST', 'gone-apps', { app_ids: [] }),
      await old.call('GET', `blob/${'0'.repeat(64)}`),
      await old.call('PUT', `blob/${'0'.repeat(64)}`, Buffer.from('x'), {
        'content-type': 'application/octet-stream',
      }),
    ];
    for (const answer of refused)
      expect(answer).toMatchObject({ status: 409, body: { error: { code: 'stale_epoch' } } });
    agent = newer;
  });

  it('hears which apps are gone: deleted ones, those of other regions, and what never was', async () => {
    const { app } = await bench.appWithBuild();
    const { app: deleted } = await bench.appWithBuild();
    expect((await bench.api('DELETE', `apps/${deleted.id}`)).status).toBe(204);
    const never = randomUUID();
    const ids = [app.id, deleted.id, never];
    const answer = await agent.call('POST', 'gone-apps', { app_ids: ids });
    expect(answer).toMatchObject({ status: 200 });
    expect(answer.body.gone.sort()).toEqual([deleted.id, never].sort());
    const far = new FakeAgent(bench, { kind: 'agent', region_id: otherRegion, epoch: 1 });
    expect((await far.call('POST', 'gone-apps', { app_ids: [app.id] })).body).toEqual({ gone: [app.id] });
    for (const app_ids of ['x', ['no id'], Array.from({ length: 1_001 }, () => never)])
      expect((await agent.call('POST', 'gone-apps', { app_ids })).status).toBe(422);
  });

  it('race: the cursor never loses a change of writers that commit out of order', async () => {
    const seen = new Map<string, number>();
    const reader = new FakeAgent(bench, agent.identity);
    await reader.poll();
    const { app } = await bench.appWithBuild();
    const ids = Array.from({ length: 40 }, () => randomUUID());
    const begun: string[] = [];
    let writing = true;
    // Each writer keeps its transaction open for a while, so that a later one is visible before it.
    const write = async (id: string) => {
      const client = new pg.Client({ connectionString: bench.databaseUrl });
      await client.connect();
      await client.query('set search_path to apps_builder');
      await client.query('begin');
      await client.query(
        `insert into build (id, account_id, app_id, region_id, cause, source_sha256, source_bytes) select $1, account_id, id, region_id, 'upload', $2, 1 from app where id = $3`,
        [id, sha256(Buffer.from(id)), app.id],
      );
      begun.push(id);
      await pause(Math.random() * 150);
      await client.query('commit');
      if (Math.random() < 0.5)
        await client.query('update build set gone = true, generation = generation + 1 where id = $1', [id]);
      await client.end();
    };
    const read = async () => {
      while (writing) for (const { id, generation } of (await reader.poll()).items) seen.set(id, generation);
      for (const { id, generation } of (await reader.poll()).items) seen.set(id, generation);
    };
    const reading = read();
    for (let at = 0; at < ids.length; at += 8) await Promise.all(ids.slice(at, at + 8).map(write));
    writing = false;
    await reading;
    const rows = await bench.sql<{ id: string; generation: number }>(
      'select id, generation from build where id = any($1)',
      [ids],
    );
    expect(rows).toHaveLength(40);
    for (const { id, generation } of rows) expect([id, seen.get(id)]).toEqual([id, generation]);
    await bench.sql('delete from build where id = any($1)', [ids]);
  });

  describe('observations', () => {
    const stateOf = async (id: string) =>
      (
        await bench.sql<{ observed_state: string; observed_reason: string }>(
          'select observed_state, observed_reason from replica where id = $1',
          [id],
        )
      )[0]!;
    /** A replica that nothing else moves. */
    const replica = async () => {
      const { app, build } = await bench.appWithBuild();
      await agent.build(build.id, 'server');
      const [item] = await agent.replicas(build.id, 1);
      return { app, build, item: item! };
    };
    const at = (seconds: number) => new Date(Date.now() + seconds * 1_000).toISOString();

    it('an older one of the same generation changes nothing, and a repeat neither', async () => {
      const { item } = await replica();
      expect(await agent.observe(item, 'starting', { at: at(2) })).toBe(1);
      const ready = { at: at(4), facts: { host: '127.0.0.1', port: 1 } };
      expect(await agent.observe(item, 'ready', ready)).toBe(1);
      expect(await agent.observe(item, 'ready', ready)).toBe(0);
      expect(await agent.observe(item, 'starting', { at: at(3) })).toBe(0);
      expect((await stateOf(item.id)).observed_state).toBe('ready');
    });

    it('the same said again later is taken, but has no app looked at again', async () => {
      const { app, item } = await replica();
      const wakes = async () =>
        (
          await bench.sql<{ wakes: string }>(
            "select wakes from lifecycle where kind = 'rollout' and id = $1",
            [app.id],
          )
        )[0]!.wakes;
      await agent.observe(item, 'starting', { at: at(1) });
      const before = await wakes();
      expect(await agent.observe(item, 'starting', { at: at(2) })).toBe(1);
      expect(await wakes()).toBe(before);
      expect(await agent.observe(item, 'ready', { at: at(3) })).toBe(1);
      expect(await wakes()).not.toBe(before);
    });

    it('failed is final for its generation; an older generation changes nothing', async () => {
      const { item } = await replica();
      await agent.observe(item, 'failed', { reason: 'exit 1', at: at(1) });
      expect(await agent.observe(item, 'ready', { at: at(5) })).toBe(0);
      const gone = await agent.until('it shall go', (wanted) => wanted.id === item.id && wanted.gone);
      expect(await agent.observe(gone, 'gone')).toBe(1);
      expect(await agent.observe(item, 'starting', { at: at(9) })).toBe(0);
      expect(await agent.observe({ ...item, generation: 99 }, 'ready')).toBe(0);
      expect((await stateOf(item.id)).observed_state).toBe('gone');
    });

    it('after a minute of silence a clock that was set back counts again', async () => {
      const { item } = await replica();
      await agent.observe(item, 'starting', { at: at(600) });
      expect(await agent.observe(item, 'ready')).toBe(0);
      await bench.sql("update replica set received_at = now() - interval '2 minutes' where id = $1", [
        item.id,
      ]);
      expect(await agent.observe(item, 'ready')).toBe(1);
    });

    it('a build: building after its end, doubled or of a later generation than wanted, changes nothing', async () => {
      const { build } = await bench.appWithBuild();
      const item = await agent.until('wanted', ({ id }) => id === build.id);
      expect(await agent.observe(item, 'error', { reason: 'no' })).toBe(1);
      expect(await agent.observe(item, 'building')).toBe(0);
      expect(await agent.observe(item, 'success')).toBe(0);
      expect(await agent.observe({ ...item, generation: 7 }, 'building')).toBe(0);
      await eventually(
        'error',
        async () =>
          (await bench.sql('select 1 from build where id = $1 and status = $2', [build.id, 'error'])).length,
      );
    });

    it('422 names what is wrong in a batch, and nothing of it is taken; unknown ids are passed over', async () => {
      const good = {
        kind: 'build',
        id: randomUUID(),
        generation: 1,
        state: 'building',
        reason: null,
        facts: {},
        at: at(0),
      };
      const post = (items: unknown) => agent.call('POST', 'observed', { items });
      expect((await post([good])).body).toEqual({ taken: 0 });
      for (const [field, value] of Object.entries({
        kind: 'vm',
        id: 'x',
        generation: -1,
        state: 'ready',
        reason: 5,
        at: 'yesterday',
      })) {
        expect(await post([good, { ...good, [field]: value }])).toMatchObject({
          status: 422,
          body: { detail: [{ loc: ['body', 'items', 1, field] }] },
        });
      }
      expect((await post('x')).status).toBe(422);
      expect((await post([null])).status).toBe(422);
      expect((await agent.call('POST', `log/${randomUUID()}`, { lines: [] })).status).toBe(404);
      expect((await agent.call('POST', 'log/x', { lines: [] })).status).toBe(404);
    });
  });

  describe('blobs', () => {
    it('PUT takes exactly the bytes of the name: 422 for others, 413 above the limit, 415 for another type', async () => {
      const bytes = randomBytes(5_000);
      const put = (hash: string, body: Buffer, type = 'application/octet-stream') =>
        agent.call('PUT', `blob/${hash}`, body, { 'content-type': type });
      expect(await put(sha256(bytes), bytes)).toMatchObject({
        status: 200,
        body: { sha256: sha256(bytes), bytes: 5_000 },
      });
      expect((await put(sha256(bytes), bytes)).status).toBe(200);
      expect((await put('0'.repeat(64), bytes)).status).toBe(422);
      expect((await put('x', bytes)).status).toBe(422);
      expect((await put(sha256(bytes), randomBytes(100_001))).status).toBe(413);
      expect((await put(sha256(bytes), bytes, 'text/plain')).status).toBe(415);
    });

    it('what no build owns can be read by nobody and is collected after a day; what one owns stays', async () => {
      const bytes = randomBytes(3_000);
      const { sha256: orphan } = await agent.put(bytes);
      expect((await agent.call('GET', `blob/${orphan}`)).status).toBe(404);
      expect((await bench.internal('GET', `blobs/${orphan}`)).status).toBe(404);
      const { build } = await bench.appWithBuild();
      const artifact = await agent.build(build.id, 'static');
      await eventually(
        'it is owned',
        async () => (await bench.internal('GET', `blobs/${artifact}`)).status === 200,
      );
      const { Housekeeping } = await import('../shared/housekeeping.js');
      const housekeeping = bench.nebo.services.get('apps-builder')!.app.get(Housekeeping);
      const has = (hash: string) => bench.nebo.runtime.blobs.has(hash);
      await housekeeping.run();
      expect(await has(orphan)).toBe(3_000);
      await bench.sql("update blob set stored_at = now() - interval '25 hours'");
      await housekeeping.run();
      expect([await has(orphan), await bench.sql('select 1 from blob where sha256 = $1', [orphan])]).toEqual([
        null,
        [],
      ]);
      expect(await has(artifact)).not.toBeNull();
      expect((await bench.internal('GET', `blobs/${artifact}`)).headers).toMatchObject({
        'content-type': 'application/octet-stream',
      });
    });
  });
});
