import { randomUUID } from 'node:crypto';
import { keyOf } from '@nebo/service-kit/testing';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, otherRegion, region } from '../../test/harness.js';

describe('vpc_id of an app', () => {
  let bench: Bench;
  let mine: string;
  let foreign: string;
  let far: string;
  beforeAll(async () => {
    bench = await Bench.start();
    mine = bench.networking.vpc(bench.account, region);
    foreign = bench.networking.vpc(bench.stranger.account_id, region);
    far = bench.networking.vpc(bench.account, otherRegion);
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  const create = (body: object, as = bench.key) =>
    bench.api(
      'POST',
      `projects/${bench.project}/apps`,
      { name: randomUUID(), source_type: 'upload', ...body },
      as,
    );
  const patch = (id: string, vpc_id: unknown, as = bench.key) =>
    bench.api('PATCH', `apps/${id}`, { vpc_id }, as);
  const shown = async (id: string) => (await bench.api('GET', `apps/${id}`)).body.vpc_id;

  it('is taken at creation and by PATCH, shown, left alone by other changes, and cleared by null', async () => {
    const made = await create({ vpc_id: mine.toUpperCase() });
    expect(made).toMatchObject({ status: 201, body: { vpc_id: mine } });
    const { id } = made.body;
    expect(await shown(id)).toBe(mine);
    expect((await bench.api('PATCH', `apps/${id}`, { readiness_path: '/ok' })).body.vpc_id).toBe(mine);
    expect(await patch(id, null)).toMatchObject({ status: 200, body: { vpc_id: null } });
    expect(await patch(id, mine)).toMatchObject({ status: 200, body: { vpc_id: mine } });
    expect(await shown(id)).toBe(mine);
    expect(await create({ vpc_id: null })).toMatchObject({ status: 201, body: { vpc_id: null } });
  });

  it('404 naming the field for one that is absent, another account’s or no id: all the same body', async () => {
    const app = await bench.app({ vpc_id: mine });
    for (const vpc_id of [randomUUID(), foreign, 'net', '']) {
      for (const answer of [await create({ vpc_id }), await patch(app.id, vpc_id)])
        expect([vpc_id, answer]).toMatchObject([
          vpc_id,
          { status: 404, body: { error: { code: 'not_found', message: 'vpc_id: not found' } } },
        ]);
    }
    expect(await shown(app.id)).toBe(mine);
    expect((await patch(app.id, 7)).status).toBe(422);
  });

  it('403 for an own one without vpc:read, also by a deny; taking it away needs none', async () => {
    const app = await bench.app({ vpc_id: mine });
    const allow = { effect: 'allow' as const, actions: ['app:*'], resources: ['*'] };
    const deny = { effect: 'deny' as const, actions: ['vpc:read'], resources: [`vpc:${mine}`] };
    const all = { effect: 'allow' as const, actions: ['*'], resources: ['*'] };
    for (const policy of [[allow], [all, deny]]) {
      const as = keyOf(bench.account, { policy });
      for (const answer of [await create({ vpc_id: mine }, as), await patch(app.id, mine, as)])
        expect(answer).toMatchObject({
          status: 403,
          body: { error: { code: 'forbidden', message: 'the key lacks vpc:read here' } },
        });
      expect((await patch(app.id, foreign, as)).status).toBe(404);
    }
    expect((await patch(app.id, null, keyOf(bench.account, { policy: [allow] }))).status).toBe(200);
  });

  it('400 vpc_region_mismatch for one of another region than the app', async () => {
    const app = await bench.app({ vpc_id: mine });
    for (const answer of [
      await create({ vpc_id: far }),
      await create({ vpc_id: mine, cluster_id: otherRegion }),
      await patch(app.id, far),
    ])
      expect(answer).toMatchObject({ status: 400, body: { error: { code: 'vpc_region_mismatch' } } });
    expect(await shown(app.id)).toBe(mine);
    expect((await create({ vpc_id: far, cluster_id: otherRegion })).status).toBe(201);
  });

  it('503 when networking does not answer, and nothing is made or changed', async () => {
    const app = await bench.app({ vpc_id: mine });
    bench.networking.away = true;
    const name = randomUUID();
    expect((await create({ name, vpc_id: mine })).status).toBe(503);
    expect((await patch(app.id, mine)).status).toBe(503);
    // Everything else goes on.
    expect((await bench.api('PATCH', `apps/${app.id}`, { readiness_path: '/x' })).status).toBe(200);
    bench.networking.away = false;
    expect((await create({ name, vpc_id: mine })).status).toBe(201);
  });
});
