import { Bench, rows } from './nebo.js';

const id = '00000000-0000-4000-8000-000000000001';

describe('nebo api: checked against the contract, and nothing is sent', () => {
  let bench: Bench;
  beforeEach(async () => (bench = await Bench.start()));
  afterEach(async () => {
    expect(bench.api.seen).toEqual([]);
    await bench.stop();
  });

  test('an unknown path: no such operation, the five most similar, exit 2', async () => {
    const { code, error } = await bench.error(['api', '/aps']);
    expect([code, error['code'], error['message'], error['methods']]).toEqual([
      2,
      'unknown_operation',
      'the contract has no such operation: GET /aps',
      [],
    ]);
    const similar = error['similar'] as { method: string; path: string }[];
    expect(similar).toHaveLength(5);
    expect(similar[0]).toMatchObject({ method: 'GET', path: '/apps' });
    const ran = await bench.run(['api', '/aps']);
    expect([ran.code, ran.stdout]).toEqual([2, '']);
    expect(ran.stderr).toContain('Similar:\n    GET /apps  List apps\n');
  });

  test.each([
    ['POST', `/projects/${id}/app`, '/projects/{project_id}/apps'],
    ['GET', `/applications/${id}/environment`, '/apps/{app_id}/env'],
    ['POST', '/floating-ip', '/floating-ips'],
    ['GET', `/apps/${id}/logs`, '/apps/{app_id}/builds/{build_id}/logs'],
    ['GET', '/deployments', '/apps/{app_id}/deployments'],
  ])('%s %s is near %s, by path or by words', async (method, path, near) => {
    const { code, error } = await bench.error(['api', '-X', method, path]);
    expect(code).toBe(2);
    expect((error['similar'] as { path: string }[]).map((one) => one.path)).toContain(near);
  });

  test('a known path with another method says so', async () => {
    const { code, error } = await bench.error(['api', '-X', 'POST', '/apps']);
    expect([code, error['methods']]).toEqual([2, ['GET']]);
    const ran = await bench.run(['api', '-X', 'PUT', `/apps/${id}`]);
    expect(ran.stderr).toContain('The path exists with GET, PATCH, DELETE: use -X GET');
    expect((await bench.run(['api', '-X', 'FETCH', '/apps'])).code).toBe(2);
    expect((await bench.run(['api', '-X', 'DELETE', 'apps_list_apps_by_account'])).code).toBe(2);
  });

  test('-f does not turn a GET into a POST', async () => {
    const { error } = await bench.error(['api', `/projects/${id}/apps`, '-f', 'name=x']);
    expect(error['message']).toBe('GET /projects/{project_id}/apps has no field "name"');
  });

  test.each([
    [['-f', 'nme=x'], 'has no field "nme"', 'Nearest: name'],
    [
      ['-f', 'name=x', '-f', 'replica_count=2'],
      '"replica_count" must be of type integer',
      '-F replica_count=2',
    ],
    [['-F', 'name=5'], '"name" must be of type string', '-f gives text'],
    [['-f', 'name=x', '-F', 'replica_count=1.5'], 'of type integer', ''],
    [['-f', 'name=x', '-F', 'replica_count=11'], 'at most 10', ''],
    [['-f', 'name=x', '-F', 'replica_count=-1'], 'at least 0', ''],
    [['-f', 'name='], 'at least 1 characters', ''],
    [['-f', 'name=x', '-f', 'app_type=site'], 'one of frontend, backend, function', ''],
    [['-f', 'name=x', '-F', 'auto_deploy=null'], 'of type boolean, not null', ''],
    [['-f', 'name=x', '-F', 'name[]=y'], 'in different forms', ''],
    [['-f', 'app_type=backend'], 'needs "name"', '--describe'],
    [[], 'needs "name"', '--describe'],
    [['-f', 'noequals'], 'takes name=value', ''],
    [['--input', 'absent.json'], 'no file absent.json', ''],
    [['--paginate', '-f', 'name=x'], '--paginate', ''],
  ])('create an app with %j: exit 2', async (fields, message, more) => {
    const ran = await bench.run(['api', '-X', 'POST', `/projects/${id}/apps`, ...fields]);
    expect([ran.code, ran.stdout]).toEqual([2, '']);
    expect(ran.stderr).toContain(message);
    expect(ran.stderr).toContain(more);
  });

  test('a query field of the wrong type or outside its limits, also behind the ?', async () => {
    for (const args of [
      ['/apps', '-f', 'limit=many'],
      ['/apps?limit=1000'],
      ['/apps?page=2'],
      ['/apps', '-F', 'offset=-1'],
    ])
      expect((await bench.run(['api', ...args])).code).toBe(2);
  });

  test('--list: sections with counts; --list SECTION: operations with their permission', async () => {
    const sections = rows((await bench.run(['api', '--list'], { env: { NEBO_API_KEY: undefined } })).stdout);
    expect(sections).toEqual([
      ['account', '1'],
      ['apps', '21'],
      ['networking', '3'],
      ['projects', '2'],
    ]);
    const operations = rows((await bench.run(['api', '--list', 'apps'])).stdout);
    expect(operations).toHaveLength(21);
    expect(operations).toContainEqual(['POST', '/projects/{project_id}/apps', 'Create an app', 'app:create']);
    const { code, error } = await bench.error(['api', '--list', 'app']);
    expect([code, error['choices']]).toEqual([2, ['account', 'apps', 'networking', 'projects']]);
    expect(await bench.json(['api', '--list', 'networking'])).toContainEqual({
      method: 'POST',
      path: '/floating-ips',
      summary: 'Order a floating IP',
      permission: 'floating_ip:write',
      operation_id: 'floating_ips_create',
    });
  });

  test('--describe: parameters, body fields with types, answers', async () => {
    const { code, stdout } = await bench.run(['api', '--describe', 'POST', '/projects/{project_id}/apps']);
    expect(code).toBe(0);
    for (const text of [
      'permission app:create',
      'In the path\n  project_id',
      'name           string, 1..255, required',
      'frontend | backend | function, default "frontend"',
      'vpc_id         string | null',
      'Answer 201: V1App',
    ])
      expect(stdout).toContain(text);
    expect((await bench.run(['api', '--describe', '-X', 'PATCH', '/apps/x'])).stdout).toContain(
      'unknown fields are refused',
    );
    expect((await bench.run(['api', '--describe', 'apps_stream_build_logs'])).stdout).toContain(
      'Answer 200: text/event-stream',
    );
    expect((await bench.run(['api', '--describe', 'DELETE', '/apps'])).code).toBe(2);
    expect(await bench.json(['api', '--describe', 'apps_get_app'])).toMatchObject({
      method: 'GET',
      permissions: ['app:read'],
    });
  });

  test('a fixed segment wins over an id', async () => {
    expect((await bench.run(['api', '--describe', '/floating-ips/regions'])).stdout).toContain(
      'floating_ips_regions',
    );
    expect((await bench.run(['api', '--describe', `/floating-ips/${id}`])).stdout).toContain(
      'floating_ips_get',
    );
  });
});

describe('nebo api --no-check: for a newer server', () => {
  let bench: Bench;
  beforeEach(async () => (bench = await Bench.start()));
  afterEach(() => bench.stop());

  test('an unknown path and unknown fields are sent', async () => {
    expect((await bench.run(['api', '/things?a=1', '-f', 'b=2', '--no-check'])).code).toBe(5);
    expect(bench.api.seen.at(-1)).toMatchObject({
      method: 'GET',
      path: '/v1/things',
      query: { a: '1', b: '2' },
      body: '',
    });
    await bench.run(['api', '-X', 'POST', '/v1/things/', '-f', 'b=2', '-F', 'c[d]=true', '--no-check']);
    expect(bench.api.seen.at(-1)).toMatchObject({
      method: 'POST',
      path: '/v1/things',
      body: '{"b":"2","c":{"d":true}}',
    });
    await bench.run(['api', '-X', 'PATCH', `/apps/${id}`, '-f', 'colour=red', '--no-check']);
    expect(bench.api.seen.at(-1)).toMatchObject({ method: 'PATCH', body: '{"colour":"red"}' });
  });
});
