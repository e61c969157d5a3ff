import { randomUUID } from 'node:crypto';
import { request as httpRequest } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { findBusybox, layerTar, OwnEngine, ownEngineMissing, pageImage, RegistryPart } from '@nebo/test-kit';
import { Api, ContractCheck, readContract } from '../harness/api.js';
import { Nebo, until } from '../harness/nebo.js';

const { found: busybox, reason } = await findBusybox();
const missing = process.getuid?.() === 0 ? reason : 'only root can start sandboxes';

const noEngine = ownEngineMissing();

/** From an image's name to a page: an installation as `npm start` runs it, and an image registry beside it. */
(missing === null ? describe : describe.skip)(
  `an app from an image${missing === null ? '' : ` (SKIPPED: ${missing})`}`,
  () => {
    let nebo: Nebo;
    let api: Api;
    let registry: RegistryPart;
    let engine: OwnEngine | null = null;
    let project: string;
    let app: { id: string; name: string };
    const image = (text: string) => pageImage(busybox!, `<h1>version ${text}</h1>`);

    beforeAll(async () => {
      registry = await RegistryPart.start({ login: 'ann:open sesame' });
      engine = noEngine === null ? await OwnEngine.start() : null;
      nebo = await Nebo.start({
        NEBO_SAFE_NET_ALLOW: registry.address,
        NEBO_CONTAINER_ENGINE: engine?.socket ?? 'off',
      });
      const [demo] = nebo.credentials.accounts;
      api = new Api(nebo.credentials.base_url, demo!.api_key, new ContractCheck(readContract('v1')));
      project = demo!.project_id;
    }, 120_000);
    afterAll(async () => {
      await nebo?.dispose();
      await registry?.stop();
      await engine?.stop();
    }, 60_000);

    const served = (): Promise<{ status: number; text: string }> =>
      new Promise((resolve, reject) => {
        const { port } = new URL(nebo.credentials.edge_url);
        const headers = { host: `${app.name}.apps.localhost` };
        httpRequest({ host: '127.0.0.1', port, path: '/', headers, agent: false }, (response) => {
          buffer(response).then(
            (bytes) => resolve({ status: response.statusCode!, text: bytes.toString() }),
            reject,
          );
        })
          .on('error', reject)
          .end();
      });
    const build = async (id: string) => (await api.get(`/apps/${app.id}/builds/${id}`)).body;
    const live = async (id: string) => {
      await until(async () => {
        const { status, deploy_state, error, boot_error } = await build(id);
        if (status === 'error' || boot_error) throw new Error(error ?? boot_error);
        return deploy_state === 'live';
      }, 60_000);
      return build(id);
    };
    const deploy = async () => {
      const answer = await api.post(`/apps/${app.id}/deploy`);
      expect(answer.status).toBe(200);
      return answer.body.id as string;
    };

    it('create, deploy: the image’s page is served, and what runs is named by its digest', async () => {
      const one = image('one');
      const created = await api.post(`/projects/${project}/apps`, {
        name: `image-${randomUUID().slice(0, 8)}`,
        source_type: 'docker_image',
        docker_image: registry.push('ann/page', 'stable', one),
        replica_count: 1,
        replica_memory_mb: 256,
      });
      expect(created).toMatchObject({ status: 201, body: { running_docker_image: null } });
      app = created.body;
      // Of a registry that knows its users: the sentence of the failure names what to set.
      const shut = await deploy();
      await until(async () => (await build(shut)).status === 'error', 60_000);
      expect((await build(shut)).error).toMatch(/^pull: .* is private: the variables NEBO_REGISTRY_HOST, /);
      for (const [name, value] of [
        ['NEBO_REGISTRY_HOST', registry.address],
        ['NEBO_REGISTRY_USERNAME', 'ann'],
        ['NEBO_REGISTRY_PASSWORD', 'open sesame'],
      ]) {
        const set = await api.post(`/apps/${app.id}/env`, { name, value });
        expect(set).toMatchObject({ status: 201, body: { is_secret: name === 'NEBO_REGISTRY_PASSWORD' } });
      }
      const made = await live(await deploy());
      expect(made).toMatchObject({
        docker_image: `${registry.address}/ann/page:stable`,
        docker_image_digest: one.digest,
        source_archive_sha256: null,
      });
      expect(await served()).toEqual({ status: 200, text: '<h1>version one</h1>' });
      expect((await api.get(`/apps/${app.id}`)).body).toMatchObject({
        running_docker_image: `${registry.address}/ann/page:stable`,
        running_docker_image_digest: one.digest,
      });
    }, 90_000);

    it('another image by PATCH and deploy: no request fails meanwhile', async () => {
      const docker_image = registry.push('ann/page', 'two', image('two'));
      expect((await api.patch(`/apps/${app.id}`, { docker_image })).status).toBe(200);
      // The change alone starts nothing.
      expect((await served()).text).toContain('version one');
      let asking = true;
      const seen = new Set<string>();
      const load = (async () => {
        while (asking) {
          const { status, text } = await served();
          seen.add(`${status} ${text}`);
        }
      })();
      await live(await deploy());
      expect((await served()).text).toContain('version two');
      asking = false;
      await load;
      expect([...seen].every((answer) => /^200 <h1>version (one|two)/.test(answer))).toBe(true);
    }, 90_000);

    it('a tag that is not there fails with the registry’s reason; the version of before serves on', async () => {
      await api.patch(`/apps/${app.id}`, { docker_image: `${registry.address}/ann/page:nothing` });
      const id = await deploy();
      await until(async () => (await build(id)).status === 'error', 60_000);
      expect((await build(id)).error).toMatch(
        /^pull: There is no .*ann\/page:nothing: the registry says "manifest unknown" \(404\)/,
      );
      expect((await served()).text).toContain('version two');
      const wrong = await api.patch(`/apps/${app.id}`, { docker_image: 'Not An Image' });
      expect(wrong.status).toBe(422);
    }, 90_000);

    it('a rebuild gives the old bytes after its tag has moved, even when the registry has forgotten them', async () => {
      await api.patch(`/apps/${app.id}`, { docker_image: `${registry.address}/ann/page:stable` });
      registry.push('ann/page', 'stable', image('three'));
      const moved = await live(await deploy());
      expect((await served()).text).toContain('version three');
      const builds = (await api.get(`/apps/${app.id}/builds`)).body.data as {
        id: string;
        docker_image_digest: string | null;
      }[];
      // The very first was refused by the registry.
      const first = builds.filter((one) => one.docker_image_digest !== null).at(-1)!;
      expect(first.docker_image_digest).not.toBe(moved.docker_image_digest);
      registry.remove('ann/page');
      const again = (await api.post(`/apps/${app.id}/builds/${first.id}/rebuild`)).body.id;
      expect(await live(again)).toMatchObject({ docker_image_digest: first.docker_image_digest });
      expect((await served()).text).toContain('version one');
    }, 90_000);

    (noEngine === null ? it : it.skip)(
      `a folder with a Dockerfile is built by an engine, and served without it${noEngine === null ? '' : ` (SKIPPED: ${noEngine})`}`,
      async () => {
        const created = await api.post(`/projects/${project}/apps`, {
          ...{ name: `dockerfile-${randomUUID().slice(0, 8)}`, source_type: 'upload' },
          ...{ replica_count: 1, replica_memory_mb: 256 },
        });
        app = created.body;
        const raw = gzipSync(
          layerTar([
            {
              path: 'Dockerfile',
              bytes:
                'FROM scratch\nCOPY busybox /bin/busybox\nRUN ["/bin/busybox", "sh", "-c", "echo from a Dockerfile > /index.html"]\n' +
                'EXPOSE 8000\nCMD ["/bin/busybox", "httpd", "-f", "-p", "8000", "-h", "/"]\n',
            },
            { path: 'busybox', mode: 0o755, bytes: busybox! },
          ]),
        );
        const headers = { 'content-type': 'application/gzip' };
        const before = await engine!.things();
        const uploaded = await api.call('POST', `/apps/${app.id}/deployments`, { raw, headers });
        expect(uploaded.status).toBe(202);
        expect(await live(uploaded.body.id)).toMatchObject({
          ...{ docker_image: null, docker_image_digest: null },
          source_archive_sha256: expect.stringMatching(/^[0-9a-f]{64}$/),
        });
        expect(await served()).toEqual({ status: 200, text: 'from a Dockerfile\n' });
        // The engine is not needed any more; without it the next deploy fails with the sentence, and what serves serves on.
        expect(await engine!.things()).toEqual(before);
        await engine!.stop();
        engine = null;
        const again = (await api.post(`/apps/${app.id}/builds/${uploaded.body.id}/rebuild`)).body.id;
        await until(async () => (await build(again)).status === 'error', 60_000);
        expect((await build(again)).error).toMatch(/this region has no container engine that builds it/);
        expect((await served()).text).toBe('from a Dockerfile\n');
      },
      90_000,
    );
  },
);
