import { randomUUID } from 'node:crypto';
import { request as httpRequest } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { GitHostPart } from '@nebo/test-kit';
import { Api, ContractCheck, readContract } from '../harness/api.js';
import { forms, type Installation } from '../harness/forms.js';
import { until } from '../harness/nebo.js';

/** From a push to a page: an installation in both forms, and a git host beside it. */
describe.each(forms)('an app from a git repository, $form', ({ missing, start }) => {
  const it = missing ? globalThis.it.skip : globalThis.it;
  let nebo: Installation;
  let api: Api;
  let host: GitHostPart;
  let project: string;
  let connection: string;
  let app: { id: string; name: string };
  const page = (version: string) => ({
    'web/index.html': `<h1>version ${version}</h1>`,
    'web/package.json': JSON.stringify({ scripts: { build: 'mkdir -p dist && cp index.html dist/' } }),
  });

  beforeAll(async () => {
    if (missing) return;
    host = await GitHostPart.start();
    await host.createRepository('ann/site');
    await host.push('ann/site', { files: page('one'), message: 'One' });
    nebo = await start({ NEBO_SAFE_NET_ALLOW: host.address });
    api = new Api(nebo.baseUrl, nebo.key, new ContractCheck(readContract('v1')));
    project = nebo.project;
  }, 120_000);
  afterAll(async () => {
    await nebo?.stop();
    await host?.stop();
  });

  const served = (name: string): Promise<string> =>
    new Promise((resolve, reject) => {
      const { port } = new URL(nebo.edgeUrl);
      const headers = { host: `${name}.apps.localhost` };
      httpRequest({ host: '127.0.0.1', port, path: '/', headers, agent: false }, (response) => {
        buffer(response).then((bytes) => resolve(bytes.toString()), reject);
      })
        .on('error', reject)
        .end();
    });
  const builds = async () => (await api.get(`/apps/${app.id}/builds`)).body.data;
  const deliveries = async () => (await api.get(`/apps/${app.id}/deliveries`)).body.data;
  const live = (commit: string) =>
    until(async () => {
      const build = (await builds()).find((one: { commit_sha: string }) => one.commit_sha === commit);
      if (build?.status === 'error') throw new Error(build.error);
      return build?.deploy_state === 'live';
    }, 60_000);
  const states = (commit: string) => host.statuses('ann/site', commit).map(({ state }) => state);

  it('connect, create, deploy: the head of the branch is served', async () => {
    const connected = await api.post('/git/connections', {
      provider: 'gitea',
      base_url: host.url,
      token: host.token,
    });
    expect(connected).toMatchObject({ status: 201, body: { login: 'ann', status: 'active' } });
    connection = connected.body.id;
    const { body: found } = await api.get(`/git/connections/${connection}/repositories`);
    expect(found.data.map(({ full_name }: { full_name: string }) => full_name)).toEqual(['ann/site']);
    const created = await api.post(`/projects/${project}/apps`, {
      name: `git-${randomUUID().slice(0, 8)}`,
      git_provider: 'gitea',
      git_connection_id: connection,
      repo_full_name: 'ann/site',
      root_directory: 'web',
      output_directory: 'dist',
    });
    expect(created.status).toBe(201);
    app = created.body;
    expect((await api.post(`/apps/${app.id}/deploy`)).status).toBe(200);
    const [{ commit_sha }] = await builds();
    await live(commit_sha);
    expect(await served(app.name)).toContain('version one');
  }, 90_000);

  it('a push becomes the page that is served, and the commit’s status says so', async () => {
    await until(() => host.repository('ann/site').hooks.length === 1);
    const commit = await host.push('ann/site', { files: page('two'), message: 'Two' });
    expect(host.deliveries.at(-1)).toMatchObject({ status: 202 });
    await live(commit);
    expect(await served(app.name)).toContain('version two');
    await until(() => states(commit).includes('success'));
    expect(states(commit)).toEqual(['pending', 'success']);
    const [build] = await builds();
    expect(build).toMatchObject({ commit_message: 'Two', commit_author: 'Ann Author', branch: 'main' });
    expect((await deliveries())[0]).toMatchObject({ outcome: 'accepted', build_id: build.id });
    const { text } = await api.get(`/apps/${app.id}/builds/${build.id}/logs`);
    expect(text).toContain(commit.slice(0, 12));
    expect(text).not.toContain(host.token);
  }, 90_000);

  it('a rebuild uses the same bytes, even when the git host is away', async () => {
    const [build] = await builds();
    expect(build.source_archive_sha256).toMatch(/^[0-9a-f]{64}$/);
    host.trouble = 503;
    const again = await api.post(`/apps/${app.id}/builds/${build.id}/rebuild`);
    await until(async () => (await builds())[0].deploy_state === 'live', 60_000);
    host.trouble = null;
    expect((await builds())[0]).toMatchObject({
      id: again.body.id,
      commit_sha: build.commit_sha,
      source_archive_sha256: build.source_archive_sha256,
    });
  }, 90_000);

  it('a wrong signature is refused at the door and [skip ci] builds nothing; both are to be seen', async () => {
    const sent = host.deliveries.at(-1)!;
    const count = (await builds()).length;
    const send = (headers: Record<string, string>) => host.repeat({ ...sent, headers });
    expect((await send({ ...sent.headers, 'x-gitea-signature': 'f'.repeat(64) })).status).toBe(403);
    expect((await send({ ...sent.headers, 'x-gitea-signature': '' })).status).toBe(401);
    await host.push('ann/site', { files: page('three'), message: 'Three [skip ci]' });
    const log = await deliveries();
    expect(log[0]).toMatchObject({ outcome: 'ignored', reason: expect.stringContaining('[skip ci]') });
    expect(log.filter(({ outcome }: { outcome: string }) => outcome === 'refused')).toHaveLength(2);
    await host.push('ann/site', { files: { 'docs/a.md': '1' } });
    expect((await deliveries())[0]).toMatchObject({
      outcome: 'ignored',
      reason: 'nothing of web was changed',
    });
    expect(await builds()).toHaveLength(count);
  }, 60_000);

  it('the door of git hosts takes nothing but their deliveries', async () => {
    const base = nebo.baseUrl.replace(/\/v1$/, '');
    const status = async (method: string, path: string) =>
      (await fetch(`${base}${path}`, { method, ...(method === 'POST' ? { body: '{}' } : {}) })).status;
    expect(await status('GET', `/hooks/git/${connection}`)).toBe(405);
    expect(await status('POST', `/hooks/git/${connection}`)).toBe(401);
    expect(await status('POST', `/hooks/git/${randomUUID()}`)).toBe(404);
    expect(await status('POST', '/hooks/git/x')).toBe(404);
    expect(await status('POST', `/internal/v1/hooks/git/${connection}`)).toBe(404);
  });

  it('a build that fails is a failure at the git host; the page stays', async () => {
    const broken = { 'web/package.json': JSON.stringify({ scripts: { build: 'exit 9' } }) };
    const commit = await host.push('ann/site', { files: broken, message: 'Four' });
    await until(() => states(commit).includes('failure'), 60_000);
    expect(host.statuses('ann/site', commit).at(-1)!.description).toContain('exited with code');
    expect(await served(app.name)).toContain('version two');
  }, 90_000);

  it('the last app takes its webhook along, and the connection can go', async () => {
    expect((await api.delete(`/git/connections/${connection}`)).status).toBe(409);
    expect((await api.delete(`/apps/${app.id}`)).status).toBe(204);
    await until(() => host.repository('ann/site').hooks.length === 0);
    expect((await api.delete(`/git/connections/${connection}`)).status).toBe(204);
  }, 60_000);
});
