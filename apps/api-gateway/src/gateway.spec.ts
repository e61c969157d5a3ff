import { randomUUID } from 'node:crypto';
import { get as httpGet } from 'node:http';
import { connect } from 'node:net';
import { type Identity, keyChanged, type KeyIdentity, type PolicyStatement } from '@nebo/contracts';
import { FakeInstallation, form, inferenceForm, send } from '../test/fake-installation.js';

const account = randomUUID();
const stranger = randomUUID();
const project = randomUUID();
const otherProject = randomUUID();
const app = randomUUID();
const foreignApp = randomUUID();
const allow = (actions: string[], resources: string[]): PolicyStatement => ({
  effect: 'allow',
  actions,
  resources,
});
const identity = (more: Partial<KeyIdentity> = {}): Identity => ({
  kind: 'key',
  account_id: account,
  key_id: randomUUID(),
  policy: [allow(['*'], ['*'])],
  project_ids: null,
  role: 'owner',
  ...more,
});
const bearer = (key: string) => ({ authorization: `Bearer ${key}` });

describe.each([
  ['in one process', false],
  ['across processes', true],
])('gateway, services %s', (_name, remote) => {
  let nebo: FakeInstallation;
  let owner: string;

  beforeAll(async () => {
    nebo = await new FakeInstallation().start({}, remote);
    owner = nebo.addKey(identity());
    nebo.owners.set(`project:${project}`, { account_id: account, project_id: null, parents: [] });
    nebo.owners.set(`project:${otherProject}`, { account_id: account, project_id: null, parents: [] });
    nebo.owners.set(`app:${app}`, { account_id: account, project_id: project, parents: [] });
    nebo.owners.set(`app:${foreignApp}`, { account_id: stranger, project_id: randomUUID(), parents: [] });
  });
  afterAll(() => nebo.stop());
  const call = (path: string, key: string | null = owner, more: Parameters<typeof send>[1] = {}) =>
    send(`${nebo.api}/v1${path}`, { ...more, headers: { ...(key ? bearer(key) : {}), ...more?.headers } });

  it('200 forwards method, path, query and body with the signed identity, and hides the key', async () => {
    const body = JSON.stringify({ name: 'x', text: 'ю'.repeat(10_000) });
    const answer = await call(`/projects/${project}/apps?x=1&y=%20`, owner, {
      method: 'POST',
      body,
      headers: { 'content-type': 'application/json' },
    });
    expect(answer).toMatchObject({
      status: 200,
      body: { service: 'apps-builder', identity: { account_id: account } },
    });
    const seen = nebo.seen.at(-1)!;
    expect(seen).toMatchObject({ method: 'POST', url: `/v1/projects/${project}/apps?x=1&y=%20`, body });
    expect(seen.headers.authorization).toBeUndefined();
  });

  it('never believes internal headers of a client', async () => {
    const forged = nebo.runtime.signer.sign(identity({ account_id: stranger }) as KeyIdentity);
    const answer = await call('/account', owner, {
      headers: { 'x-nebo-identity': forged, 'x-nebo-anything': '1' },
    });
    expect(answer.body.identity.account_id).toBe(account);
    expect(nebo.seen.at(-1)!.headers['x-nebo-anything']).toBeUndefined();
  });

  it('takes a slash too many, upper-case ids and a body-less JSON content type', async () => {
    expect((await call('//apps/' + app.toUpperCase() + '/')).status).toBe(200);
    expect(
      (
        await call(`/apps/${app}`, owner, {
          method: 'DELETE',
          headers: { 'content-type': 'application/json' },
        })
      ).status,
    ).toBe(200);
  });

  it('404 unknown_operation for an unknown path, 405 with Allow for an undeclared method, before the key is looked at', async () => {
    expect(await call('/nothing', null)).toMatchObject({
      status: 404,
      body: { error: { code: 'unknown_operation' } },
    });
    const wrong = await call('/account', null, { method: 'DELETE' });
    expect(wrong).toMatchObject({
      status: 405,
      headers: { allow: 'GET' },
      body: { error: { code: 'method_not_allowed' } },
    });
    expect((await send(`${nebo.api}/internal/v1/owners/app/${app}`, { headers: bearer(owner) })).status).toBe(
      404,
    );
  });

  it.each([
    ['none', {}],
    ['no bearer', { authorization: 'Basic abc' }],
    ['a typo', { authorization: `Bearer ${form.generate().slice(0, -1)}!` }],
    ['an unknown key', { authorization: `Bearer ${form.generate()}` }],
    ['another service’s key', { authorization: `Bearer ${inferenceForm.generate()}` }],
    ['a huge key', { authorization: `Bearer nebo_live_${'x'.repeat(8_000)}` }],
  ])('401 for %s', async (_what, headers) => {
    const answer = await send(`${nebo.api}/v1/account`, { headers: headers as Record<string, string> });
    expect(answer).toMatchObject({ status: 401, body: { error: { code: 'unauthorized' } } });
    expect(answer.headers['x-request-id']).toMatch(/\S/);
  });

  it('401 for two Authorization headers and for a key in the query; the scheme’s case does not matter', async () => {
    expect(
      (
        await send(`${nebo.api}/v1/account`, {
          headers: { authorization: [`Bearer ${owner}`, `Bearer ${owner}`] },
        })
      ).status,
    ).toBe(401);
    expect((await send(`${nebo.api}/v1/account?api_key=${owner}`)).status).toBe(401);
    expect(
      (await send(`${nebo.api}/v1/account`, { headers: { authorization: `bEARER ${owner}` } })).status,
    ).toBe(200);
  });

  it('404 for what is made or listed in a project that is gone meanwhile, although it was known', async () => {
    const gone = randomUUID();
    const path = `/projects/${gone}/apps`;
    nebo.owners.set(`project:${gone}`, { account_id: account, project_id: null, parents: [] });
    expect((await call(path)).status).toBe(200);
    nebo.owners.delete(`project:${gone}`);
    expect((await call(path)).status).toBe(404);
    expect((await call(path, owner, { method: 'POST', body: '{}' })).status).toBe(404);
    expect((await call(`/projects/${gone}`)).status).toBe(404);
  });

  it('figures are for this machine, not for whom a proxy on it speaks', async () => {
    expect((await send(`${nebo.api}/metrics`)).status).toBe(200);
    for (const name of ['x-forwarded-for', 'forwarded'])
      expect((await send(`${nebo.api}/metrics`, { headers: { [name]: '203.0.113.7' } })).status).toBe(404);
  });

  it('404 with one body for absent, foreign, malformed and wrongly placed ids', async () => {
    const bodies = await Promise.all(
      [
        `/apps/${foreignApp}`,
        `/apps/${randomUUID()}`,
        '/apps/not-an-id',
        `/projects/${otherProject}/apps/${app}`,
        `/projects/${randomUUID()}/apps`,
      ].map(async (path) => {
        const answer = await call(path);
        expect(answer.status).toBe(404);
        return answer.text;
      }),
    );
    expect(new Set(bodies).size).toBe(1);
  });

  it('403 names the lacking action on the account’s own things', async () => {
    const reader = nebo.addKey(identity({ policy: [allow(['app:read'], ['*'])] }));
    expect(await call(`/apps/${app}`, reader, { method: 'DELETE' })).toMatchObject({
      status: 403,
      body: { error: { code: 'forbidden', message: expect.stringContaining('app:delete') } },
    });
    expect((await call('/account/balance', reader)).status).toBe(403);
    expect((await call('/account', reader)).status).toBe(200);
  });

  it('a key for one app reaches it by the flat and the project path, lists it, and gets 403 for the project', async () => {
    const key = nebo.addKey(identity({ policy: [allow(['app:*'], [`app:${app}`])] }));
    expect((await call(`/apps/${app}`, key)).status).toBe(200);
    expect((await call(`/projects/${project}/apps/${app}`, key)).status).toBe(200);
    expect((await call(`/projects/${project}/apps`, key)).status).toBe(200);
    expect((await call(`/projects/${project}`, key)).status).toBe(403);
    expect((await call('/apps', key)).status).toBe(200);
  });

  it('a project allow-list narrows, and never shows the balance', async () => {
    const key = nebo.addKey(identity({ project_ids: [otherProject] }));
    expect((await call(`/apps/${app}`, key)).status).toBe(403);
    expect((await call(`/projects/${otherProject}/apps`, key)).status).toBe(200);
    expect((await call('/account/balance', key)).status).toBe(403);
  });

  it('a key is asked once in five seconds, forgotten at once when it changed', async () => {
    const key = nebo.addKey(identity());
    const before = nebo.lookups.length;
    for (let times = 0; times < 5; times += 1) expect((await call('/account', key)).status).toBe(200);
    expect(nebo.lookups.length).toBe(before + 1);
    nebo.keys.delete(nebo.hashOf(key));
    await nebo.runtime.bus.publish([
      keyChanged({ key_id: randomUUID(), hash: nebo.hashOf(key), state: 'revoked' }),
    ]);
    expect((await call('/account', key)).status).toBe(401);
  });

  it('passes events through as they come, and a client that leaves ends the work behind', async () => {
    const url = `${nebo.api}/v1/apps/${app}/builds/${randomUUID()}/logs`;
    const first = await new Promise<string>((resolve, reject) => {
      const request = httpGet(url, { headers: bearer(owner), agent: false }, (response) => {
        response.once('data', (chunk: Buffer) => {
          resolve(chunk.toString());
          request.destroy();
        });
      });
      request.on('error', (error: NodeJS.ErrnoException) => error.code !== 'ECONNRESET' && reject(error));
    });
    expect(first).toContain('data: first');
    for (let waited = 0; waited < 2_000 && nebo.closed.length === 0; waited += 20)
      await new Promise((resolve) => setTimeout(resolve, 20));
    expect(nebo.closed.splice(0)).toHaveLength(1);
  });

  it('request ids go through, or are made', async () => {
    expect((await call('/account', owner, { headers: { 'x-request-id': 'abc-1' } })).status).toBe(200);
    expect(nebo.seen.at(-1)!.headers['x-request-id']).toBe('abc-1');
    await call('/account', owner, { headers: { 'x-request-id': 'not allowed!' } });
    expect(nebo.seen.at(-1)!.headers['x-request-id']).toMatch(/^[0-9a-f-]{36}$/);
  });
});

describe('gateway alone', () => {
  let nebo: FakeInstallation;
  beforeAll(async () => {
    nebo = await new FakeInstallation().start({ NEBO_RATE_LIMIT: '5/600' });
  });
  afterAll(() => nebo.stop());

  it('429 with Retry-After after the quota, per key, with RateLimit headers on every answer', async () => {
    const key = nebo.addKey(identity());
    const answers = [];
    for (let times = 0; times < 6; times += 1)
      answers.push(await send(`${nebo.api}/v1/account`, { headers: bearer(key) }));
    expect(answers.map((answer) => answer.status)).toEqual([200, 200, 200, 200, 200, 429]);
    expect(answers[0]!.headers).toMatchObject({ 'ratelimit-limit': '5', 'ratelimit-remaining': '4' });
    expect(Number(answers[5]!.headers['retry-after'])).toBeGreaterThan(0);
    expect(answers[5]!.body.error.code).toBe('rate_limit_exceeded');
    expect((await send(`${nebo.api}/v1/account`, { headers: bearer(nebo.addKey(identity())) })).status).toBe(
      200,
    );
  });

  it('serves the contract without a key, with an ETag, and a page of it', async () => {
    const contract = await send(`${nebo.api}/v1/openapi.json`);
    expect(contract).toMatchObject({ status: 200, body: { info: { title: 'Test' } } });
    const again = await send(`${nebo.api}/v1/openapi.json`, {
      headers: { 'if-none-match': String(contract.headers.etag) },
    });
    expect(again).toMatchObject({ status: 304, text: '' });
    expect((await send(`${nebo.api}/docs`)).text).toContain('get_app_by_id');
  });

  it('health names what is missing', async () => {
    expect(await send(`${nebo.api}/healthz`)).toMatchObject({ status: 200, body: { ok: true, missing: [] } });
  });

  it('no CORS header unless configured', async () => {
    const answer = await send(`${nebo.api}/v1/account`, {
      headers: { ...bearer(nebo.addKey(identity())), origin: 'https://x.example' },
    });
    expect(Object.keys(answer.headers).filter((name) => name.startsWith('access-control'))).toEqual([]);
    expect((await send(`${nebo.api}/v1/account`, { method: 'OPTIONS' })).status).toBe(405);
  });

  it.each([
    ['400 for no HTTP', 'nonsense\r\n\r\n', 400],
    [
      '431 for huge headers',
      `GET /v1/account HTTP/1.1\r\nhost: x\r\nx-a: ${'a'.repeat(20_000)}\r\n\r\n`,
      431,
    ],
    [
      '400 for two lengths',
      'POST /v1/account HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab',
      400,
    ],
  ])('%s, as JSON', async (_what, raw, status) => {
    const text = await new Promise<string>((resolve, reject) => {
      const socket = connect(nebo.port, '127.0.0.1', () => socket.write(raw));
      let received = '';
      socket
        .on('data', (chunk) => (received += chunk.toString()))
        .on('end', () => resolve(received))
        .on('error', reject);
    });
    expect(text).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
    expect(JSON.parse(text.slice(text.indexOf('\r\n\r\n') + 4))).toMatchObject({
      error: { code: expect.any(String) },
    });
  });

  it('503 when keys cannot be checked, never 401', async () => {
    const key = nebo.addKey(identity());
    const target = nebo.runtime.targets.get('identity-billing');
    nebo.runtime.targets.set('identity-billing', {
      ...target,
      call: () => Promise.reject(new Error('down')),
      forward: () => undefined,
      close: async () => undefined,
    });
    expect(await send(`${nebo.api}/v1/account`, { headers: bearer(key) })).toMatchObject({
      status: 503,
      headers: { 'retry-after': '2' },
    });
    expect((await send(`${nebo.api}/healthz`)).body).toMatchObject({
      ok: false,
      missing: ['identity-billing'],
    });
    nebo.runtime.targets.set('identity-billing', target);
  });
});

describe('CORS, configured', () => {
  let nebo: FakeInstallation;
  beforeAll(async () => {
    nebo = await new FakeInstallation().start({ NEBO_CORS_ORIGINS: 'https://panel.example' });
  });
  afterAll(() => nebo.stop());

  it('answers the preflight of a named origin, and no other origin', async () => {
    const preflight = (origin: string) =>
      send(`${nebo.api}/v1/account`, {
        method: 'OPTIONS',
        headers: { origin, 'access-control-request-method': 'GET' },
      });
    const allowed = await preflight('https://panel.example');
    expect(allowed).toMatchObject({
      status: 204,
      headers: { 'access-control-allow-origin': 'https://panel.example', vary: 'Origin' },
    });
    expect(allowed.headers['access-control-allow-credentials']).toBeUndefined();
    const other = await preflight('https://evil.example');
    expect(other.status).toBe(405);
    expect(other.headers['access-control-allow-origin']).toBeUndefined();
  });
});

describe('inference door', () => {
  let nebo: FakeInstallation;
  let key: string;
  beforeAll(async () => {
    nebo = await new FakeInstallation().start();
    key = nebo.addKey({
      kind: 'inference',
      account_id: account,
      key_id: randomUUID(),
      models: ['glm-5.3'],
      monthly_limit: null,
    });
  });
  afterAll(() => nebo.stop());
  const post = (path: string, headers: Record<string, string | string[]>) =>
    send(`${nebo.ai}${path}`, {
      method: 'POST',
      body: '{}',
      headers: { 'content-type': 'application/json', ...headers },
    });

  it('takes a key as bearer or x-api-key, hands on who it is and not the key', async () => {
    expect(await post('/v1/chat/completions', bearer(key))).toMatchObject({
      status: 200,
      body: { identity: { kind: 'inference', models: ['glm-5.3'] } },
    });
    expect((await post('/v1/messages', { 'x-api-key': key })).status).toBe(200);
    expect((await post('/v1/messages', { 'x-api-key': key, ...bearer(key) })).status).toBe(200);
    expect(nebo.seen.at(-1)!.headers['x-api-key']).toBeUndefined();
  });

  it('401 in the shape of the format: no key, a control key, two different keys', async () => {
    const control = nebo.addKey(identity());
    expect(await post('/v1/chat/completions', {})).toMatchObject({
      status: 401,
      body: { error: { type: expect.any(String), code: 'unauthorized' } },
    });
    expect((await post('/v1/chat/completions', bearer(control))).status).toBe(401);
    expect(
      await post('/v1/messages', { 'x-api-key': key, ...bearer(inferenceForm.generate()) }),
    ).toMatchObject({ status: 401, body: { type: 'error' } });
  });

  it('answers of the messages format have the id that its clients show, refusals included; its query is handed on', async () => {
    const answer = await post('/v1/messages?beta=true', { 'x-api-key': key });
    expect(answer.status).toBe(200);
    expect(nebo.seen.at(-1)!.url).toBe('/v1/messages?beta=true');
    for (const path of ['/v1/messages', '/v1/messages/count_tokens', '/v1/messages/batches']) {
      const refused = await post(path, {});
      expect(refused.body).toMatchObject({ type: 'error', error: { code: expect.any(String) } });
      expect(refused.headers['request-id']).toBe(refused.headers['x-request-id']);
    }
    expect((await post('/v1/chat/completions', {})).headers['request-id']).toBeUndefined();
  });

  it('responses: made with a key, never stored, refused in their own shape', async () => {
    expect((await post('/v1/responses', bearer(key))).status).toBe(200);
    const refused = await post('/v1/responses', bearer(inferenceForm.generate()));
    expect(refused).toMatchObject({
      status: 401,
      body: { error: { type: 'authentication_error', code: 'unauthorized', message: expect.any(String) } },
    });
    expect(refused.body).not.toHaveProperty('type');
    expect((await send(`${nebo.ai}/v1/responses`)).status).toBe(405);
    expect((await send(`${nebo.ai}/v1/responses/resp_1`)).status).toBe(404);
  });

  it('429 in the shape of the format, where the operator set a limit', async () => {
    const limited = await new FakeInstallation().start({ NEBO_AI_RATE_LIMIT: '1/600' });
    try {
      const own = limited.addKey({
        kind: 'inference',
        account_id: account,
        key_id: randomUUID(),
        models: null,
        monthly_limit: null,
      });
      const ask = () =>
        send(`${limited.ai}/v1/messages`, {
          method: 'POST',
          body: '{}',
          headers: { 'content-type': 'application/json', 'x-api-key': own },
        });
      expect((await ask()).status).toBe(200);
      const refused = await ask();
      expect(refused).toMatchObject({
        status: 429,
        body: { type: 'error', error: { type: 'rate_limit_error', code: 'rate_limit_exceeded' } },
      });
      expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0);
      const responses = await send(`${limited.ai}/v1/responses`, {
        method: 'POST',
        body: '{}',
        headers: { 'content-type': 'application/json', ...bearer(own) },
      });
      expect(responses).toMatchObject({ status: 429, body: { error: { type: 'rate_limit_error' } } });
      expect(responses.body).not.toHaveProperty('type');
    } finally {
      await limited.stop();
    }
  });

  it('models need no key; probes are answered; unknown paths are 404', async () => {
    expect((await send(`${nebo.ai}/v1/models`)).status).toBe(200);
    expect((await send(`${nebo.ai}/api/hello`, { method: 'HEAD' })).status).toBe(200);
    expect((await send(`${nebo.ai}/v1/embeddings`, { method: 'POST' })).status).toBe(404);
    expect((await send(`${nebo.ai}/v1/models`, { method: 'POST' })).status).toBe(405);
  });
});
