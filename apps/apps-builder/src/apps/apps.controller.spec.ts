import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { keyOf } from '@nebo/service-kit/testing';
import { sharedPostgres } from '@nebo/test-kit';
import { Bench, otherRegion, region } from '../../test/harness.js';

describe('apps', () => {
  let bench: Bench;
  const create = (body: unknown, headers: Record<string, string> = {}, project = bench.project) =>
    bench.api('POST', `projects/${project}/apps`, body, bench.key, headers);

  beforeAll(async () => {
    bench = await Bench.start();
  });
  afterAll(async () => {
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  it('201 creates an app with the defaults of the contract', async () => {
    const { status, headers, body } = await create({ name: 'Shop', source_type: 'upload', unknown_field: 1 });
    expect(status).toBe(201);
    expect(headers['content-type']).toContain('json');
    expect(body).toEqual({
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      project_id: bench.project,
      name: 'Shop',
      status: 'inactive',
      app_type: 'frontend',
      runtime_type: 'firecracker',
      source_type: 'upload',
      source_error: null,
      git_provider: 'github',
      repo_full_name: '',
      branch: 'main',
      auto_deploy: true,
      docker_image: null,
      running_docker_image: null,
      running_docker_image_digest: null,
      current_build_id: null,
      deploy_state: null,
      predeploy_command: null,
      readiness_path: null,
      replica_count: 0,
      replica_vcpu: 1,
      replica_memory_mb: 512,
      vpc_id: null,
      cluster_id: region,
      deploy_strategy: 'rolling',
      created_at: expect.stringMatching(/Z$/),
      updated_at: expect.stringMatching(/Z$/),
    });
    expect((await bench.api('GET', `apps/${body.id}`)).body).toEqual(body);
    expect((await bench.api('GET', `projects/${bench.project}/apps/${body.id}`)).body).toEqual(body);
  });

  it('201 in the region that the body names', async () => {
    expect((await create({ name: 'far', cluster_id: otherRegion.toUpperCase() })).body).toMatchObject({
      cluster_id: otherRegion,
      source_type: 'git',
    });
  });

  it('200 for an id in upper case, in both addressings', async () => {
    const app = await bench.app();
    expect((await bench.api('GET', `apps/${app.id.toUpperCase()}`)).body.id).toBe(app.id);
    expect(
      (await bench.api('GET', `projects/${bench.project.toUpperCase()}/apps/${app.id.toUpperCase()}`)).body
        .id,
    ).toBe(app.id);
  });

  it('401 without a signed identity', async () => {
    expect((await bench.api('GET', 'apps', undefined, null)).status).toBe(401);
    expect((await bench.api('POST', `projects/${bench.project}/apps`, { name: 'x' }, null)).status).toBe(401);
  });

  it('404, always the same, for another account, an unknown id, no id, another project', async () => {
    const app = await bench.app();
    const answers = [
      await bench.api('GET', `apps/${app.id}`, undefined, bench.stranger),
      await bench.api('PATCH', `apps/${app.id}`, { name: 'mine' }, bench.stranger),
      await bench.api('DELETE', `apps/${app.id}`, undefined, bench.stranger),
      await bench.api('GET', `apps/${randomUUID()}`),
      await bench.api('GET', 'apps/no-id'),
      await bench.api('GET', `projects/${randomUUID()}/apps/${app.id}`),
      await bench.api('DELETE', `projects/${randomUUID()}/apps/${app.id}`),
    ];
    for (const answer of answers)
      expect(answer).toMatchObject({
        status: 404,
        body: { error: { code: 'not_found', message: 'not found' } },
      });
    expect((await bench.api('GET', `apps/${app.id}`)).body.name).toBe(app.name);
  });

  it('404 naming the field for a region or VPC that is not there', async () => {
    for (const cluster_id of [randomUUID(), 'nowhere']) {
      expect(await create({ name: 'x1', cluster_id })).toMatchObject({
        status: 404,
        body: { error: { message: 'cluster_id: not found' } },
      });
    }
    expect(await create({ name: 'x2', vpc_id: randomUUID() })).toMatchObject({
      status: 404,
      body: { error: { message: 'vpc_id: not found' } },
    });
    const app = await bench.app();
    expect(await bench.api('PATCH', `apps/${app.id}`, { vpc_id: randomUUID() })).toMatchObject({
      status: 404,
      body: { error: { message: 'vpc_id: not found' } },
    });
    expect((await bench.api('PATCH', `apps/${app.id}`, { vpc_id: null })).status).toBe(200);
  });

  it('409 name_taken: without case, per project, only while listed', async () => {
    const name = `Лавка ${randomUUID()}`;
    const first = (await create({ name })).body;
    expect(await create({ name: name.toUpperCase() })).toMatchObject({
      status: 409,
      body: { error: { code: 'name_taken' } },
    });
    expect((await create({ name }, {}, randomUUID())).status).toBe(201);
    const other = await bench.app();
    expect(await bench.api('PATCH', `apps/${other.id}`, { name })).toMatchObject({
      status: 409,
      body: { error: { code: 'name_taken' } },
    });
    expect((await bench.api('DELETE', `apps/${first.id}`)).status).toBe(204);
    expect((await create({ name })).status).toBe(201);
  });

  it('race: of two parallel creates of one name one gets 201 and the other 409', async () => {
    for (let round = 0; round < 5; round += 1) {
      const name = `race ${randomUUID()}`;
      const answers = await Promise.all([create({ name }), create({ name })]);
      expect(answers.map(({ status }) => status).sort()).toEqual([201, 409]);
    }
  });

  it('422 for unknown words, wrong types and bounds, with every field named', async () => {
    const { status, body } = await create({
      name: '',
      app_type: 'blog',
      source_type: 'ftp',
      replica_count: 11,
      replica_vcpu: '2',
      readiness_path: 'health',
    });
    expect(status).toBe(422);
    expect(body.error.code).toBe('validation_error');
    expect(body.detail.map(({ loc }: { loc: string[] }) => loc[1]).sort()).toEqual([
      'app_type',
      'name',
      'readiness_path',
      'replica_count',
      'replica_vcpu',
      'source_type',
    ]);
    for (const bad of [
      { name: 'a\0b' },
      { name: ' ' },
      { name: 'x'.repeat(256) },
      { name: 'x', repo_id: 1e300 },
      { name: 'x', docker_image: 'nginx' },
      [],
      'x',
    ]) {
      expect((await create(bad)).status).toBe(422);
    }
    expect((await bench.api('GET', 'apps?limit=0')).status).toBe(422);
    expect((await bench.api('GET', 'apps?limit=201')).status).toBe(422);
    expect((await bench.api('GET', 'apps?offset=1e2')).status).toBe(422);
  });

  it('422 for fields that the update does not have, and for an image of an app without one', async () => {
    const app = await bench.app();
    for (const body of [
      { status: 'active' },
      { source_type: 'git' },
      { cluster_id: region },
      { account_id: randomUUID() },
      { docker_image: 'nginx' },
    ]) {
      expect((await bench.api('PATCH', `apps/${app.id}`, body)).status).toBe(422);
    }
    const image = (await create({ name: randomUUID(), source_type: 'docker_image', docker_image: 'nginx:1' }))
      .body;
    expect((await bench.api('PATCH', `apps/${image.id}`, { docker_image: 'nginx:2' })).body).toMatchObject({
      docker_image: 'nginx:2',
      status: 'inactive',
    });
  });

  it('200 changes what is sent; null changes nothing, an empty readiness path removes it', async () => {
    const app = await bench.app({ readiness_path: '/ready' });
    const changed = await bench.api('PATCH', `apps/${app.id}`, {
      name: 'Other name',
      replica_memory_mb: 1024,
      deploy_strategy: 'recreate',
      docker_image: null,
      replica_count: null,
    });
    expect(changed).toMatchObject({
      status: 200,
      body: {
        name: 'Other name',
        replica_memory_mb: 1024,
        replica_vcpu: 1,
        readiness_path: '/ready',
        deploy_strategy: 'recreate',
        replica_count: 0,
      },
    });
    expect(
      (await bench.api('PATCH', `apps/${app.id}`, { readiness_path: '' })).body.readiness_path,
    ).toBeNull();
    expect((await bench.api('GET', `apps/${app.id}`)).body).toMatchObject({
      name: 'Other name',
      readiness_path: null,
    });
  });

  it('race: changes of different fields at once do not undo each other', async () => {
    for (let round = 0; round < 5; round += 1) {
      const app = await bench.app();
      await Promise.all(
        [{ replica_vcpu: 2 }, { replica_memory_mb: 1024 }, { readiness_path: '/x' }].map((body) =>
          bench.api('PATCH', `apps/${app.id}`, body),
        ),
      );
      expect((await bench.api('GET', `apps/${app.id}`)).body).toMatchObject({
        replica_vcpu: 2,
        replica_memory_mb: 1024,
        readiness_path: '/x',
      });
    }
  });

  it('402 for permanent replicas without their first hour, 503 when billing is away; nothing is made', async () => {
    const app = await bench.app();
    bench.billing.available = 10n;
    const poor = await create({ name: 'rich', replica_count: 1 });
    expect(poor).toMatchObject({ status: 402, body: { error: { code: 'insufficient_balance' } } });
    expect((await bench.api('PATCH', `apps/${app.id}`, { replica_count: 2 })).status).toBe(402);
    bench.billing.away = true;
    expect(await create({ name: 'rich', replica_count: 1 })).toMatchObject({
      status: 503,
      body: { error: { code: 'billing_unavailable' } },
    });
    // What costs nothing is not held up by billing.
    expect((await create({ name: 'free' })).status).toBe(201);
    bench.billing.away = false;
    bench.billing.available = 10n ** 15n;
    expect((await bench.api('GET', `apps/${app.id}`)).body.replica_count).toBe(0);
    expect((await create({ name: 'rich', replica_count: 1 })).body).toMatchObject({ replica_count: 1 });
  });

  it('204 deletes at once, 404 afterwards', async () => {
    const app = await bench.app();
    const gone = await bench.api('DELETE', `apps/${app.id}`, undefined, bench.key, {
      'content-type': 'application/json',
    });
    expect([gone.status, gone.text]).toEqual([204, '']);
    expect((await bench.api('GET', `apps/${app.id}`)).status).toBe(404);
    expect((await bench.api('DELETE', `apps/${app.id}`)).status).toBe(404);
  });

  it('repeats what it answered for one Idempotency-Key; 422 for another content under it', async () => {
    const headers = { 'idempotency-key': randomUUID() };
    const name = randomUUID();
    const first = await create({ name }, headers);
    const again = await create({ name }, headers);
    // Byte by byte, order of the fields included.
    expect([again.status, again.text]).toEqual([201, first.text]);
    expect(await create({ name: 'another' }, headers)).toMatchObject({
      status: 422,
      body: { error: { code: 'idempotency_key_reused' } },
    });
  });

  describe('lists', () => {
    it('200 with what the policy shows, page by page, in a stable order', async () => {
      const project = randomUUID();
      const apps = [];
      for (let made = 0; made < 5; made += 1) apps.push(await bench.app({}, project));
      const ids = apps.map(({ id }) => id);
      const page = (await bench.api('GET', `projects/${project}/apps?limit=2&offset=2`)).body;
      expect(page).toMatchObject({ limit: 2, offset: 2, count: 2, total: 5 });
      expect(page.data.map(({ id }: { id: string }) => id)).toEqual(ids.slice(2, 4));
      expect(
        (await bench.api('GET', `apps?project_id=${project}&limit=200`)).body.data.map(
          ({ id }: { id: string }) => id,
        ),
      ).toEqual(ids);
      expect((await bench.api('GET', `apps?project_id=${project}&offset=5`)).body).toMatchObject({
        data: [],
        count: 0,
        total: 5,
      });
      expect((await bench.api('GET', 'apps', undefined, bench.stranger)).body).toMatchObject({
        data: [],
        total: 0,
      });
    });

    it('200 and empty, not 403, for a key that may not see anything; narrowed by allow, deny and allow-list', async () => {
      const project = randomUUID();
      const one = await bench.app({}, project);
      const two = await bench.app({}, project);
      const see = async (
        policy: { effect: 'allow' | 'deny'; actions: string[]; resources: string[] }[],
        project_ids: string[] | null = null,
      ) => {
        const { status, body } = await bench.api(
          'GET',
          `apps?project_id=${project}`,
          undefined,
          keyOf(bench.account, { policy, project_ids }),
        );
        expect(status).toBe(200);
        return body.data.map(({ id }: { id: string }) => id);
      };
      const all = { effect: 'allow' as const, actions: ['*'], resources: ['*'] };
      expect(await see([{ effect: 'allow', actions: ['vm:read'], resources: ['*'] }])).toEqual([]);
      expect(await see([{ effect: 'allow', actions: ['app:read'], resources: [`app:${one.id}`] }])).toEqual([
        one.id,
      ]);
      expect(await see([{ effect: 'allow', actions: ['app:*'], resources: [`project:${project}`] }])).toEqual(
        [one.id, two.id],
      );
      expect(
        await see([all, { effect: 'deny', actions: ['app:read'], resources: [`app:${one.id}`] }]),
      ).toEqual([two.id]);
      expect(
        await see([all, { effect: 'deny', actions: ['app:read'], resources: [`project:${project}`] }]),
      ).toEqual([]);
      expect(await see([all], [randomUUID()])).toEqual([]);
      expect(
        await see([{ effect: 'allow', actions: ['app:read'], resources: [`app:${'-'.repeat(36)}`] }]),
      ).toEqual([]);
    });
  });

  it('says what it did, once, in the transaction of the act', async () => {
    const app = await bench.app({ name: 'audited' });
    await bench.api('PATCH', `apps/${app.id}`, { replica_vcpu: 2 });
    await bench.api('DELETE', `apps/${app.id}`);
    const rows = await bench.sql<{
      envelope: { type: string; account: string; data: { action?: string; actor?: string } };
    }>(
      "select envelope from outbox where envelope->'data'->>'app_id' = $1 or envelope->'data'->>'resource' = $2 order by seq",
      [app.id, `app:${app.id}`],
    );
    const said = rows
      .map(({ envelope }) => `${envelope.type} ${envelope.data.action ?? ''}`.trim())
      .filter((line) => !line.includes('route.changed'));
    expect(said).toEqual([
      'nebo.apps-builder.audit.written.v1 apps_create_app',
      'nebo.apps-builder.app.created.v1',
      'nebo.apps-builder.audit.written.v1 apps_update_app_route',
      'nebo.apps-builder.audit.written.v1 apps_delete_app_route',
      'nebo.apps-builder.app.deleted.v1',
    ]);
    expect(rows[0]!.envelope).toMatchObject({
      account: bench.account,
      data: { actor: `key:${bench.key.key_id}` },
    });
  });

  it('nothing is made in a project that is gone or just being deleted, and one that is being made is counted', async () => {
    const project = randomUUID();
    const make = () =>
      bench.api('POST', `projects/${project}/apps`, { name: randomUUID(), source_type: 'upload' });
    const usage = () => bench.internal('GET', `projects/${project}/usage`);
    const answers = [
      [404, 'not_found'],
      [409, 'project_busy'],
    ] as const;
    for (const [status, code] of answers) {
      bench.billing.project = { status, body: { error: { code, message: code } } };
      expect(await make()).toMatchObject({ status, body: { error: { code } } });
    }
    bench.billing.project = { status: 200, body: {} };
    expect((await usage()).body).toEqual({ count: 0, apps: 0 });
    // One app is there, and another creation is between its look at the project and its commit.
    expect((await make()).status).toBe(201);
    const client = new pg.Client({ connectionString: bench.databaseUrl });
    await client.connect();
    await client.query('begin');
    await client.query('select pg_advisory_xact_lock_shared(hashtextextended($1, 0))', [
      `project|${project}`,
    ]);
    let counted: unknown = null;
    const counting = usage().then(({ body }) => (counted = body));
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(counted).toBeNull();
    await client.query('commit');
    await client.end();
    await counting;
    expect(counted).toEqual({ count: 1, apps: 1 });
  });

  it('internal: owner and usage of a project', async () => {
    const project = randomUUID();
    const app = await bench.app({}, project);
    expect((await bench.internal('GET', `owners/app/${app.id}`)).body).toEqual({
      account_id: bench.account,
      project_id: project,
      parents: [],
    });
    expect((await bench.internal('GET', `owners/app/${randomUUID()}`)).status).toBe(404);
    expect((await bench.internal('GET', `projects/${project}/usage`)).body).toEqual({ count: 1, apps: 1 });
    await bench.api('DELETE', `apps/${app.id}`);
    expect((await bench.internal('GET', `owners/app/${app.id}`)).status).toBe(404);
    expect((await bench.internal('GET', `projects/${project}/usage`)).body).toMatchObject({ apps: 0 });
    expect(
      (await bench.nebo.request('apps-builder', { path: `/internal/v1/owners/app/${app.id}`, as: bench.key }))
        .status,
    ).toBe(401);
  });
});
