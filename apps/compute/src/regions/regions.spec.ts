import type { ServiceIdentity } from '@nebo/contracts';
import { startServices, type TestProcess } from '@nebo/service-kit/testing';
import { freshDatabase, sharedPostgres } from '@nebo/test-kit';
import { compute } from '../compute.module.js';

const gateway: ServiceIdentity = { kind: 'service', service: 'api-gateway', account_id: null };

describe('regions', () => {
  let nebo: TestProcess;
  const call = (method: string, path: string, body?: unknown, as: ServiceIdentity | null = gateway) =>
    nebo.request('compute', { method, path: `/internal/v1/${path}`, as, body });

  beforeAll(async () => {
    nebo = await startServices({ databaseUrl: await freshDatabase(), definitions: [compute] });
  });
  afterAll(async () => {
    await nebo?.close();
    await (await sharedPostgres()).stop();
  });

  it('has a default region from the start; 201 adds one, 409 for a taken name, 422 for a bad one', async () => {
    expect((await call('GET', 'regions')).body).toMatchObject([{ name: 'local', is_default: true }]);
    expect(await call('POST', 'operator/regions', { name: 'far' })).toMatchObject({
      status: 201,
      body: { is_default: false },
    });
    expect(await call('POST', 'operator/regions', { name: 'local' })).toMatchObject({
      status: 409,
      body: { error: { code: 'name_taken' } },
    });
    expect(await call('POST', 'operator/regions', { name: 'No Spaces' })).toMatchObject({
      status: 422,
      body: { error: { code: 'validation_error' }, detail: [{ loc: ['body', 'name'] }] },
    });
    expect((await call('GET', 'regions')).body.map((region: { name: string }) => region.name)).toEqual([
      'local',
      'far',
    ]);
  });

  it('a token resolves to its region, and a newer agent raises the epoch', async () => {
    const [region] = (await call('GET', 'regions')).body;
    const { token } = (await call('POST', `operator/regions/${region.id}/token`)).body;
    const before = (await call('POST', 'agents/resolve', { token })).body;
    expect(before).toEqual({ region_id: region.id, epoch: 1 });
    expect((await call('POST', `agents/${region.id}/take-over`)).body).toEqual({
      region_id: region.id,
      epoch: 2,
    });
    expect((await call('POST', 'agents/resolve', { token })).body.epoch).toBe(2);
    expect((await call('POST', 'agents/resolve', { token: `${token}x` })).status).toBe(404);
    for (const path of ['operator/regions/banana/token', 'agents/banana/take-over'])
      expect((await call('POST', path)).status).toBe(404);
  });

  it('401 without a signed identity, also with one of another door', async () => {
    expect((await call('GET', 'regions', undefined, null)).status).toBe(401);
    const forged = await nebo.request('compute', {
      path: '/internal/v1/regions',
      as: null,
      headers: { 'x-nebo-identity': 'e30.AAAA' },
    });
    expect(forged).toMatchObject({ status: 401, body: { error: { code: 'unauthorized' } } });
  });

  it('404 unknown_operation for unknown paths, 400 for broken JSON, 415 for another type, 413 for too much', async () => {
    expect((await call('GET', 'nothing')).body).toMatchObject({ error: { code: 'unknown_operation' } });
    const post = (payload: string, type: string) =>
      nebo.request('compute', {
        method: 'POST',
        path: '/internal/v1/operator/regions',
        as: gateway,
        body: Buffer.from(payload),
        headers: { 'content-type': type },
      });
    expect((await post('{"name":', 'application/json')).status).toBe(400);
    expect((await post('name=x', 'text/plain')).status).toBe(415);
    expect((await post(JSON.stringify({ name: 'x'.repeat(2_000_000) }), 'application/json')).status).toBe(
      413,
    );
    expect((await post('', 'application/json')).body).toMatchObject({
      detail: [{ loc: ['body'], type: 'missing' }],
    });
  });
});
