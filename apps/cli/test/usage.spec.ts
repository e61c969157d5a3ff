import { usage } from './fake-api.js';
import { Bench, rows } from './nebo.js';

describe('usage', () => {
  let bench: Bench;
  beforeEach(async () => (bench = await Bench.start()));
  afterEach(() => bench.stop());

  const asked = () => bench.api.received('GET', /\/usage$/).at(-1)!.query;
  const key = usage.rows[0]!.key_id;

  test('rows for programs, the sum on stderr', async () => {
    const { code, stdout, stderr } = await bench.run(['usage', '--by', 'model,key']);
    expect(code).toBe(0);
    expect(rows(stdout)).toEqual([
      ['glm-5.3', key, '2', '2000', '800', '1000', '0.3216'],
      ['kimi-k3', key, '2', '2000', '800', '1000', '0.10'],
    ]);
    expect(stderr).toBe('2026-11-15 to 2026-11-21: 0.4216 rubles for 4 requests.\n');
    expect(asked()).toEqual({ by: 'model,key', tz: 'UTC' });
    expect((await bench.run(['usage', '-q', '--by', 'model', '-o', 'name'])).stdout).toBe(
      'glm-5.3\nkimi-k3\n',
    );
    expect(rows((await bench.run(['usage', '-o', 'wide'])).stdout)[0]).toContain('7');
  });

  test('json is the report as it came, with totals', async () => {
    expect(await bench.json(['usage'])).toEqual(usage);
    expect(asked()).toEqual({ by: 'day', tz: 'UTC' });
    expect((await bench.run(['usage', '--jq', '.totals.amount'])).stdout).toBe('0.4216\n');
  });

  test('--since counts days back from today, today among them, or names the first', async () => {
    const day = (ago: number) => new Date(Date.now() - ago * 86_400_000).toISOString().slice(0, 10);
    const before = day(6);
    await bench.run(['usage', '--since', '7d']);
    expect([before, day(6)]).toContain(asked()['from']);
    await bench.run(['usage', '--since', '2026-11-01', '--tz', 'Europe/Moscow']);
    expect(asked()).toMatchObject({ from: '2026-11-01', tz: 'Europe/Moscow' });
  });

  test('--model and --key narrow it', async () => {
    await bench.run(['usage', '--model', 'glm-5.3', '--key', key]);
    expect(asked()).toMatchObject({ model: 'glm-5.3', key_id: key });
  });

  test.each([
    [['--by', 'app'], '--by takes day, model, key'],
    [['--by', ''], '--by takes day, model, key'],
    [['--apps', '--model', 'x'], '--apps goes with neither'],
    [['--since', '7'], '--since is a number of days'],
    [['--since', '0d'], '--since is a number of days'],
    [['--since', '400d'], '--since is a number of days'],
    [['--since', '7d', '--tz', 'Moon/Base'], '--tz is a time zone'],
  ])('%j is exit 2 and sends nothing', async (words, says) => {
    const ran = await bench.run(['usage', ...words]);
    expect([ran.code, ran.stdout]).toEqual([2, '']);
    expect(ran.stderr).toContain(says);
    expect(bench.api.received('GET', /usage/)).toEqual([]);
  });

  test('--apps shows apps on demand, and what is left of the plan', async () => {
    const app = '0a0a0a0a-0000-4000-8000-00000000000a';
    const sums = { included_cpu_seconds: '3', included_memory_gb_hours: '0', free_hours: 2, amount: '1.25' };
    const used = { active_cpu_seconds: '12.5', memory_gb_hours: '0.25', ...sums };
    const hours = { included: '4', used: '1', left: '3' };
    const body = {
      ...usage,
      apps: { rows: [{ day: '2026-11-20', app_id: app, kind: 'run', ...used }], totals: used },
      allowance: { plan: 'free', month: '2026-11', active_cpu_hours: hours, memory_gb_hours: hours },
    };
    for (let times = 0; times < 3; times += 1) bench.api.answer('GET', /\/usage$/, { status: 200, body });
    const { stdout, stderr } = await bench.run(['usage', '--apps', '--app', app]);
    expect(rows(stdout)).toEqual([['2026-11-20', app, 'run', '12.5', '0.25', '1.25']]);
    expect(stderr).toBe(
      '2026-11-15 to 2026-11-21: 1.25 rubles for apps on demand.\n' +
        'Left of plan free in 2026-11: 3 of 4 hours of Active CPU, 3 of 4 GB-hours.\n' +
        '2 hours were not measured, so they are free.\n',
    );
    expect(asked()).toMatchObject({ app_id: app });
    expect(rows((await bench.run(['usage', '--apps', '--by', 'model'])).stdout)[0]![0]).toBe(app);
    // Who looks at models hears of apps.
    expect((await bench.run(['usage'])).stderr).toContain(
      'Apps on demand: 1.25 rubles, see nebo usage --apps.\n',
    );
  });

  test('no right to see money is exit 4', async () => {
    bench.api.answer('GET', /\/usage$/, { status: 403 });
    expect((await bench.error(['usage'])).code).toBe(4);
  });
});
