import { Bench, rows } from './nebo.js';

describe('nebo doctor', () => {
  let bench: Bench;
  beforeEach(async () => (bench = await Bench.start()));
  afterEach(() => bench.stop());

  const states = async (args: string[] = [], env = {}) => {
    const ran = await bench.run(['doctor', ...args], { env });
    return {
      code: ran.code,
      stderr: ran.stderr,
      checks: Object.fromEntries(rows(ran.stdout).map(([check, state]) => [check, state])),
    };
  };

  test('all in order', async () => {
    expect(await states()).toMatchObject({
      code: 0,
      checks: { address: 'ok', clock: 'ok', proxy: 'ok', key: 'ok', rights: 'ok' },
    });
  });

  test('no key, a refused key, an empty policy', async () => {
    expect(await states([], { NEBO_API_KEY: undefined })).toMatchObject({
      code: 3,
      checks: { address: 'ok', key: 'bad' },
    });
    const refused = await states([], { NEBO_API_KEY: 'nebo_live_somethingwrong' });
    expect(refused).toMatchObject({ code: 3, checks: { key: 'bad' } });
    bench.api.account.policy = [];
    expect(await states()).toMatchObject({ code: 4, checks: { key: 'ok', rights: 'bad' } });
  });

  test('nobody there, not ready, a wrong clock', async () => {
    expect(await states(['--api-url', 'http://127.0.0.1:1'])).toMatchObject({
      code: 9,
      checks: { address: 'bad', clock: 'skipped', key: 'skipped' },
    });
    bench.api.answer('GET', /healthz/, { status: 503 });
    expect(await states()).toMatchObject({ code: 9, checks: { address: 'bad', key: 'ok' } });
    bench.api.answer('GET', /healthz/, {
      status: 200,
      headers: { date: new Date(Date.now() - 3_600_000).toUTCString() },
    });
    const clock = await states();
    expect(clock).toMatchObject({ code: 1, checks: { clock: 'bad' } });
    expect(clock.stderr).toContain('clock');
  });
});
