import { sharedPostgres } from '@nebo/test-kit';
import { type Router, startRouter } from '../../test/harness.js';

describe('GET /v1/models', () => {
  let router: Router;
  beforeAll(async () => void (router = await startRouter({ config: null })));
  afterAll(async () => {
    await router?.stop();
    await (await sharedPostgres()).stop();
  });
  const get = (path: string, as: Parameters<Router['nebo']['request']>[1]['as'] = null) =>
    router.nebo.request('inference-router', { path, as });

  it('200 without a key: eleven models with exact sizes and abilities, no prices, and the word that they are simulated', async () => {
    const answer = await get('/v1/models');
    expect(answer.status).toBe(200);
    expect(answer.headers['x-nebo-simulated']).toBe('true');
    expect(answer.body.object).toBe('list');
    expect(answer.text).not.toMatch(/price|rub|input/i);
    const rows = answer.body.data.map((model: Record<string, never>) => {
      const { tools, vision, reasoning } = model['capabilities'] as unknown as Record<string, boolean>;
      expect(model).toMatchObject({ object: 'model', owned_by: expect.stringContaining('simulated') });
      return [
        model['id'],
        model['context_window'],
        model['max_output_tokens'],
        [tools && 'tools', vision && 'vision', reasoning && 'reasoning'].filter(Boolean).join(),
      ];
    });
    expect(rows).toEqual([
      ['glm-5.3', 1_048_576, 131_072, 'tools,reasoning'],
      ['glm-5.2', 1_048_576, 128_000, 'tools'],
      ['kimi-k3', 1_048_576, 262_144, 'tools,vision,reasoning'],
      ['qwen3.8-max', 1_048_576, 131_072, 'tools,vision,reasoning'],
      ['deepseek-v4-pro', 1_048_576, 393_216, 'tools,reasoning'],
      ['mimo-v2.6-pro', 1_048_576, 131_072, 'tools,vision,reasoning'],
      ['minimax-m3', 512_000, 512_000, 'tools,reasoning'],
      ['qwen3-coder-next', 262_144, 65_536, 'tools'],
      ['glm-5v-turbo', 202_752, 131_072, 'tools,vision,reasoning'],
      ['deepseek-v4.1-flash', 1_048_576, 393_216, 'tools,vision,reasoning'],
      ['mimo-v2.6-flash', 1_048_576, 131_072, 'tools,vision,reasoning'],
    ]);
  });

  it('one model: 200 with a key, 404 for an unknown one, 401 without', async () => {
    expect(await get('/v1/models/kimi-k3', router.identity)).toMatchObject({
      status: 200,
      body: { id: 'kimi-k3' },
    });
    expect(await get('/v1/models/gpt-4', router.identity)).toMatchObject({
      status: 404,
      body: { error: { type: 'not_found_error', code: 'model_not_found' } },
    });
    expect((await get('/v1/models/kimi-k3')).status).toBe(401);
  });
});
