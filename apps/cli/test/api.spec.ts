import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { contractFixture } from './contract-fixture.mjs';
import { Bench, rows } from './nebo.js';

describe('nebo api: sending', () => {
  let bench: Bench;
  let app: { id: string; name: string };
  beforeEach(async () => {
    bench = await Bench.start();
    app = bench.api.app('web', bench.api.project('shop'));
  });
  afterEach(() => bench.stop());

  test.each(['/apps', 'apps', '/v1/apps', '/apps/', '/v1/apps/', 'apps_list_apps_by_account'])(
    '%s is the list of apps',
    async (path) => {
      const ran = await bench.run(['api', path]);
      expect(ran.code).toBe(0);
      expect(JSON.parse(ran.stdout)).toMatchObject({ data: [{ id: app.id }], count: 1 });
      expect(bench.api.seen.map((one) => `${one.method} ${one.path}`)).toEqual(['GET /v1/apps']);
    },
  );

  test('the answer is the text as it came', async () => {
    bench.api.answer('GET', /\/apps$/, { status: 200, body: '{"data":[ ],  "big":12345678901234567890}' });
    expect((await bench.run(['api', '/apps'])).stdout).toBe('{"data":[ ],  "big":12345678901234567890}\n');
  });

  test('--paginate merges all pages into one array, and the filter sees the whole', async () => {
    for (let index = 0; index < 450; index++) bench.api.app(`app-${index}`, bench.api.projects[0]!);
    const ran = await bench.run(['api', '/apps', '--paginate', '--jq', 'map(.name) | length, .[0], .[-1]']);
    expect([ran.code, ran.stdout]).toEqual([0, '451\nweb\napp-449\n']);
    expect(JSON.parse((await bench.run(['api', '/apps?limit=100', '--paginate'])).stdout)).toHaveLength(451);
    expect((await bench.run(['api', `/apps/${app.id}`, '--paginate'])).code).toBe(2);
  });

  test('fields go where the contract says: query of a GET, body of a POST, path by name', async () => {
    await bench.run(['api', '/apps', '-f', `project_id=${bench.api.projects[0]!.id}`, '-f', 'limit=7']);
    expect(bench.api.seen.at(-1)!.query).toEqual({ project_id: bench.api.projects[0]!.id, limit: '7' });
    await bench.run([
      'api',
      '-X',
      'POST',
      `/projects/${bench.api.projects[0]!.id}/apps`,
      '-f',
      'name=x',
      '-f',
      'source_type=upload',
    ]);
    expect(JSON.parse(bench.api.seen.at(-1)!.body)).toEqual({ name: 'x', source_type: 'upload' });
    expect(bench.api.seen.at(-1)!.headers['idempotency-key']).toBeDefined();
    const shown = await bench.run(['api', 'apps_get_app_by_id', '-f', `app_id=${app.id}`]);
    expect(JSON.parse(shown.stdout)).toMatchObject({ id: app.id });
  });

  test('-F: typed values, null, lists, files', async () => {
    await bench.run([
      'api',
      '-X',
      'PATCH',
      `/apps/${app.id}`,
      '-F',
      'replica_count=2',
      '-F',
      'vpc_id=null',
      '-f',
      'readiness_path=2',
    ]);
    expect(JSON.parse(bench.api.seen.at(-1)!.body)).toEqual({
      replica_count: 2,
      vpc_id: null,
      readiness_path: '2',
    });
    writeFileSync(join(bench.work, 'name.txt'), 'from a file');
    const dry = async (...args: string[]) =>
      JSON.parse((await bench.json<{ body: string }>(['api', ...args, '--dry-run'])).body) as unknown;
    const order = ['-X', 'POST', '/floating-ips', '-f', 'cluster_id=c'];
    expect(await dry(...order, '-F', 'tags[]=a', '-F', 'tags[]=b', '-F', 'name=@name.txt')).toEqual({
      cluster_id: 'c',
      tags: ['a', 'b'],
      name: 'from a file',
    });
    expect(await dry(...order, '-F', 'tags=["a"]')).toEqual({ cluster_id: 'c', tags: ['a'] });
  });

  test('{app_id} and {project_id} come from the link', async () => {
    writeFileSync(
      join(bench.work, '.nebo-link.json'),
      JSON.stringify({ api_url: bench.api.url, project_id: bench.api.projects[0]!.id, app_id: app.id }),
    );
    await bench.run(['api', '/projects/{project_id}/apps']);
    expect(JSON.parse((await bench.run(['api', '/apps/{app_id}'])).stdout)).toMatchObject({ id: app.id });
    expect(bench.api.seen.map(({ path }) => path)).toEqual([
      `/v1/projects/${bench.api.projects[0]!.id}/apps`,
      `/v1/apps/${app.id}`,
    ]);
    const unknown = await bench.run(['api', '/floating-ips/{fip_id}']);
    expect([unknown.code, unknown.stderr.includes('{fip_id}')]).toEqual([2, true]);
  });

  test('--input: content type from the contract, JSON from stdin', async () => {
    const archive = join(bench.work, 'src.tgz');
    mkdirSync(join(bench.work, 's'));
    writeFileSync(archive, gzipSync(Buffer.alloc(1024)));
    expect(
      (await bench.run(['api', '-X', 'POST', `/apps/${app.id}/deployments`, '--input', 'src.tgz'])).code,
    ).toBe(0);
    expect(bench.api.seen.at(-1)!.headers['content-type']).toBe('application/gzip');
    const made = await bench.run(
      ['api', '-X', 'POST', `/projects/${bench.api.projects[0]!.id}/apps`, '--input', '-'],
      { stdin: '{"name":"y"}' },
    );
    expect(JSON.parse(made.stdout)).toMatchObject({ name: 'y' });
    for (const [stdin, why] of [
      ['{', 'JSON'],
      ['{"nam":"y"}', 'Nearest: name'],
      ['[]', 'object'],
      ['{"name":"y","replica_count":11}', 'at most 10'],
    ] as const) {
      const wrong = await bench.run(
        ['api', '-X', 'POST', `/projects/${bench.api.projects[0]!.id}/apps`, '--input', '-'],
        { stdin },
      );
      expect([wrong.code, wrong.stdout]).toEqual([2, '']);
      expect(wrong.stderr).toContain(why);
    }
    expect((await bench.run(['api', '-X', 'POST', `/apps/${app.id}/deployments`])).stderr).toContain(
      '--input FILE',
    );
  });

  test('-i prints status and headers; an error keeps them and stays off stdout otherwise', async () => {
    const ran = await bench.run(['api', '/apps', '-i']);
    expect(ran.stdout).toMatch(/^HTTP\/1\.1 200 OK\nx-request-id: req-1\n[^]*\n\n\{"data"/);
    bench.api.answer('GET', /apps$/, { status: 404 });
    const missing = await bench.run(['api', '/apps']);
    expect([missing.code, missing.stdout]).toEqual([5, '']);
  });

  test('--dry-run shows the request and the same as curl, without the key, and sends nothing', async () => {
    const ran = await bench.run([
      'api',
      '-X',
      'POST',
      '/floating-ips',
      '-f',
      "name=it's",
      '-f',
      'cluster_id=c',
      '--dry-run',
    ]);
    expect(ran.code).toBe(0);
    expect(ran.stdout).toContain(`POST ${bench.api.url}/floating-ips\n`);
    expect(ran.stdout).toContain(
      `curl -X POST ${bench.api.url}/floating-ips -H "Authorization: Bearer $NEBO_API_KEY"`,
    );
    expect(ran.stdout).toContain(`--data-binary '{"name":"it'\\''s","cluster_id":"c"}'`);
    expect(ran.stdout).not.toContain(bench.api.key);
    expect(bench.api.seen).toEqual([]);
  });

  test('an SSE operation prints its lines and knows done; without done it is exit 9', async () => {
    const whole = bench.api.build(app, { log: ['one', 'two'] });
    expect((await bench.run(['api', `/apps/${app.id}/builds/${whole.id}/logs`])).stdout).toBe('one\ntwo\n');
    const cut = bench.api.build(app, { log: ['one', 'two'], cuts: [1] });
    const ran = await bench.run(['api', `/apps/${app.id}/builds/${cut.id}/logs`]);
    expect([ran.code, ran.stdout]).toEqual([9, 'one\n']);
  });

  test("--server-contract reads the installation's own contract, once per ETag", async () => {
    const own = contractFixture() as { paths: Record<string, unknown> };
    own.paths = {
      '/v1/things': {
        get: { operationId: 'things_list', tags: ['things'], summary: 'List things', responses: { 200: {} } },
      },
    };
    const etag = { etag: '"1"' };
    bench.api.answer(
      'GET',
      /openapi\.json$/,
      { status: 200, headers: etag, body: own },
      { status: 304, headers: etag },
    );
    const env = { XDG_CACHE_HOME: join(bench.home, 'cache') };
    for (let time = 0; time < 2; time++)
      expect(rows((await bench.run(['api', '--server-contract', '--list'], { env })).stdout)).toEqual([
        ['things', '1'],
      ]);
    const [first, second] = bench.api.received('GET', /openapi/);
    expect(first!.headers.authorization).toBeUndefined();
    expect(second!.headers['if-none-match']).toBe('"1"');
  });
});
