import { Bench } from './nebo.js';

describe('retries', () => {
  let bench: Bench;
  beforeEach(async () => {
    bench = await Bench.start();
    bench.api.project('shop');
  });
  afterEach(() => bench.stop());

  const again = (status: number) => ({ status, headers: { 'retry-after': '0' } });
  const creates = () => bench.api.received('POST', /\/apps$/);

  test('a POST is repeated with the same Idempotency-Key, and every POST has its own', async () => {
    bench.api.answer('POST', /\/apps$/, again(503), again(502));
    expect((await bench.run(['app', 'create', 'web'])).code).toBe(0);
    const keys = creates().map(({ headers }) => headers['idempotency-key']);
    expect(keys).toHaveLength(3);
    expect(keys[0]).toMatch(/^[0-9a-f-]{36}$/);
    expect(new Set(keys).size).toBe(1);
    expect((await bench.run(['app', 'create', 'other'])).code).toBe(0);
    expect(creates().at(-1)!.headers['idempotency-key']).not.toBe(keys[0]);
    expect(bench.api.apps).toHaveLength(2);
  });

  test('a POST whose connection broke is repeated with the same key', async () => {
    bench.api.answer('POST', /\/apps$/, 'break');
    const ran = await bench.run(['app', 'create', 'web']);
    expect(ran.code).toBe(0);
    expect(ran.stderr).toMatch(/ECONNRESET.*trying again \(1 of 3\)/);
    expect(creates()).toHaveLength(1);
  });

  test('409 with Retry-After: the first try is still at work', async () => {
    bench.api.answer('POST', /\/apps$/, {
      ...again(409),
      body: { error: { code: 'idempotency_in_progress', message: 'Wait.' } },
    });
    expect((await bench.run(['app', 'create', 'web'])).code).toBe(0);
    expect(creates()).toHaveLength(2);
  });

  test.each([502, 503, 504])('GET after %i, three times, then exit 9', async (status) => {
    bench.api.answer('GET', /\/account$/, again(status), again(status), again(status));
    expect((await bench.run(['whoami'])).code).toBe(0);
    bench.api.answer('GET', /\/account$/, ...Array.from({ length: 4 }, () => again(status)));
    expect((await bench.run(['whoami'])).code).toBe(9);
    expect(bench.api.received('GET', /account/)).toHaveLength(8);
  });

  test('500 is final: it is stored for the key and would come again', async () => {
    bench.api.answer('POST', /\/apps$/, { status: 500 });
    expect((await bench.run(['app', 'create', 'web'])).code).toBe(9);
    expect(creates()).toHaveLength(1);
  });

  test('Retry-After is obeyed', async () => {
    bench.api.answer('GET', /\/account$/, { status: 429, headers: { 'retry-after': '1' } });
    const began = Date.now();
    expect((await bench.run(['whoami'])).code).toBe(0);
    expect(Date.now() - began).toBeGreaterThanOrEqual(1000);
  });

  test('DELETE and PATCH are not repeated after 503, but after 429', async () => {
    const app = bench.api.app('web', bench.api.projects[0]!);
    bench.api.answer('PATCH', /apps/, again(503));
    expect((await bench.run(['api', '-X', 'PATCH', `/apps/${app.id}`, '-F', 'replica_count=1'])).code).toBe(
      9,
    );
    bench.api.answer('PATCH', /apps/, again(429));
    expect((await bench.run(['api', '-X', 'PATCH', `/apps/${app.id}`, '-F', 'replica_count=1'])).code).toBe(
      0,
    );
    expect(bench.api.received('PATCH', /apps/)).toHaveLength(3);
    expect(bench.api.received('PATCH', /apps/)[0]!.headers['idempotency-key']).toBeUndefined();
  });
});
