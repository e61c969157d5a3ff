import { randomUUID } from 'node:crypto';
import { sharedPostgres } from '@nebo/test-kit';
import { FakeAgent } from '../../test/fake-agent.js';
import { archive, Bench, eventually, pause, sha256 } from '../../test/harness.js';

describe('builds', () => {
  let bench: Bench;
  let agent: FakeAgent;
  const buildOf = async (app: string, id: string) =>
    (await bench.api('GET', `apps/${app}/builds/${id}`)).body;
  const until = (app: string, id: string, status: string) =>
    eventually(`build ${status}`, async () => {
      const build = await buildOf(app, id);
      return build.status === status && build;
    });

  beforeAll(async () => {
    bench = await Bench.start();
    agent = new FakeAgent(bench);
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  it('200 lists builds newest first, page by page', async () => {
    const { app, build } = await bench.appWithBuild();
    const ids = [build.id];
    for (let made = 0; made < 3; made += 1)
      ids.unshift((await bench.api('POST', `apps/${app.id}/deploy`)).body.id);
    const all = (await bench.api('GET', `projects/${bench.project}/apps/${app.id}/builds`)).body;
    expect(all.data.map(({ id }: { id: string }) => id)).toEqual(ids);
    expect((await bench.api('GET', `apps/${app.id}/builds?limit=2&offset=3`)).body).toMatchObject({
      count: 1,
      total: 4,
      data: [{ id: build.id }],
    });
  });

  it('200 deploy takes no body, null and {}; 409 no_source before the first folder or image', async () => {
    const { app } = await bench.appWithBuild();
    for (const body of [undefined, null, {}, { commit_sha: null }]) {
      expect(await bench.api('POST', `apps/${app.id}/deploy`, body)).toMatchObject({
        status: 200,
        body: { app_id: app.id, site_id: app.id, status: 'queued' },
      });
    }
    const bare = await bench.api(
      'POST',
      `projects/${bench.project}/apps/${app.id}/deploy`,
      undefined,
      bench.key,
      { 'content-type': 'application/json' },
    );
    expect(bare.status).toBe(200);
    expect((await bench.api('POST', `apps/${app.id}/deploy`, { commit_sha: 'abc' })).status).toBe(422);
    expect((await bench.api('POST', `apps/${app.id}/deploy`, { commit_sha: 5 })).status).toBe(422);
    const fresh = await bench.app();
    expect(await bench.api('POST', `apps/${fresh.id}/deploy`)).toMatchObject({
      status: 409,
      body: { error: { code: 'no_source' } },
    });
    const image = await bench.app({ source_type: 'docker_image' });
    expect(await bench.api('POST', `apps/${image.id}/deploy`)).toMatchObject({
      status: 409,
      body: { error: { code: 'no_source' } },
    });
  });

  it('200 rebuild uses the bytes of that build, deploy the newest ones', async () => {
    const app = await bench.app();
    const [one, two] = [archive({ a: '1' }), archive({ a: '2' })];
    const first = (await bench.upload(`apps/${app.id}/deployments`, one)).body;
    await bench.upload(`apps/${app.id}/deployments`, two);
    const again = await bench.api('POST', `apps/${app.id}/builds/${first.id.toUpperCase()}/rebuild`);
    expect(again.status).toBe(200);
    expect(again.body.id).not.toBe(first.id);
    expect((await buildOf(app.id, again.body.id)).source_archive_sha256).toBe(sha256(one));
    const item = await agent.until('the rebuild is wanted', ({ id }) => id === again.body.id);
    expect(item).toMatchObject({
      kind: 'build',
      generation: 1,
      gone: false,
      spec: { source: { sha256: sha256(one), bytes: one.length }, log_stream: again.body.id },
    });
    expect((await agent.call('GET', `blob/${sha256(one)}`)).text).toBe(one.toString('utf8'));
  });

  it('404 for builds of another account, of another app and for no id; 401 without identity', async () => {
    const { app, build } = await bench.appWithBuild();
    const other = await bench.app();
    for (const path of [
      `apps/${other.id}/builds/${build.id}`,
      `apps/${app.id}/builds/${randomUUID()}`,
      `apps/${app.id}/builds/x`,
    ]) {
      expect((await bench.api('GET', path)).status).toBe(404);
      expect((await bench.api('POST', `${path}/rebuild`)).status).toBe(404);
      expect((await bench.api('POST', `${path}/cancel`)).status).toBe(404);
      expect((await bench.api('GET', `${path}/logs`)).status).toBe(404);
    }
    for (const [method, path] of [
      ['GET', 'builds'],
      ['GET', `builds/${build.id}`],
      ['POST', 'deploy'],
      ['POST', `builds/${build.id}/rebuild`],
      ['POST', `builds/${build.id}/cancel`],
      ['GET', 'events'],
      ['GET', 'logs'],
    ]) {
      expect((await bench.api(method!, `apps/${app.id}/${path}`, undefined, bench.stranger)).status).toBe(
        404,
      );
      expect((await bench.api(method!, `apps/${app.id}/${path}`, undefined, null)).status).toBe(401);
    }
  });

  it('200 cancels a waiting build at once and a running one when the region has stopped it; 409 when it has ended', async () => {
    const { app, build } = await bench.appWithBuild();
    const waiting = await bench.api('POST', `apps/${app.id}/builds/${build.id}/cancel`);
    expect(waiting).toMatchObject({
      status: 200,
      body: { status: 'cancelled', deploy_state: null, error: 'cancelled on request' },
    });
    expect(waiting.body.finished_at).not.toBeNull();
    expect((await bench.api('POST', `apps/${app.id}/builds/${build.id}/cancel`)).body.status).toBe(
      'cancelled',
    );

    const running = (await bench.api('POST', `apps/${app.id}/deploy`)).body;
    const item = await agent.until('wanted', ({ id }) => id === running.id);
    await agent.observe(item, 'building');
    await until(app.id, running.id, 'building');
    expect((await bench.api('POST', `apps/${app.id}/builds/${running.id}/cancel`)).body.status).toBe(
      'building',
    );
    const gone = await agent.until('called off', ({ id, gone }) => id === running.id && gone);
    expect(gone.generation).toBe(2);
    await agent.observe(gone, 'cancelled');
    expect(await until(app.id, running.id, 'cancelled')).toMatchObject({ error: 'cancelled on request' });

    const failed = (await bench.api('POST', `apps/${app.id}/deploy`)).body;
    await agent.observe(await agent.until('wanted', ({ id }) => id === failed.id), 'error', {
      reason: 'npm ERR! 1',
    });
    expect(await until(app.id, failed.id, 'error')).toMatchObject({
      deploy_state: 'build_failed',
      error: 'npm ERR! 1',
    });
    expect(await bench.api('POST', `apps/${app.id}/builds/${failed.id}/cancel`)).toMatchObject({
      status: 409,
      body: { error: { code: 'build_finished' } },
    });
    expect((await bench.api('GET', `apps/${app.id}`)).body).toMatchObject({
      status: 'inactive',
      deploy_state: 'build_failed',
    });
  });

  it('a success whose artifact never came is an error, and so is one without a start command', async () => {
    const { app, build } = await bench.appWithBuild();
    const item = await agent.until('wanted', ({ id }) => id === build.id);
    await agent.observe(item, 'success', {
      facts: {
        artifact: { sha256: '0'.repeat(64), bytes: 1 },
        artifact_kind: 'static',
        start_command: null,
        stack: 'static',
        duration_ms: 1,
      },
    });
    expect(await until(app.id, build.id, 'error')).toMatchObject({
      error: 'the artifact did not arrive from the region',
    });
    const again = (await bench.api('POST', `apps/${app.id}/deploy`)).body;
    const artifact = await agent.put(archive());
    await agent.observe(await agent.until('wanted', ({ id }) => id === again.id), 'success', {
      facts: { artifact, artifact_kind: 'server', start_command: null, stack: 'node', duration_ms: 1 },
    });
    expect((await until(app.id, again.id, 'error')).error).toContain('start_command');
  });

  it('no build stays in progress for ever: a missed deadline is an error with the reason, and the region is told', async () => {
    const { app, build } = await bench.appWithBuild();
    await bench.sql(
      "update lifecycle set entered_at = now() - interval '31 minutes', run_at = now() where kind = 'build' and id = $1",
      [build.id],
    );
    expect(await until(app.id, build.id, 'error')).toMatchObject({
      error: 'queued did not finish in 30 min: no region has begun it',
      deploy_state: 'build_failed',
    });
    const running = (await bench.api('POST', `apps/${app.id}/deploy`)).body;
    await agent.observe(await agent.until('wanted', ({ id }) => id === running.id), 'building');
    await until(app.id, running.id, 'building');
    await bench.sql(
      "update lifecycle set entered_at = now() - interval '31 minutes', run_at = now() where kind = 'build' and id = $1",
      [running.id],
    );
    expect((await until(app.id, running.id, 'error')).error).toContain('building did not finish in 30 min');
    await agent.until('called off', ({ id, gone }) => id === running.id && gone);
  });

  it('wait answers when the state is reached, at a bad end, or after the time', async () => {
    const { app, build } = await bench.appWithBuild();
    const begun = Date.now();
    expect(
      (await bench.api('GET', `apps/${app.id}/builds/${build.id}?wait=success&timeout=1`)).body.status,
    ).toBe('queued');
    expect(Date.now() - begun).toBeGreaterThan(900);
    const waiting = bench.api('GET', `apps/${app.id}/builds/${build.id}?wait=success&timeout=20`);
    await pause(100);
    await agent.observe(await agent.until('wanted', ({ id }) => id === build.id), 'error', { reason: 'no' });
    expect((await waiting).body.status).toBe('error');
    expect(Date.now() - begun).toBeLessThan(6_000);
    for (const query of [
      'wait=nonsense',
      'wait=success&timeout=61',
      'wait=success&timeout=0',
      'timeout=x',
      'wait=success&wait=error',
    ]) {
      expect((await bench.api('GET', `apps/${app.id}/builds/${build.id}?${query}`)).status).toBe(422);
      expect((await bench.api('GET', `apps/${app.id}?${query.replaceAll('success', 'active')}`)).status).toBe(
        422,
      );
    }
  });

  it('race: 20 deploys under one Idempotency-Key make one build', async () => {
    const { app } = await bench.appWithBuild();
    const headers = { 'idempotency-key': randomUUID() };
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => bench.api('POST', `apps/${app.id}/deploy`, {}, bench.key, headers)),
    );
    for (const { status, body } of answers)
      if (status !== 200) expect([status, body.error.code]).toEqual([409, 'idempotency_in_progress']);
    expect(new Set(answers.filter(({ status }) => status === 200).map(({ body }) => body.id)).size).toBe(1);
    expect((await bench.api('GET', `apps/${app.id}/builds`)).body.total).toBe(2);
  });
});
