import { randomUUID } from 'node:crypto';
import { sharedPostgres } from '@nebo/test-kit';
import type { Wanted } from '@nebo/contracts';
import { FakeAgent, FakeEdge } from '../../test/fake-agent.js';
import { archive, Bench, eventually } from '../../test/harness.js';
import { Housekeeping } from '../shared/housekeeping.js';

type WantedBuild = Extract<Wanted, { kind: 'build' }>;
const digestOf = (text: string) => `sha256:${Buffer.from(text).toString('hex').padEnd(64, '0')}`;

describe('builds of images', () => {
  let bench: Bench;
  let agent: FakeAgent;
  let edge: FakeEdge;

  beforeAll(async () => {
    bench = await Bench.start();
    agent = new FakeAgent(bench);
    edge = new FakeEdge(bench);
    edge.run();
  });
  afterAll(async () => {
    await edge?.stop();
    await bench?.close();
    await (await sharedPostgres()).stop();
  });

  const create = (docker_image: string | null, more: object = {}) =>
    bench.api('POST', `projects/${bench.project}/apps`, {
      name: randomUUID(),
      source_type: 'docker_image',
      docker_image,
      ...more,
    });
  const deploy = async (app: string, body?: object) => bench.api('POST', `apps/${app}/deploy`, body);
  const buildOf = async (app: string, id: string) =>
    (await bench.api('GET', `apps/${app}/builds/${id}`)).body;
  const wanted = (id: string) =>
    agent.until(
      'the build is wanted',
      (item): item is WantedBuild => item.kind === 'build' && item.id === id,
    );
  const until = (app: string, id: string, status: string) =>
    eventually(`build ${status}`, async () => {
      const build = await buildOf(app, id);
      return build.status === status && build;
    });
  /** The region pulls it: a document and layers of its own. */
  const pulled = async (id: string, digest: string, layers: { sha256: string; bytes: number }[]) => {
    const item = await wanted(id);
    await agent.observe(item, 'building');
    const artifact = await agent.put(Buffer.from(JSON.stringify({ digest })));
    const facts = { artifact, artifact_kind: 'server', start_command: null, stack: 'image', duration_ms: 5 };
    await agent.observe(item, 'success', { facts: { ...facts, image: { digest, layers } } });
    return artifact;
  };

  it('422 for what is no image’s name, at create and at PATCH; 409 before there is one; 422 for a commit', async () => {
    for (const docker_image of ['Nginx', 'https://example.com/a', 'a b', 'nginx@sha256:1', '']) {
      const { status, body } = await create(docker_image);
      expect({ status, loc: body.detail?.[0]?.loc }).toEqual({ status: 422, loc: ['body', 'docker_image'] });
    }
    const app = (await create(null)).body;
    expect(await deploy(app.id)).toMatchObject({ status: 409, body: { error: { code: 'no_source' } } });
    const wrong = await bench.api('PATCH', `apps/${app.id}`, { docker_image: 'a/B' });
    expect(wrong).toMatchObject({
      status: 422,
      body: { detail: [{ msg: expect.stringContaining('lower case') }] },
    });
    expect((await bench.api('PATCH', `apps/${app.id}`, { docker_image: 'ann/web:1' })).status).toBe(200);
    expect((await deploy(app.id, { commit_sha: 'a'.repeat(40) })).status).toBe(422);
    expect((await deploy(app.id)).status).toBe(200);
  });

  it('deploy asks the region for the image, success names its digest, the rollout says what runs', async () => {
    const app = (await create('ann/web:1', { start_command: 'serve' })).body;
    const { id } = (await deploy(app.id)).body;
    expect(await buildOf(app.id, id)).toMatchObject({ docker_image: 'ann/web:1', docker_image_digest: null });
    expect((await wanted(id)).spec).toMatchObject({
      source: null,
      image: { reference: 'ann/web:1', digest: null, stored: null, known_layers: [] },
      start_command: 'serve',
    });
    const layers = [await agent.put(Buffer.from('layer one')), await agent.put(Buffer.from('layer two'))];
    const artifact = await pulled(id, digestOf('one'), layers);
    expect(await until(app.id, id, 'success')).toMatchObject({
      docker_image_digest: digestOf('one'),
      source_archive_sha256: null,
      source_archive_bytes: null,
    });
    const [replica] = await agent.replicas(id, 1);
    expect(replica!.spec).toMatchObject({ artifact, image: true, start_command: '' });
    await agent.ready(replica!);
    await eventually('it runs', async () => {
      const { body } = await bench.api('GET', `apps/${app.id}`);
      return (
        body.running_docker_image === 'ann/web:1' && body.running_docker_image_digest === digestOf('one')
      );
    });
    // The region may read every layer, and nobody collects them.
    for (const { sha256 } of layers) expect((await agent.call('GET', `blob/${sha256}`)).status).toBe(200);
    await bench.sql(`update blob set stored_at = now() - interval '3 days'`);
    await bench.nebo.services.get('apps-builder')!.app.get(Housekeeping).run();
    for (const { sha256 } of layers) expect((await agent.call('GET', `blob/${sha256}`)).status).toBe(200);
    // The next build need not fetch them again; a rebuild fetches nothing.
    const next = (await deploy(app.id)).body.id;
    const known = layers.map(({ sha256 }) => sha256);
    expect((await wanted(next)).spec.image).toMatchObject({
      digest: null,
      stored: null,
      known_layers: known,
    });
    const again = (await bench.api('POST', `apps/${app.id}/builds/${id}/rebuild`)).body.id;
    expect((await wanted(again)).spec.image).toMatchObject({
      reference: 'ann/web:1',
      digest: digestOf('one'),
      stored: artifact,
    });
    expect(await buildOf(app.id, again)).toMatchObject({ docker_image_digest: digestOf('one') });
  });

  it('variables of a login go to the pull, and to nothing that runs; the password is never shown', async () => {
    const app = (await create('registry.example.com/ann/web:1')).body;
    const set = (name: string, value: string) => bench.api('POST', `apps/${app.id}/env`, { name, value });
    const restartAt = async () =>
      (await bench.sql('select restart_at from app where id = $1::uuid', [app.id]))[0]!['restart_at'];
    await set('NEBO_REGISTRY_HOST', 'registry.example.com');
    expect((await set('NEBO_REGISTRY_PASSWORD', 'sesame')).body).toMatchObject({
      value: '********',
      is_secret: true,
    });
    expect(await restartAt()).toBeNull();
    await set('COLOUR', 'red');
    expect(await restartAt()).not.toBeNull();
    // It would replace the replica that is told to be ready below.
    await eventually('the restart is over', async () => (await restartAt()) === null);
    const { id } = (await deploy(app.id)).body;
    const { spec } = await wanted(id);
    expect(spec.image!.login).toEqual({ host: 'registry.example.com', username: null, password: 'sesame' });
    const seen = [{ name: 'COLOUR', value: 'red', secret: false }];
    expect(spec.env).toEqual(seen);
    await pulled(id, digestOf('login'), [await agent.put(Buffer.from('layer of ann'))]);
    const [replica] = await agent.replicas(id, 1);
    expect(replica!.spec).toMatchObject({ env: seen });
    await agent.ready(replica!);
    await eventually('it is live', async () => (await buildOf(app.id, id)).deploy_state === 'live');
    const job = (await bench.api('POST', `apps/${app.id}/jobs`, { name: 'j', command: 'env' })).body;
    const run = (await bench.api('POST', `apps/${app.id}/jobs/${job.id}/run`)).body;
    const item = await agent.until('the run is wanted', (each) => each.kind === 'run' && each.id === run.id);
    expect(item.spec).toMatchObject({ env: seen });
    // An app without a login: nothing is said of one.
    const plain = (await create('ann/web:1')).body;
    const other = (await deploy(plain.id)).body.id;
    expect((await wanted(other)).spec.image!.login).toBeNull();
  });

  it('a job of an image app runs in the image', async () => {
    const app = (await create('ann/web:2')).body;
    const { id } = (await deploy(app.id)).body;
    await pulled(id, digestOf('two'), [await agent.put(Buffer.from('layer one'))]);
    const [replica] = await agent.replicas(id, 1);
    await agent.ready(replica!);
    await eventually('it is live', async () => (await buildOf(app.id, id)).deploy_state === 'live');
    const job = (await bench.api('POST', `apps/${app.id}/jobs`, { name: 'j', command: 'true' })).body;
    const run = (await bench.api('POST', `apps/${app.id}/jobs/${job.id}/run`)).body;
    const item = await agent.until('the run is wanted', (each) => each.id === run.id);
    expect(item.spec).toMatchObject({ image: true, command: 'true' });
  });

  it('a region that names no digest, or layers that did not arrive, has made nothing', async () => {
    const app = (await create('ann/web:3')).body;
    for (const [image, why] of [
      [undefined, 'the region reported no image'],
      [{ digest: 'latest', layers: [] }, 'the region reported no image'],
      [{ digest: digestOf('x'), layers: [{ sha256: 'zz', bytes: 1 }] }, 'the region reported no image'],
      [
        { digest: digestOf('x'), layers: [{ sha256: 'f'.repeat(64), bytes: 1 }] },
        'a layer of the image did not arrive',
      ],
    ] as const) {
      const { id } = (await deploy(app.id)).body;
      const item = await wanted(id);
      await agent.observe(item, 'building');
      const artifact = await agent.put(Buffer.from(randomUUID()));
      const facts = {
        artifact,
        artifact_kind: 'server',
        start_command: null,
        stack: 'image',
        duration_ms: 5,
      };
      await agent.observe(item, 'success', { facts: { ...facts, ...(image ? { image } : {}) } });
      expect((await until(app.id, id, 'error')).error).toContain(why);
    }
  });

  it('an image that a region built of a Dockerfile runs as one, without a name that anybody could pull', async () => {
    const app = await bench.app();
    const { id } = (await bench.upload(`apps/${app.id}/deployments`, archive({ Dockerfile: 'FROM scratch' })))
      .body;
    const item = await wanted(id);
    expect(item.spec.image).toBeUndefined();
    const layer = await agent.put(Buffer.from('layer of a Dockerfile'));
    const facts = async (layers: object[]) => ({
      artifact: await agent.put(Buffer.from('document of a Dockerfile')),
      ...{ artifact_kind: 'server', start_command: null, stack: 'dockerfile', duration_ms: 5 },
      image: { digest: digestOf('made'), layers },
    });
    await agent.observe(item, 'building');
    await agent.observe(item, 'success', { facts: await facts([layer]) });
    expect(await until(app.id, id, 'success')).toMatchObject({
      ...{ docker_image: null, docker_image_digest: null },
      source_archive_sha256: expect.stringMatching(/^[0-9a-f]{64}$/),
    });
    const [replica] = await agent.replicas(id, 1);
    expect(replica!.spec).toMatchObject({ image: true, start_command: '' });
    await agent.ready(replica!);
    await eventually('it is live', async () => (await buildOf(app.id, id)).deploy_state === 'live');
    await bench.sql(`update blob set stored_at = now() - interval '3 days'`);
    await bench.nebo.services.get('apps-builder')!.app.get(Housekeeping).run();
    expect((await agent.call('GET', `blob/${layer.sha256}`)).status).toBe(200);
    // Built again of its source, not of the image; and one whose layers did not come has made nothing.
    const again = (await bench.api('POST', `apps/${app.id}/builds/${id}/rebuild`)).body.id;
    const second = await wanted(again);
    expect(second.spec).toMatchObject({ source: item.spec.source });
    await agent.observe(second, 'building');
    await agent.observe(second, 'success', {
      facts: await facts([{ sha256: 'e'.repeat(64), bytes: 1 }]),
    });
    expect((await until(app.id, again, 'error')).error).toContain('a layer of the image did not arrive');
  });

  it('a pull that fails is the build’s error; a rebuild of it asks for the name again', async () => {
    const app = (await create('ann/web:4')).body;
    const { id } = (await deploy(app.id)).body;
    const item = await wanted(id);
    await agent.observe(item, 'building');
    await agent.observe(item, 'error', { reason: 'pull: There is no ann/web:4' });
    expect(await until(app.id, id, 'error')).toMatchObject({
      error: 'pull: There is no ann/web:4',
      docker_image_digest: null,
    });
    const again = (await bench.api('POST', `apps/${app.id}/builds/${id}/rebuild`)).body.id;
    expect((await wanted(again)).spec.image).toMatchObject({
      reference: 'ann/web:4',
      digest: null,
      stored: null,
    });
  });
});
