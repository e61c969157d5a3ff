import { closeSync, openSync } from 'node:fs';
import { spawn, spawnSync } from 'node:child_process';
import { Bench, main, rows } from './nebo.js';

describe('what stands on stdout and stderr', () => {
  let bench: Bench;
  beforeEach(async () => (bench = await Bench.start()));
  afterEach(() => bench.stop());

  const seed = (count: number) => {
    const shop = bench.api.project('shop');
    for (let index = 0; index < count; index++) bench.api.app(`web-${index}`, shop);
    return shop;
  };

  test('a table in a pipe: tabs, no titles, nothing cut, no escape codes', async () => {
    const shop = seed(2);
    bench.api.apps[0]!.name = `long-${'x'.repeat(300)}\twith tab\nand line \\`;
    const { code, stdout, stderr } = await bench.run(['app', 'list']);
    expect([code, stderr]).toEqual([0, '']);
    const table = rows(stdout);
    expect(table).toHaveLength(2);
    expect(table[0]![0]).toBe(`long-${'x'.repeat(300)}\\twith tab\\nand line \\\\`);
    expect(table[1]).toEqual(['web-1', 'inactive', '', 'upload', '0', bench.api.apps[1]!.id]);
    const wide = rows((await bench.run(['app', 'list', '-o', 'wide'])).stdout);
    expect(wide[1]).toContain(shop.id);
    // eslint-disable-next-line no-control-regex
    expect(stdout).not.toMatch(/\u001b/);
  });

  test.each([{}, { NO_COLOR: '1' }, { TERM: 'dumb' }, { FORCE_COLOR: '0' }])(
    'no colour with %j',
    async (env) => {
      const { stderr } = await bench.run(['app', 'show', 'absent'], { env });
      expect(stderr).toMatch(/^error: /);
    },
  );

  test('FORCE_COLOR colours a pipe, --no-color and NO_COLOR win over it', async () => {
    const colored = await bench.run(['app', 'show', 'absent'], { env: { FORCE_COLOR: '1' } });
    expect(colored.stderr).toContain('\u001b[31merror:');
    expect(
      (await bench.run(['app', 'show', 'absent', '--no-color'], { env: { FORCE_COLOR: '1' } })).stderr,
    ).toMatch(/^error: /);
    expect(
      (await bench.run(['app', 'show', 'absent'], { env: { FORCE_COLOR: '1', NO_COLOR: '1' } })).stderr,
    ).toMatch(/^error: /);
  });

  test('json is the record as it came, a list one array of records', async () => {
    seed(3);
    expect(await bench.json(['app', 'list'])).toEqual(bench.api.apps);
    expect(await bench.json(['app', 'show', 'web-1'])).toEqual(bench.api.apps[1]);
    expect(await bench.json(['whoami'])).toEqual(bench.api.account);
    expect(await bench.json(['project', 'list'])).toEqual(bench.api.projects);
    expect(await bench.json(['project', 'show', 'shop'])).toEqual(bench.api.projects[0]);
    expect(await bench.json(['balance'])).toMatchObject({ currency: 'RUB', available: '100.00' });
    expect(await bench.json(['version'])).toMatchObject({ version: '0.1.0', contract: '1.0.0' });
  });

  test('NEBO_OUTPUT is the twin of -o, and the flag wins', async () => {
    seed(1);
    const ran = await bench.run(['app', 'list'], { env: { NEBO_OUTPUT: 'json' } });
    expect(JSON.parse(ran.stdout)).toEqual(bench.api.apps);
    expect((await bench.run(['app', 'list', '-o', 'name'], { env: { NEBO_OUTPUT: 'json' } })).stdout).toBe(
      'web-0\n',
    );
  });

  test('yaml, name, --columns, --jq', async () => {
    seed(2);
    expect((await bench.run(['app', 'show', 'web-0', '-o', 'yaml'])).stdout).toContain('name: web-0\n');
    expect((await bench.run(['app', 'list', '-o', 'name'])).stdout).toBe('web-0\nweb-1\n');
    expect((await bench.run(['app', 'list', '--columns', 'created_at,name'])).stdout).toBe(
      '2026-11-21T05:00:00Z\tweb-0\n2026-11-21T05:00:00Z\tweb-1\n',
    );
    expect((await bench.run(['app', 'list', '--jq', '.[].name'])).stdout).toBe('web-0\nweb-1\n');
    expect((await bench.run(['app', 'list', '--jq', 'length'])).stdout).toBe('2\n');
    const wrong = await bench.run(['app', 'list', '--columns', 'nam']);
    expect([wrong.code, wrong.stdout]).toEqual([2, '']);
    expect(wrong.stderr).toContain('Nearest: name');
  });

  test('a wrong filter is exit 2 before anything is sent', async () => {
    const ran = await bench.run(['app', 'list', '--jq', '.[']);
    expect([ran.code, ran.stdout]).toEqual([2, '']);
    expect(ran.stderr).toContain('--jq');
    expect(bench.api.seen).toEqual([]);
  });

  test('one record as a table: field and value, empty fields too', async () => {
    seed(1);
    const shown = Object.fromEntries(rows((await bench.run(['app', 'show', 'web-0'])).stdout));
    expect(shown).toMatchObject({ name: 'web-0', docker_image: '', address: 'https://web-0.apps.localhost' });
    expect(Object.fromEntries(rows((await bench.run(['balance'])).stdout))).toMatchObject({
      available: '100.00',
    });
    expect(rows((await bench.run(['whoami'])).stdout)).toContainEqual(['allow', '* on *']);
  });

  test('a list of 450 is read in pages of 200 and comes whole', async () => {
    seed(450);
    expect(rows((await bench.run(['app', 'list'])).stdout)).toHaveLength(450);
    expect(bench.api.received('GET', /apps$/).map(({ query }) => query['offset'])).toEqual([
      '0',
      '200',
      '400',
    ]);
  });

  test('a list whose size is a multiple of the page asks once more', async () => {
    seed(400);
    expect(await bench.json(['app', 'list'])).toHaveLength(400);
    expect(bench.api.received('GET', /apps$/)).toHaveLength(3);
  });

  test('with -o json an error is the only thing on stderr, also with retries and warnings before it', async () => {
    bench.api.answer('GET', /\/account$/, { status: 503, headers: { 'retry-after': '0' } }, { status: 403 });
    const { code, error } = await bench.error(['whoami']);
    expect([code, error['code']]).toEqual([4, 'code_403']);
    expect(Object.keys(error)).toEqual(expect.arrayContaining(['code', 'message', 'request_id', 'hint']));
    const usage = await bench.error(['app', 'lst']);
    expect([usage.code, usage.error['code'], usage.error['nearest']]).toEqual([2, 'usage', ['ls', 'list']]);
    const early = await bench.run(['-o', 'json', 'app', 'list', '--nonsense']);
    expect(JSON.parse(early.stderr)).toMatchObject({ error: { code: 'usage' } });
  });

  test('--quiet keeps notices back and errors not', async () => {
    const again = { status: 503, headers: { 'retry-after': '0' } };
    bench.api.answer('GET', /\/account$/, again);
    expect((await bench.run(['whoami'])).stderr).toContain('trying again (1 of 3)');
    bench.api.answer('GET', /\/account$/, again);
    expect((await bench.run(['whoami', '-q'])).stderr).toBe('');
    expect((await bench.run(['app', 'show', 'absent', '-q'])).stderr).toContain('error:');
  });

  test('--debug says method, address, status, time and request id, and masks the key', async () => {
    const { stderr } = await bench.run(['whoami', '--debug']);
    expect(stderr).toMatch(
      /debug: GET http:\/\/127\.0\.0\.1:\d+\/v1\/account 200 request req-1 \d+ ms, key nebo_live_…cdef/,
    );
    expect(stderr).not.toContain(bench.api.key);
  });

  test.each(['version', '-o json api --list', '--help'])(
    'an answer that does not fit on the disk is no success: %s',
    (words) => {
      const full = openSync('/dev/full', 'w');
      try {
        const ran = spawnSync(process.execPath, [main(), ...words.split(' ')], {
          cwd: bench.work,
          env: bench.environment(),
          stdio: ['ignore', full, 'pipe'],
          encoding: 'utf8',
        });
        expect([ran.status, ran.stderr]).toEqual([
          1,
          expect.stringMatching(/^error: the answer.*ENOSPC.*\n$/),
        ]);
      } finally {
        closeSync(full);
      }
    },
  );

  test('a closed pipe ends silently', async () => {
    seed(20_000);
    const child = spawn(process.execPath, [main(), 'app', 'list', '-o', 'wide'], {
      env: bench.environment(),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let stderr = '';
    child.stderr.on('data', (chunk) => (stderr += String(chunk)));
    child.stdout.once('data', () => child.stdout.destroy());
    const code = await new Promise((resolve) => child.on('close', resolve));
    expect([code, stderr]).toEqual([0, '']);
  });
});
