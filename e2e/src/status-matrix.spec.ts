import { randomUUID } from 'node:crypto';
import { Api, type ApiAnswer, ContractCheck, readContract } from '../harness/api.js';
import { Nebo } from '../harness/nebo.js';

const contract = new ContractCheck(readContract('v1'));
const { operations } = contract;
type Operation = (typeof operations)[number];

/** Fills a path's parameters. */
const pathWith = (operation: Operation, ids: Record<string, string>) =>
  operation.path.replace(/\{(\w+)\}/g, (_all, name: string) => ids[name] ?? randomUUID());
/** Of a key that nobody has. */
const publicKey = 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA matrix';
const bodies: Record<string, unknown> = { POST: {}, PATCH: {}, PUT: {} };

/** The refusals that every operation owes, generated from the contract: none can be forgotten. */
describe('refusals of every operation', () => {
  let nebo: Nebo;
  let owner: Api;
  let stranger: Api;
  let powerless: Api;
  let ids: Record<string, string>;

  beforeAll(async () => {
    nebo = await Nebo.start({ NEBO_RATE_LIMIT: '0' });
    const [demo] = nebo.credentials.accounts;
    const base = new Api(nebo.credentials.base_url, demo!.api_key, contract);
    owner = base;
    const other = await nebo.admin('account', 'create', '--name', 'other', '--topup', '100');
    stranger = base.as((await nebo.admin('key', 'create', '--account', other.account_id)).key);
    powerless = base.as(
      (await nebo.admin('key', 'create', '--account', demo!.account_id, '--actions', 'certificate:read')).key,
    );
    const app = (
      await owner.post(`/projects/${demo!.project_id}/apps`, { name: 'matrix', source_type: 'upload' })
    ).body;
    const [region] = (await nebo.admin('region', 'list')).data;
    const vpc = (await owner.post('/vpcs', { name: 'matrix', subnet: '10.20.0.0/16', cluster_id: region.id }))
      .body;
    const fip = (await owner.post('/floating-ips', { cluster_id: region.id })).body;
    const key = (await owner.post('/ssh-keys', { name: 'matrix', public_key: publicKey })).body;
    const [plan] = (await owner.get('/vm-plans')).body.data;
    const [image] = (await owner.get(`/projects/${demo!.project_id}/images`)).body.images;
    const vm = (
      await owner.post(`/projects/${demo!.project_id}/vms`, {
        name: 'matrix',
        hostname: 'matrix',
        image_id: image.id,
        vm_plan_id: plan.id,
        cluster_id: region.id,
        default_user: 'me',
      })
    ).body;
    const zone = (await owner.post('/dns/zones', { name: 'matrix.example' })).body;
    const value = { name: 'a', type: 'A', content: '192.0.2.1' };
    const record = (await owner.post(`/dns/zones/${zone.id}/dns_records`, value)).body;
    const [set] = (await owner.get(`/dns/zones/${zone.id}/rrsets`)).body.data;
    ids = {
      project_id: demo!.project_id,
      app_id: app.id,
      vpc_id: vpc.id,
      fip_id: fip.id,
      vm_id: vm.id,
      key_id: key.id,
      zone_id: zone.id,
      record_id: record.id,
      rrset_id: set.id,
    };
  });
  afterAll(() => nebo?.dispose());

  const call = (api: Api, operation: Operation, withIds: Record<string, string>): Promise<ApiAnswer> =>
    api.call(
      operation.method,
      pathWith(operation, withIds),
      bodies[operation.method] === undefined ? {} : { body: bodies[operation.method] },
    );

  it.each(operations.map((operation) => [`${operation.method} ${operation.path}`, operation] as const))(
    '%s',
    async (_name, operation) => {
      expect(await call(owner.as(null), operation, ids)).toMatchObject({
        status: 401,
        body: { error: { code: 'unauthorized' } },
      });
      expect((await call(owner.as('nebo_live_wrong'), operation, ids)).status).toBe(401);
      if (operation.parameters.length > 0) {
        const foreign = await call(stranger, operation, ids);
        const absent = await call(owner, operation, {});
        const malformed = await call(
          owner,
          operation,
          Object.fromEntries(operation.parameters.map((name) => [name, 'no-id'])),
        );
        for (const answer of [foreign, absent, malformed])
          expect(answer).toMatchObject({ status: 404, body: { error: { code: 'not_found' } } });
        expect(foreign.text).toBe(absent.text);
      }
      if (operation.permissions.length > 0) {
        const refused = await call(powerless, operation, ids);
        if (operation.resource === 'list')
          expect(refused).toMatchObject({ status: 200, body: { data: [], count: 0, total: 0 } });
        else
          expect(refused).toMatchObject({
            status: 403,
            body: {
              error: { code: 'forbidden', message: expect.stringContaining(operation.permissions[0]!) },
            },
          });
      }
      const method = ['PUT', 'POST'].find(
        (name) => !operations.some((other) => other.path === operation.path && other.method === name),
      )!;
      const undeclared = await owner.call(method, pathWith(operation, ids), { body: {} });
      expect(undeclared).toMatchObject({ status: 405, body: { error: { code: 'method_not_allowed' } } });
      expect(undeclared.headers.get('allow')).toContain(operation.method);
    },
  );

  const withBody = operations.filter(
    ({ path, method }) =>
      method !== 'GET' && contract.contract.paths[path]![method.toLowerCase()]! && hasJsonBody(path, method),
  );
  it.each(withBody.map((operation) => [`${operation.method} ${operation.path}`, operation] as const))(
    'bad bodies of %s',
    async (_name, operation) => {
      const path = pathWith(operation, ids);
      const send = (raw: string, type: string) =>
        owner.call(operation.method, path, { raw: Buffer.from(raw), headers: { 'content-type': type } });
      expect(await send('{"name": ', 'application/json')).toMatchObject({
        status: 400,
        body: { error: { code: 'bad_request' } },
      });
      expect(await send('{"__proto__": {"x": 1}}', 'application/json')).toMatchObject({ status: 400 });
      expect(await send('name=x', 'application/x-www-form-urlencoded')).toMatchObject({ status: 415 });
      expect(await send(`{"name":"${'x'.repeat(5_000_000)}"}`, 'application/json')).toMatchObject({
        status: 413,
      });
      const wrong = await send('[]', 'application/json');
      // A child that is not there is said before anything of the body.
      if (operation.parameters.some((name) => ids[name] === undefined)) {
        expect(wrong).toMatchObject({ status: 404, body: { error: { code: 'not_found' } } });
        return;
      }
      expect(wrong).toMatchObject({
        status: 422,
        body: { error: { code: 'validation_error' }, detail: [{ loc: ['body'] }] },
      });
    },
  );

  it.each([
    'limit=0',
    'limit=201',
    'limit=1e2',
    'limit=-1',
    'limit=x',
    'offset=-1',
    'offset=9223372036854775808',
    'limit=',
  ])('lists refuse %s with the field named', async (query) => {
    const field = query.split('=')[0];
    for (const path of [
      '/apps',
      '/projects',
      `/projects/${ids.project_id}/apps`,
      `/apps/${ids.app_id}/builds`,
      `/apps/${ids.app_id}/env`,
      '/account/ledger',
    ]) {
      expect(await owner.get(`${path}?${query}`)).toMatchObject({
        status: 422,
        body: { detail: [{ loc: ['query', field] }] },
      });
    }
  });

  it('an offset past the end is an empty page; count is the page, total the list', async () => {
    expect((await owner.get('/projects?limit=1')).body).toMatchObject({
      limit: 1,
      offset: 0,
      count: 1,
      total: 2,
    });
    expect((await owner.get('/projects?offset=50')).body).toMatchObject({ data: [], count: 0, total: 2 });
  });

  it.each([
    ['an unknown app_type', { app_type: 'spaceship' }, 'app_type'],
    ['a text for a number', { replica_count: '1' }, 'replica_count'],
    ['a number out of range', { replica_count: 11 }, 'replica_count'],
    ['no name', { name: undefined }, 'name'],
    ['an empty name', { name: '' }, 'name'],
    ['a name that is too long', { name: 'я'.repeat(256) }, 'name'],
    ['a half number', { replica_vcpu: 1.5 }, 'replica_vcpu'],
  ])('422 names the field for %s', async (_what, more, field) => {
    const answer = await owner.post(`/projects/${ids.project_id}/apps`, {
      name: 'x',
      source_type: 'upload',
      ...more,
    });
    expect(answer).toMatchObject({ status: 422, body: { detail: [{ loc: ['body', field] }] } });
  });

  it('409 for a taken name, in any case; 404 names the field of a reference; unknown fields only where the body is closed', async () => {
    expect(
      await owner.post(`/projects/${ids.project_id}/apps`, { name: 'MATRIX', source_type: 'upload' }),
    ).toMatchObject({ status: 409, body: { error: { code: 'name_taken' } } });
    const region = await owner.post(`/projects/${ids.project_id}/apps`, {
      name: 'y',
      source_type: 'upload',
      cluster_id: randomUUID(),
    });
    expect(region).toMatchObject({
      status: 404,
      body: { error: { message: expect.stringContaining('cluster_id') } },
    });
    expect(
      (
        await owner.post(`/projects/${ids.project_id}/apps`, {
          name: 'z',
          source_type: 'upload',
          start_cmd: 'x',
        })
      ).status,
    ).toBe(201);
    expect(await owner.patch(`/apps/${ids.app_id}`, { start_cmd: 'x' })).toMatchObject({
      status: 422,
      body: { detail: [{ type: 'extra_forbidden' }] },
    });
  });

  it('429 comes after the quota, with Retry-After, and only for that key', async () => {
    const limited = await Nebo.start({ NEBO_RATE_LIMIT: '3/600' });
    try {
      const api = new Api(limited.credentials.base_url, limited.credentials.accounts[0]!.api_key, contract);
      const answers = [];
      for (let times = 0; times < 4; times += 1) answers.push(await api.get('/account'));
      expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 429]);
      expect(Number(answers[3]!.headers.get('retry-after'))).toBeGreaterThan(0);
    } finally {
      await limited.dispose();
    }
  });
});

function hasJsonBody(path: string, method: string): boolean {
  const operation = contract.contract.paths[path]![method.toLowerCase()] as unknown as {
    requestBody?: { content: Record<string, unknown> };
  };
  return (
    operation.requestBody?.content['application/json'] !== undefined &&
    !(operation as Record<string, unknown>)['x-nebo-upload']
  );
}
