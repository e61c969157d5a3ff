import { randomBytes, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { buffer } from 'node:stream/consumers';
import { packFolder } from '@nebo/archive';
import { actionsByKind } from '@nebo/contracts';
import { Api, ContractCheck, readContract } from '../harness/api.js';
import { Operator, raw } from '../harness/attacker.js';
import { Nebo, root } from '../harness/nebo.js';

const contract = new ContractCheck(readContract('v1'));
/** A connection needs a git host, which stands in git.spec.ts beside the tests of its operations. */
const operations = contract.operations.filter(({ parameters }) => !parameters.includes('connection_id'));
type Operation = (typeof operations)[number];
type Ids = Record<string, string>;
/** A key of its own each time: a second one of the same bytes would be a double. */
const newPublicKey = () => {
  const part = (bytes: Buffer) => Buffer.concat([Buffer.from([0, 0, 0, bytes.length]), bytes]);
  const key = Buffer.concat([part(Buffer.from('ssh-ed25519')), part(randomBytes(32))]);
  return `ssh-ed25519 ${key.toString('base64')} somebody`;
};
const later = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** What somebody with a key, or with none, tries. Every rule is tried on the whole installation, as it runs for users. */
describe('attacks with single requests', () => {
  let nebo: Nebo;
  let operator: Operator;
  let owner: Api;
  let key: string;
  let account: string;
  let folder: Buffer;

  beforeAll(async () => {
    nebo = await Nebo.start({ NEBO_RATE_LIMIT: '0', NEBO_BODY_IDLE_MS: '1500', NEBO_LOG_LEVEL: 'debug' });
    operator = new Operator(nebo);
    const [demo] = nebo.credentials.accounts;
    ({ api_key: key, account_id: account } = demo!);
    owner = new Api(nebo.credentials.base_url, key, contract);
    folder = await buffer((await packFolder(`${root}/e2e/fixtures/static-site`)).stream);
  });
  afterAll(() => nebo?.dispose());

  const upload = (api: Api, path: string) =>
    api.call('POST', path, { raw: folder, headers: { 'content-type': 'application/gzip' } });

  /** One thing of every kind. */
  const things = async (api: Api): Promise<Ids> => {
    const project_id: string = (await api.post('/projects', { name: randomUUID() })).body.id;
    const app = { name: 'app', source_type: 'upload' };
    const app_id: string = (await api.post(`/projects/${project_id}/apps`, app)).body.id;
    const env_var_id: string = (await api.post(`/apps/${app_id}/env`, { name: 'A', value: '1' })).body.id;
    const job = { name: 'job', command: 'true' };
    return {
      project_id,
      app_id,
      env_var_id,
      job_id: (await api.post(`/apps/${app_id}/jobs`, job)).body.id,
      build_id: (await upload(api, `/apps/${app_id}/deployments`)).body.id,
      ...(await regionThings(api, project_id)),
    };
  };
  let subnets = 0;
  const regionThings = async (api: Api, project: string): Promise<Ids> => {
    const [region] = (await api.get('/regions')).body.data;
    subnets += 1;
    const subnet = `10.${100 + subnets}.0.0/24`;
    const vpc = (await api.post('/vpcs', { name: randomUUID(), subnet, cluster_id: region.id })).body;
    const reserved = {
      name: 'one',
      address: `10.${100 + subnets}.0.77`,
      mac: `02:00:00:00:00:${10 + subnets}`,
    };
    const [plan] = (await api.get('/vm-plans')).body.data;
    const [image] = (await api.get(`/projects/${project}/images`)).body.images;
    const machine = {
      name: randomUUID(),
      hostname: 'host',
      image_id: image.id,
      vm_plan_id: plan.id,
      cluster_id: region.id,
      default_user: 'me',
    };
    const zone = (await api.post('/dns/zones', { name: `${randomUUID()}.example` })).body;
    const record = { name: 'www', type: 'A', content: '192.0.2.1', ttl: 300 };
    const set = { name: 'mail', type: 'A', records: ['192.0.2.2'], ttl: 300 };
    const vm = (await api.post(`/projects/${project}/vms`, machine)).body;
    return {
      zone_id: zone.id,
      record_id: (await api.post(`/dns/zones/${zone.id}/dns_records`, record)).body.id,
      rrset_id: (await api.post(`/dns/zones/${zone.id}/rrsets`, set)).body.id,
      vpc_id: vpc.id,
      ip_id: (await api.post(`/vpcs/${vpc.id}/reserved-ips`, reserved)).body.id,
      fip_id: (await api.post('/floating-ips', { cluster_id: region.id })).body.id,
      key_id: (await api.post('/ssh-keys', { name: 'key', public_key: newPublicKey() })).body.id,
      vm_id: vm.id,
      // Of a machine that has none yet: as good as somebody else's.
      backup_id: randomUUID(),
    };
  };
  const pathOf = ({ path }: Operation, ids: Ids) =>
    path.replace(/\{(\w+)\}/g, (_all, name: string) => ids[name]!);
  const callOn = (api: Api, operation: Operation, ids: Ids) =>
    operation.path.endsWith('/deployments')
      ? upload(api, pathOf(operation, ids))
      : api.call(
          operation.method,
          pathOf(operation, ids),
          ['POST', 'PATCH'].includes(operation.method)
            ? { body: { name: 'taken-over', value: 'x', command: 'true' } }
            : {},
        );

  it('ids of another account, of nobody, or of another own parent: 404 in every mixture, one body, no effect', async () => {
    const other = await operator.post('account-create', { name: 'other', topup: '100000' });
    const stranger = owner.as((await operator.post('key-create', { account: other.account_id })).key);
    const [mine, sibling, theirs] = [await things(owner), await things(owner), await things(stranger)];
    const nobody = Object.fromEntries(Object.keys(mine).map((name) => [name, randomUUID()]));
    const state = async () => {
      const app = (await stranger.get(`/apps/${theirs['app_id']}`)).body;
      const env = (await stranger.get(`/apps/${theirs['app_id']}/env`)).body;
      const builds = (await stranger.get(`/apps/${theirs['app_id']}/builds`)).body.total;
      return {
        name: app.name,
        replicas: app.replica_count,
        env,
        builds,
        all: (await stranger.get('/projects')).body,
      };
    };
    const before = await state();
    const bodies = new Set<string>();
    let tried = 0;
    for (const operation of operations) {
      const names = operation.parameters;
      for (let mask = 1; mask < 2 ** names.length; mask += 1) {
        for (const foreign of [theirs, nobody, sibling]) {
          // All ids of one own thing are no attack.
          if (foreign === sibling && mask === 2 ** names.length - 1) continue;
          const ids = Object.fromEntries(
            names.map((name, place) => [name, (mask & (1 << place) ? foreign : mine)[name]!]),
          );
          const answer = await callOn(owner, operation, ids);
          expect([operation.id, mask, answer.status]).toEqual([operation.id, mask, 404]);
          bodies.add(answer.text);
          tried += 1;
        }
      }
    }
    expect(tried).toBeGreaterThan(200);
    expect([...bodies]).toEqual(['{"error":{"code":"not_found","message":"not found"}}']);
    expect(await state()).toEqual(before);
    expect((await owner.get(`/apps?project_id=${theirs['project_id']}`)).body.total).toBe(0);
    const events = await owner.get(`/apps/${mine['app_id']}/events?build_id=${theirs['build_id']}`);
    expect(events.status).toBe(404);
  });

  it('a key with one action may do exactly what that action is for, and a list shows it nothing else', async () => {
    const actions = Object.entries(actionsByKind).flatMap(([kind, verbs]) =>
      verbs.map((verb) => `${kind}:${verb}`),
    );
    for (const action of actions) {
      const { key: limited } = await operator.post('key-create', { account, actions: [action] });
      const api = owner.as(limited);
      // Fresh ones: what is permitted may delete them.
      const ids = /:(delete|write)$/.test(action) ? await things(owner) : (shared ??= await things(owner));
      for (const operation of operations) {
        // Streams of a permitted key need no end.
        if (/(logs|events)$/.test(operation.path) && operation.permissions.includes(action)) continue;
        const answer = await callOn(api, operation, ids);
        const needed = [...operation.permissions, ...(alsoNeeded[operation.id] ?? [])];
        const isAllowed = needed.every((each) => each === action);
        // No name leads here, so there is no certificate to see, for anybody.
        const isVisible = isAllowed && operation.id !== 'certificates_list_certificates';
        if (operation.resource === 'list')
          expect([operation.id, answer.body.total > 0]).toEqual([operation.id, isVisible]);
        else
          expect([operation.id, action, answer.status === 403]).toEqual([operation.id, action, !isAllowed]);
      }
    }
  });
  let shared: Ids | undefined;
  /** What the body, as it is sent here, needs beside what the path needs: a gateway without an address orders one. */
  const alsoNeeded: Record<string, string[]> = { networking_enable_nat_gateway: ['floating_ip:write'] };

  it('bodies that are deep, wide or no text: refused or taken at once, and nobody else waits for them', async () => {
    const { project_id, app_id } = await things(owner);
    const wide = Array.from({ length: 60_000 }, (_, index) => `"k${index}":1`).join();
    const send = (method: string, path: string, text: string | Buffer) =>
      owner.call(method, path, { raw: Buffer.from(text), headers: { 'content-type': 'application/json' } });
    const create = (text: string | Buffer) => send('POST', `/projects/${project_id}/apps`, text);
    let slowest = 0;
    let over = false;
    const others = (async () => {
      while (!over) {
        const began = performance.now();
        await owner.get('/account');
        slowest = Math.max(slowest, performance.now() - began);
        await later(10);
      }
    })();
    for (const [open, close] of [
      ['[', ']'],
      ['{"a":', '}'],
    ] as const) {
      const deep = `${open.repeat(10_000)}1${close.repeat(10_000)}`;
      for (const text of [deep, `{"name":${deep}}`, `{"name":"x","other":${deep}}`])
        expect((await create(text)).status).toBe(400);
    }
    expect((await create(`{"name":"wide","source_type":"upload",${wide}}`)).status).toBe(201);
    expect((await create(`{"name":{${wide}}}`)).status).toBe(422);
    const closed = await send('PATCH', `/apps/${app_id}`, `{${wide}}`);
    expect([closed.status, closed.body.detail.length]).toEqual([422, 50]);
    expect((await create('{"name":"a\\ud800"}')).body.detail[0].loc).toEqual(['body', 'name']);
    expect((await create(Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]))).status).toBe(400);
    for (const poison of [
      '{"__proto__":{"name":"x"}}',
      '{"\\u005f_proto__":1}',
      '{"constructor":{"prototype":{}}}',
    ])
      expect((await create(poison)).status).toBe(400);
    expect((await create(JSON.stringify({ name: 'ж'.repeat(256) }))).status).toBe(422);
    expect(
      (await create(JSON.stringify({ name: 'ж'.repeat(255), source_type: 'upload' }))).body.name,
    ).toHaveLength(255);
    over = true;
    await others;
    expect(slowest).toBeLessThan(1_000);
  });

  it('what the server owns cannot be set: unknown in a change, without effect in a creation', async () => {
    const { project_id, app_id } = await things(owner);
    const app = (await owner.get(`/apps/${app_id}`)).body;
    const owned = [
      'id',
      'account_id',
      'project_id',
      'status',
      'deploy_state',
      'created_at',
      'source_type',
      'cluster_id',
      'current_build_id',
      'deleted_at',
    ];
    for (const field of owned)
      expect((await owner.patch(`/apps/${app_id}`, { [field]: randomUUID() })).status).toBe(422);
    expect((await owner.get(`/apps/${app_id}`)).body).toMatchObject({
      ...Object.fromEntries(
        owned
          .filter((field) => field in app && !/state|status|current/.test(field))
          .map((field) => [field, app[field]]),
      ),
    });
    const forged = {
      id: randomUUID(),
      account_id: randomUUID(),
      project_id: randomUUID(),
      status: 'active',
      created_at: '2001-01-01T00:00:00Z',
    };
    const made = (
      await owner.post(`/projects/${project_id}/apps`, { ...forged, name: 'forged', source_type: 'upload' })
    ).body;
    expect(made).toMatchObject({ project_id, status: 'inactive' });
    expect([made.id, made.created_at]).not.toEqual([forged.id, forged.created_at]);
    const project = (
      await owner.call('PATCH', `/projects/${project_id}`, { body: { ...forged, emoji: '🧊' } })
    ).body;
    expect(project).toMatchObject({ id: project_id, emoji: '🧊' });
  });

  it('ids and queries that no client would send: 404 and 422 with the one body, never a word of the framework', async () => {
    const { app_id } = await things(owner);
    const { base_url } = nebo.credentials;
    const head = `Host: x\r\nAuthorization: Bearer ${key}\r\nConnection: close\r\n\r\n`;
    const ask = async (target: string) => {
      const { statuses, text } = await raw(base_url, `GET /v1${target} HTTP/1.1\r\n${head}`, 2_000);
      const body = JSON.parse(text.slice(text.indexOf('\r\n\r\n') + 4)) as { error: { code: string } };
      expect([target, text]).not.toEqual([target, expect.stringMatching(/FST_|statusCode|stack/)]);
      return [statuses[0], body.error?.code];
    };
    for (const id of [
      '%2e%2e',
      '..',
      '..%2faccount',
      '%00',
      '%ff',
      '%',
      '%E0%A4%A',
      '%23',
      `${app_id}%2fenv`,
      'a'.repeat(300),
      'a'.repeat(301),
      'a'.repeat(9_000),
    ]) {
      expect([id, (await ask(`/apps/${id}`))[0]]).toEqual([id, 404]);
      expect([id, (await ask(`/apps/${app_id}/builds/${id}`))[0]]).toEqual([id, 404]);
    }
    for (const target of [
      '/../operator/v1/identity-billing/accounts',
      '//internal/v1/routes',
      '/%61ccount',
      '/apps/%2e%2e/account',
    ])
      expect(await ask(target)).toEqual([404, 'unknown_operation']);
    for (const query of [
      'limit=1&limit=2',
      'offset=2147483648',
      'limit=%D9%A3',
      'limit=1%00',
      'limit=+1',
      'limit=0x1',
      'project_id=a&project_id=b',
      'project_id=%00',
    ])
      expect([query, (await ask(`/apps?${query}`))[0]]).toEqual([query, 422]);
    for (const query of ['wait=live&wait=live', 'wait=constructor', 'timeout=1&timeout=2'])
      expect([query, (await ask(`/apps/${app_id}?${query}`))[0]]).toEqual([query, 422]);
  });

  it('requests that two readers would read differently end their connection; what never ends is ended', async () => {
    const { app_id } = await things(owner);
    for (const url of [nebo.credentials.base_url, nebo.credentials.ai_url]) {
      const head = `Host: x\r\nAuthorization: Bearer ${key}\r\n`;
      const ok = `GET /v1/account HTTP/1.1\r\n${head}\r\n`;
      for (const text of [
        `POST /v1/projects HTTP/1.1\r\n${head}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
        `POST /v1/projects HTTP/1.0\r\n${head}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
        `POST /v1/projects HTTP/1.1\r\n${head}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n`,
        `GET /v1/account HTTP/1.1\r\n${head}Host: y\r\n\r\n`,
        `GET http://x/v1/account HTTP/1.1\r\n${head}\r\n`,
      ]) {
        const answer = await raw(url, text + ok, 1_000);
        expect([text, answer.statuses, answer.closed]).toEqual([text, [400], true]);
      }
    }
    const head = `Host: x\r\nAuthorization: Bearer ${key}\r\nTransfer-Encoding: chunked\r\n`;
    for (const [path, type] of [
      ['/v1/projects', 'json'],
      [`/v1/apps/${app_id}/deployments`, 'gzip'],
    ] as const) {
      const text = `POST ${path} HTTP/1.1\r\n${head}Content-Type: application/${type}\r\n\r\n2\r\n\x1f\x8b\r\n`;
      const answer = await raw(nebo.credentials.base_url, text, 8_000);
      expect(answer).toMatchObject({ statuses: [408], closed: true });
    }
  });

  it('the doors of operator and agents open to their own tokens only, whatever the path looks like', async () => {
    const { origin } = new URL(nebo.credentials.base_url);
    const region = readFileSync(`${nebo.home}/region.token`, 'utf8').trim();
    const [demo] = nebo.credentials.accounts;
    const strangers = [null, key, demo!.inference_key, `${operator.token}x`, operator.token.slice(0, -1)];
    const ask = async (target: string, token: string | null, method = 'GET') => {
      const bearer = token === null ? '' : `Authorization: Bearer ${token}\r\n`;
      return (
        await raw(
          origin,
          `${method} ${target} HTTP/1.1\r\nHost: x\r\n${bearer}Connection: close\r\n\r\n`,
          2_000,
        )
      ).statuses[0];
    };
    const accounts = '/operator/v1/identity-billing/accounts';
    expect(await ask(accounts, operator.token)).toBe(200);
    for (const method of ['GET', 'POST', 'PUT', 'DELETE', 'OPTIONS'])
      for (const token of [...strangers, region])
        expect([token, await ask(accounts, token, method)]).toEqual([token, 401]);
    for (const token of [...strangers, operator.token])
      expect(await ask('/agent/v1/apps-builder/wanted', token)).toBe(401);
    const door = '/operator/v1/identity-billing';
    for (const target of [
      `${door}/../keys/resolve`,
      `${door}/..%2f..%2fkeys/resolve`,
      `${door}/%2e%2e/keys/resolve`,
      `${door}//accounts`,
      `/${accounts}`,
      '/operator/v1/constructor/x',
      '/operator/v1/nobody/x',
      `/v1${accounts}`,
      '/internal/v1/operator/accounts',
    ])
      expect([target, await ask(target, operator.token)]).toEqual([target, 404]);
    for (const target of [
      '/agent/v1/apps-builder/../identity-billing/x',
      '/agent/v1/apps-builder/..%2f..%2finternal/v1/routes',
      '/agent/v1/__proto__/x',
      '/agent//v1/session',
      '/v1/agent/v1/session',
    ])
      expect([404, 409]).toContain(await ask(target, region));
  });
});
