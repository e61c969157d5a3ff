import { randomUUID } from 'node:crypto';
import { type IncomingMessage, request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { readFileSync } from 'node:fs';
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import OpenAI from 'openai';
import { packFolder } from '@nebo/archive';
import { parseRubles } from '@nebo/contracts';
import { Api, ContractCheck, readContract } from '../harness/api.js';
import { Nebo, root, until } from '../harness/nebo.js';

/** The main job on real input: what the README promises, against the installation as `npm start` runs it. */
describe('the main job', () => {
  let nebo: Nebo;
  let api: Api;
  let project: string;
  const contract = new ContractCheck(readContract('v1'));

  beforeAll(async () => {
    nebo = await Nebo.start();
    const [demo] = nebo.credentials.accounts;
    api = new Api(nebo.credentials.base_url, demo!.api_key, contract);
    project = demo!.project_id;
  });
  afterAll(() => nebo?.dispose());

  const archiveOf = async (fixture: string) =>
    buffer((await packFolder(join(root, 'e2e/fixtures', fixture))).stream);

  const createApp = async (more: object = {}) =>
    (
      await api.post(`/projects/${project}/apps`, {
        name: `app-${randomUUID().slice(0, 8)}`,
        source_type: 'upload',
        ...more,
      })
    ).body;

  const upload = (appId: string, raw: Uint8Array, headers: Record<string, string> = {}) =>
    api.call('POST', `/apps/${appId}/deployments`, {
      raw,
      headers: { 'content-type': 'application/gzip', ...headers },
    });

  const live = async (appId: string, buildId: string) => {
    await until(async () => {
      const { body } = await api.get(`/apps/${appId}/builds/${buildId}?wait=live&timeout=20`);
      if (['error', 'cancelled'].includes(body.status))
        throw new Error(`build ${body.status}: ${body.error}`);
      if (['failing', 'never_booted', 'build_failed'].includes(body.deploy_state))
        throw new Error(body.boot_error);
      return body.deploy_state === 'live';
    });
  };

  const domainOf = async (appId: string): Promise<string> =>
    (await api.get(`/apps/${appId}/domains`)).body.data.find(
      (domain: { is_default: boolean }) => domain.is_default,
    ).domain;

  /** A page through the edge, addressed by Host. */
  const page = (
    host: string,
    path = '/',
    tls = false,
  ): Promise<{ status: number; text: string; headers: Record<string, unknown> }> =>
    new Promise((resolve, reject) => {
      const { port } = new URL(tls ? nebo.credentials.edge_tls_url : nebo.credentials.edge_url);
      const options = { host: '127.0.0.1', port, path, headers: { host }, agent: false } as const;
      const ca = tls ? readFileSync(join(nebo.home, 'ca/ca.pem')) : undefined;
      const done = (response: IncomingMessage) =>
        buffer(response).then(
          (bytes) =>
            resolve({ status: response.statusCode!, text: bytes.toString(), headers: response.headers }),
          reject,
        );
      (tls ? httpsRequest({ ...options, servername: host, ca }, done) : httpRequest(options, done))
        .on('error', reject)
        .end();
    });

  it('a folder becomes a page under its own address, plain and over TLS, with a log that ends after its last line', async () => {
    const app = await createApp();
    expect(app).toMatchObject({ status: 'inactive', source_type: 'upload' });
    const deploy = await upload(app.id, await archiveOf('static-site'));
    expect(deploy).toMatchObject({
      status: 202,
      body: { app_id: app.id, site_id: app.id, status: 'queued' },
    });
    const log = (await api.get(`/apps/${app.id}/builds/${deploy.body.id}/logs`)).text;
    expect(log.trimEnd().split('\n\n').at(-1)).toMatch(/^event: done\ndata:/);
    expect(log.match(/^data: /gm)!.length).toBeGreaterThan(3);
    await live(app.id, deploy.body.id);
    const host = await domainOf(app.id);
    expect(host).toBe(`${app.name}.apps.localhost`);
    expect(await page(host)).toMatchObject({ status: 200, text: expect.stringContaining('Hello from Nebo') });
    expect(await page(host, '/docs/')).toMatchObject({ status: 200 });
    expect((await page(host)).headers['access-control-allow-origin']).toBeUndefined();
    expect(await page(host, '/', true)).toMatchObject({
      status: 200,
      text: expect.stringContaining('Hello from Nebo'),
    });
    expect((await page('unknown.apps.localhost')).status).toBe(404);
    expect((await api.get(`/apps/${app.id}`)).body).toMatchObject({
      status: 'active',
      current_build_id: deploy.body.id,
      deploy_state: 'live',
    });
  });

  it('a routing file rules a site and a server alike; a mistake in it fails the build with its line', async () => {
    const rules = {
      redirects: [{ source: '/old/:name', destination: '/new/:name', permanent: false }],
      headers: [{ source: '/(.*)', headers: [{ key: 'X-Rule', value: 'on' }] }],
      rewrites: [{ source: '/greeting', destination: '/env' }],
      cors: [{ source: '/(.*)', origins: ['https://a.example'] }],
    };
    const withRules = async (fixture: string, text: string) => {
      const dir = await mkdtemp(join(tmpdir(), 'nebo-e2e-rules-'));
      await cp(join(root, 'e2e/fixtures', fixture), dir, { recursive: true });
      await writeFile(join(dir, 'nebo.json'), text);
      const bytes = await buffer((await packFolder(dir)).stream);
      await rm(dir, { recursive: true });
      return bytes;
    };
    for (const [fixture, more] of [
      ['static-site', {}],
      ['node-server', { app_type: 'backend' }],
    ] as const) {
      const app = await createApp(more);
      const good = (await upload(app.id, await withRules(fixture, JSON.stringify(rules)))).body;
      await live(app.id, good.id);
      const host = await domainOf(app.id);
      const moved = await page(host, '/old/x?y=1');
      expect([moved.status, moved.headers['location']]).toEqual([307, '/new/x?y=1']);
      const home = await page(host);
      expect([home.status, home.headers['x-rule'], home.headers['vary']]).toEqual([
        200,
        'on',
        expect.stringContaining('Origin'),
      ]);
      expect(home.headers['access-control-allow-origin']).toBeUndefined();
      if (fixture === 'node-server') expect((await page(host, '/greeting')).text).toContain('greeting');
      const bad = (await upload(app.id, await withRules(fixture, '{\n  "redirects": 1\n}'))).body;
      await until(
        async () => (await api.get(`/apps/${app.id}/builds/${bad.id}`)).body.status === 'error',
        60_000,
      );
      expect((await api.get(`/apps/${app.id}/builds/${bad.id}`)).body.error).toBe(
        'rules: nebo.json:2: "redirects" must be a list',
      );
      expect((await page(host, '/old/x')).status).toBe(307);
    }
  });

  it('a rebuild uses the same bytes, and equal folders have equal archives', async () => {
    const app = await createApp();
    const archive = await archiveOf('static-site');
    const first = (await upload(app.id, archive)).body;
    await live(app.id, first.id);
    const again = await api.post(`/apps/${app.id}/builds/${first.id}/rebuild`);
    expect(again.status).toBe(200);
    await live(app.id, again.body.id);
    const { body } = await api.get(`/apps/${app.id}/builds`);
    expect(body.data.map((build: { id: string }) => build.id)).toEqual([again.body.id, first.id]);
    expect(
      new Set(body.data.map((build: { source_archive_sha256: string }) => build.source_archive_sha256)).size,
    ).toBe(1);
  });

  it('a Node server runs as a replica with its variables; a change of one restarts it, a secret is never shown', async () => {
    const app = await createApp({ app_type: 'backend' });
    await api.post(`/apps/${app.id}/env`, { name: 'GREETING', value: 'first' });
    const secret = await api.post(`/apps/${app.id}/env`, {
      name: 'SECRET',
      value: 'canary-7f3a9c',
      is_secret: true,
    });
    expect(secret).toMatchObject({ status: 201, body: { value: '********' } });
    const deploy = (await upload(app.id, await archiveOf('node-server'))).body;
    await live(app.id, deploy.id);
    const host = await domainOf(app.id);
    expect((await page(host)).text).toContain('hello from a Node server');
    expect(JSON.parse((await page(host, '/env')).text)).toEqual({
      greeting: 'first',
      secret: 'canary-7f3a9c',
    });
    expect((await api.post(`/apps/${app.id}/env`, { name: 'GREETING', value: 'second' })).status).toBe(201);
    await until(async () => (await page(host, '/env')).text.includes('second'));
    expect((await api.get(`/apps/${app.id}/env`)).text).not.toContain('canary-7f3a9c');
    expect(nebo.output).not.toContain('canary-7f3a9c');
    expect((await api.delete(`/apps/${app.id}`)).status).toBe(204);
    await until(async () => (await page(host)).status === 404);
    expect((await api.get(`/apps/${app.id}`)).status).toBe(404);
  });

  it('a broken new version does not take the old one down, and says why', async () => {
    const app = await createApp({ app_type: 'backend', start_command: 'node server.js' });
    const good = (await upload(app.id, await archiveOf('node-server'))).body;
    await live(app.id, good.id);
    const host = await domainOf(app.id);
    const broken = (await upload(app.id, await archiveOf('static-site'))).body;
    await until(async () => {
      const { body } = await api.get(`/apps/${app.id}/builds/${broken.id}`);
      return (
        body.status === 'error' || ['never_booted', 'failing', 'build_failed'].includes(body.deploy_state)
      );
    }, 60_000);
    const { body } = await api.get(`/apps/${app.id}/builds/${broken.id}`);
    expect(body.error ?? body.boot_error).toMatch(/\S/);
    expect(await page(host)).toMatchObject({
      status: 200,
      text: expect.stringContaining('hello from a Node server'),
    });
  });

  it('hostile and wrong uploads are refused and leave the app as it was', async () => {
    const app = await createApp();
    expect((await upload(app.id, Buffer.from('not a gzip archive'))).status).toBe(422);
    expect((await upload(app.id, new Uint8Array())).status).toBe(422);
    expect(
      (await upload(app.id, await archiveOf('static-site'), { 'content-type': 'application/json' })).status,
    ).toBe(415);
    expect((await api.get(`/apps/${app.id}/builds`)).body.count).toBe(0);
    const git = (
      await api.post(`/projects/${project}/apps`, {
        name: `git-${randomUUID().slice(0, 8)}`,
        source_type: 'git',
      })
    ).body;
    if (git.id) expect([409, 422]).toContain((await upload(git.id, await archiveOf('static-site'))).status);
  });

  it('a repeated Idempotency-Key makes one app, in parallel too', async () => {
    const headers = { 'idempotency-key': randomUUID() };
    const name = `once-${randomUUID().slice(0, 8)}`;
    const answers = await Promise.all(
      Array.from({ length: 8 }, () =>
        api.post(`/projects/${project}/apps`, { name, source_type: 'upload' }, { headers }),
      ),
    );
    const made = answers.filter(({ status }) => status === 201);
    expect(made.length).toBeGreaterThan(0);
    expect(new Set(made.map(({ body }) => body.id)).size).toBe(1);
    expect(answers.every(({ status }) => status === 201 || status === 409)).toBe(true);
    const again = await api.post(`/projects/${project}/apps`, { name, source_type: 'upload' }, { headers });
    expect(again).toMatchObject({ status: 201, body: { id: made[0]!.body.id } });
    const { body } = await api.get(`/projects/${project}/apps?limit=200`);
    expect(body.data.filter((app: { name: string }) => app.name === name)).toHaveLength(1);
  });

  it('a chat completion streams through the official client and is paid from the balance; the ledger adds up', async () => {
    const before = (await api.get('/account/balance')).body;
    const client = new OpenAI({
      baseURL: `${nebo.credentials.ai_url}/v1`,
      apiKey: nebo.credentials.accounts[0]!.inference_key,
      maxRetries: 0,
    });
    expect((await client.models.list()).data).toHaveLength(11);
    const stream = await client.chat.completions.create({
      model: 'glm-5.3',
      max_tokens: 200,
      stream: true,
      stream_options: { include_usage: true },
      messages: [{ role: 'user', content: 'Hello!' }],
    });
    let text = '';
    let usage: OpenAI.CompletionUsage | undefined;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta?.content ?? '';
      usage = chunk.usage ?? usage;
    }
    expect(text).toMatch(/\S/);
    expect(usage!.completion_tokens).toBeGreaterThan(0);
    const plain = await client.chat.completions.create({
      model: 'glm-5.2',
      max_tokens: 50,
      messages: [{ role: 'user', content: 'Again' }],
    });
    expect(plain.choices[0]!.message.content).toMatch(/\S/);

    let after = before;
    await until(async () => {
      after = (await api.get('/account/balance')).body;
      return after.available === after.balance && after.balance !== before.balance;
    });
    const { body: ledger } = await api.get('/account/ledger?limit=200');
    const sum = (field: string) =>
      ledger.data.reduce(
        (total: bigint, line: Record<string, string>) => total + parseRubles(line[field]!),
        0n,
      );
    expect(sum('amount')).toBe(parseRubles(after.balance));
    expect(sum('held_amount')).toBe(0n);
  });

  it('what the inference door answers is what its contract says', async () => {
    const inference = new ContractCheck(readContract('inference'));
    const { inference_key: key } = nebo.credentials.accounts[0]!;
    const ask = new Api(`${nebo.credentials.ai_url}/v1`, key, inference);
    const models = await ask.as(null).get('/models');
    expect(models.body.data.map((model: { id: string }) => model.id)).toContain('glm-5v-turbo');
    expect(models.text).not.toMatch(/price|rub/i);
    expect((await ask.get('/models/glm-5.3')).body).toMatchObject({ context_window: 1_048_576 });
    const chat = await ask.post('/chat/completions', {
      model: 'glm-5.2',
      max_tokens: 20,
      messages: [{ role: 'user', content: 'hi' }],
    });
    expect(chat).toMatchObject({ status: 200, body: { object: 'chat.completion', model: 'glm-5.2' } });
    for (const [body, status] of [
      [{ model: 'glm-5.2' }, 400],
      [{ model: 'nope', messages: [{ role: 'user', content: 'x' }] }, 404],
      [{ model: 'glm-5.2', max_tokens: 10_000_000, messages: [{ role: 'user', content: 'x' }] }, 400],
      [{ model: 'glm-5.3', reasoning_effort: 'none', messages: [{ role: 'user', content: 'x' }] }, 400],
      [{ model: 'glm-5.3', messages: [{ role: 'user', content: [{ type: 'file', file: {} }] }] }, 400],
    ] as const) {
      const refused = await ask.post('/chat/completions', body);
      expect(refused).toMatchObject({
        status,
        body: { error: { type: expect.any(String), code: expect.any(String) } },
      });
    }
    expect((await ask.as(null).post('/chat/completions', {})).status).toBe(401);
  });

  it('402 for an account without money, with the reason; nothing is charged', async () => {
    const poor = await nebo.admin('account', 'create', '--name', 'poor', '--credits', '500');
    const key = await nebo.admin('inference-key', 'create', '--account', poor.account_id);
    const answer = await fetch(`${nebo.credentials.ai_url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key.key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'glm-5.3', messages: [{ role: 'user', content: 'x' }] }),
    });
    expect(answer.status).toBe(402);
    expect(await answer.json()).toMatchObject({
      error: { type: 'billing_error', message: expect.stringMatching(/top/i) },
    });
  });

  it('a revoked key stops at once; an unknown model is 404, one outside the key’s set 403', async () => {
    const { account_id: account } = nebo.credentials.accounts[0]!;
    const key = await nebo.admin('inference-key', 'create', '--account', account, '--models', 'glm-5.2');
    const chat = async (model: string) =>
      (
        await fetch(`${nebo.credentials.ai_url}/v1/chat/completions`, {
          method: 'POST',
          headers: { authorization: `Bearer ${key.key}`, 'content-type': 'application/json' },
          body: JSON.stringify({ model, max_tokens: 10, messages: [{ role: 'user', content: 'x' }] }),
        })
      ).status;
    expect(await chat('glm-5.2')).toBe(200);
    expect(await chat('glm-5.3')).toBe(403);
    expect(await chat('no-such-model')).toBe(404);
    await nebo.admin('inference-key', 'disable', '--key', key.id);
    await until(async () => (await chat('glm-5.2')) === 401, 2_000);
    await nebo.admin('inference-key', 'enable', '--key', key.id);
    await until(async () => (await chat('glm-5.2')) === 200, 2_000);
    await nebo.admin('inference-key', 'revoke', '--key', key.id);
    await until(async () => (await chat('glm-5.2')) === 401, 2_000);
  });
});
