import { sharedPostgres } from '@nebo/test-kit';
import type { ServiceIdentity } from '@nebo/contracts';
import { type Ground, type Router, startGround, startRouter, until } from '../../test/harness.js';

const operator: ServiceIdentity = { kind: 'service', service: 'operator', account_id: null };

describe('models that the operator withdraws', () => {
  let ground: Ground;
  let router: Router;
  let other: Router;
  beforeAll(async () => {
    ground = await startGround();
    router = await startRouter({ ground });
    other = await startRouter({ ground });
  });
  afterAll(async () => {
    await router?.stop();
    await other?.stop();
    await ground?.billing.stop();
    await ground?.upstream.stop();
    await (await sharedPostgres()).stop();
  });

  const command = (verb: string, body?: object, as: object | null = operator) =>
    router.nebo.request('inference-router', {
      method: body ? 'POST' : 'GET',
      path: `/internal/v1/operator/models${verb}`,
      as: as as never,
      ...(body ? { body } : {}),
    });
  const ids = async (of: Router) => {
    const { body } = await of.nebo.request('inference-router', { path: '/v1/models', as: null });
    return (body as { data: { id: string }[] }).data.map(({ id }) => id);
  };
  const ask = (of: Router, body: object = {}) =>
    of.chat({ model: 'glm-5.3', messages: [{ role: 'user', content: 'hi' }], ...body });

  it('are gone from the list and 404, in every replica; what runs finishes and is paid; a repeat changes nothing', async () => {
    router.upstream.next({ chunks: ['a', 'b', 'c'], chunkDelay: 150 });
    const running = await ask(router, { stream: true });
    expect(await command('/withdraw', { model: 'glm-5.3' })).toMatchObject({
      status: 200,
      body: { model: 'glm-5.3', offered: false },
    });
    expect((await command('/withdraw', { model: 'glm-5.3' })).status).toBe(200);
    expect(await ids(router)).not.toContain('glm-5.3');
    const refused = await ask(router);
    expect(refused.status).toBe(404);
    expect(await refused.json()).toMatchObject({ error: { code: 'model_not_found' } });
    expect(await running.text()).toContain('[DONE]');
    // The other replica has missed the hint (its bus is its own) and looks again by itself.
    await until(async () => !(await ids(other)).includes('glm-5.3'), 'the other replica looks again', 20_000);
    expect(await router.rows("select 1 from outbox where subject like '%audit.written%'")).toHaveLength(1);
    const listed = (await command('')).body as { data: Record<string, unknown>[] };
    expect(listed.data).toHaveLength(10);
    expect(listed.data.find(({ id }) => id === 'glm-5.3')).toMatchObject({
      offered: false,
      withdrawn_at: expect.stringMatching(/^\d{4}-/),
      prices: { input: '60.00', cache_read: '12.00', output: '240.00' },
    });
  });

  it('stay withdrawn over a restart, and are sold again when offered', async () => {
    const later = await startRouter({ ground });
    expect(await ids(later)).not.toContain('glm-5.3');
    await later.stop();
    expect((await command('/offer', { model: 'glm-5.3' })).status).toBe(200);
    expect(await ids(router)).toContain('glm-5.3');
    expect((await ask(router)).status).toBe(200);
  });

  it('404 for a model that there is not, 422 without one, 401 for keys', async () => {
    expect((await command('/withdraw', { model: 'gpt-4' })).status).toBe(404);
    expect((await command('/withdraw', {})).status).toBe(422);
    expect((await command('/withdraw', { model: 'glm-5.2' }, router.identity)).status).toBe(401);
    expect(await ids(router)).toContain('glm-5.2');
  });
});
