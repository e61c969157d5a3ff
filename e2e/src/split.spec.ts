import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import OpenAI from 'openai';
import { packFolder } from '@nebo/archive';
import { findBusybox, GitHostPart, pageImage, RegistryPart } from '@nebo/test-kit';
import { freePort } from '../harness/ports.mjs';
import { findNatsServer, type Split, startSplit } from '../harness/split.mjs';
import { Api, ContractCheck, readContract } from '../harness/api.js';
import { root, until } from '../harness/nebo.js';

const missing = findNatsServer() === null;

/** Gateway, services, agent and edge as processes of their own, over a real NATS. */
(missing ? describe.skip : describe)('split form (skipped without nats-server)', () => {
  let split: Split;
  let api: Api;
  let host: GitHostPart;
  let registry: RegistryPart;

  beforeAll(async () => {
    host = await GitHostPart.start();
    registry = await RegistryPart.start();
    split = await startSplit({ env: { NEBO_SAFE_NET_ALLOW: `${host.address},${registry.address}` } });
    api = new Api(split.baseUrl, split.key, new ContractCheck(readContract('v1')));
  }, 120_000);
  afterAll(async () => {
    await split?.stop();
    await host?.stop();
    await registry?.stop();
  });

  const pageOf = (name: string, edgeUrl = split.edgeUrl): Promise<string> =>
    new Promise((resolve, reject) => {
      const { port } = new URL(edgeUrl);
      httpRequest({ host: '127.0.0.1', port, headers: { host: `${name}.apps.localhost` } }, (response) => {
        buffer(response).then((bytes) => resolve(bytes.toString()), reject);
      })
        .on('error', reject)
        .end();
    });

  it('a folder becomes a page, a chat is paid, a revoked key stops at every gateway', async () => {
    const project = split.credentials.accounts[0]!.project_id;
    const app = (await api.post(`/projects/${project}/apps`, { name: 'split', source_type: 'upload' })).body;
    const raw = await buffer((await packFolder(join(root, 'e2e/fixtures/static-site'))).stream);
    const deploy = await api.call('POST', `/apps/${app.id}/deployments`, {
      raw,
      headers: { 'content-type': 'application/gzip' },
    });
    expect(deploy.status).toBe(202);
    const log = (await api.get(`/apps/${app.id}/builds/${deploy.body.id}/logs`)).text;
    expect(log).toContain('event: done');
    await until(
      async () =>
        (await api.get(`/apps/${app.id}/builds/${deploy.body.id}?wait=live&timeout=20`)).body.deploy_state ===
        'live',
      60_000,
    );
    const text = await pageOf('split');
    expect(text).toContain('Hello from Nebo');

    const client = new OpenAI({ baseURL: `${split.aiUrl}/v1`, apiKey: split.inferenceKey, maxRetries: 0 });
    const before = (await api.get('/account/balance')).body.balance;
    let answer = '';
    const stream = await client.chat.completions.create({
      model: 'deepseek-v4-pro',
      stream: true,
      max_tokens: 100,
      messages: [{ role: 'user', content: 'hi' }],
    });
    for await (const chunk of stream) answer += chunk.choices[0]?.delta?.content ?? '';
    expect(answer).toMatch(/\S/);
    await until(async () => (await api.get('/account/balance')).body.balance !== before);

    const extra = (await split.admin(
      'key',
      'create',
      '--account',
      split.credentials.accounts[0]!.account_id,
    )) as { id: string; key: string };
    expect((await api.as(extra.key).get('/account')).status).toBe(200);
    await split.admin('key', 'revoke', '--key', extra.id);
    await until(async () => (await api.as(extra.key).get('/account')).status === 401, 1_000);
  });

  it('with two edges a deploy is live when both serve it; one that holds still is waited for', async () => {
    const home = mkdtempSync(join(tmpdir(), 'nebo-edge-'));
    const [port, tlsPort] = [await freePort(), await freePort()];
    const env = { ...split.parts['edge']!.env, NEBO_HOME: home };
    const second = spawn(process.execPath, ['apps/edge/dist/main.js'], {
      cwd: root,
      env: { ...env, NEBO_EDGE_PORT: `${port}`, NEBO_EDGE_TLS_PORT: `${tlsPort}` },
      stdio: 'ignore',
    });
    const ended = new Promise((resolve) => second.once('exit', resolve));
    try {
      const other = `http://127.0.0.1:${port}`;
      const project = split.credentials.accounts[0]!.project_id;
      const app = (await api.post(`/projects/${project}/apps`, { name: 'twice', source_type: 'upload' }))
        .body;
      const deploy = async (text: string): Promise<string> => {
        const folder = mkdtempSync(join(tmpdir(), 'nebo-page-'));
        writeFileSync(join(folder, 'index.html'), text);
        const raw = await buffer((await packFolder(folder)).stream);
        rmSync(folder, { recursive: true });
        const headers = { 'content-type': 'application/gzip' };
        return (await api.call('POST', `/apps/${app.id}/deployments`, { raw, headers })).body.id;
      };
      const stateOf = async (build: string) =>
        (await api.get(`/apps/${app.id}/builds/${build}`)).body.deploy_state;
      const both = () => Promise.all([pageOf('twice'), pageOf('twice', other)]);
      await until(async () => (await pageOf('split', other).catch(() => '')).includes('Hello'), 60_000);
      for (const text of ['one', 'two', 'three']) {
        const build = await deploy(text);
        await until(async () => (await stateOf(build)) === 'live', 60_000, 20);
        expect(await both()).toEqual([text, text]);
      }
      second.kill('SIGSTOP');
      const last = await deploy('four');
      await until(async () => (await pageOf('twice')) === 'four', 60_000);
      await new Promise((resolve) => setTimeout(resolve, 1_000));
      expect(await stateOf(last)).toBe('rolling');
      second.kill('SIGCONT');
      await until(async () => (await stateOf(last)) === 'live', 60_000, 20);
      expect(await both()).toEqual(['four', 'four']);
      // It leaves with a word: the next deploy does not wait for it.
      second.kill('SIGTERM');
      await ended;
      const alone = await deploy('five');
      await until(async () => (await stateOf(alone)) === 'live', 30_000);
    } finally {
      second.kill('SIGCONT');
      second.kill('SIGKILL');
      await ended;
      rmSync(home, { recursive: true, force: true });
    }
  }, 180_000);

  it('a push to a git host becomes a live build, its delivery signed at the door of another process', async () => {
    await host.createRepository('ann/site');
    await host.push('ann/site', { files: { 'index.html': 'one' } });
    const { body: connection } = await api.post('/git/connections', {
      provider: 'gitea',
      base_url: host.url,
      token: host.token,
    });
    const { body: app } = await api.post(`/projects/${split.credentials.accounts[0]!.project_id}/apps`, {
      name: 'split-git',
      git_provider: 'gitea',
      git_connection_id: connection.id,
      repo_full_name: 'ann/site',
    });
    await until(() => host.repository('ann/site').hooks.length === 1);
    const commit = await host.push('ann/site', { files: { 'index.html': 'two' } });
    expect(host.deliveries.at(-1)).toMatchObject({ status: 202 });
    await until(
      async () => (await api.get(`/apps/${app.id}/builds`)).body.data[0]?.deploy_state === 'live',
      60_000,
    );
    await until(() => host.statuses('ann/site', commit).some(({ state }) => state === 'success'));
  }, 90_000);

  it('an image becomes a page: the agent pulls it and stores it over HTTP', async () => {
    const { found: busybox } = await findBusybox();
    // Where images cannot run, src/images.spec.ts says why.
    if (busybox === null || process.getuid?.() !== 0) return;
    const project = split.credentials.accounts[0]!.project_id;
    const created = await api.post(`/projects/${project}/apps`, {
      name: 'split-image',
      source_type: 'docker_image',
      docker_image: registry.push('ann/page', 'v1', pageImage(busybox, 'from an image')),
    });
    const build = (await api.post(`/apps/${created.body.id}/deploy`)).body.id;
    await until(async () => {
      const { body } = await api.get(`/apps/${created.body.id}/builds/${build}?wait=live&timeout=20`);
      if (body.status === 'error' || body.boot_error) throw new Error(body.error ?? body.boot_error);
      return body.deploy_state === 'live';
    }, 60_000);
    expect(await pageOf('split-image')).toBe('from an image');
  }, 90_000);

  it('a service that is away is 503 as JSON, and the rest goes on', async () => {
    split.parts['apps-builder']!.child.kill('SIGKILL');
    await until(async () => (await api.get('/apps')).status === 503, 10_000);
    expect((await api.get('/account')).status).toBe(200);
  });
});
