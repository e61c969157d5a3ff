import { randomUUID } from 'node:crypto';
import { type UsageProducer, type UsageRecord, UsageRelay } from '@nebo/bus';
import { type Billing, nano, startBilling } from '../../test/billing.js';
import { UsageTable } from './usage-export.js';

describe('usage records', () => {
  let billing: Billing;
  beforeAll(async () => {
    // Nobody answers there: the export must be a state, not a failure.
    billing = await startBilling({ NEBO_KAFKA_BROKERS: '127.0.0.1:1' });
  });
  afterAll(() => billing?.close());

  it('brokers that are away are shown in health and required by nothing', async () => {
    const { status, body } = await billing.nebo.request('identity-billing', { path: '/healthz', as: null });
    expect(status).toBe(200);
    expect(body.parts).toContainEqual(expect.objectContaining({ name: 'kafka', ok: false, required: false }));
  });

  it('each capture with facts leaves one record, which is exported with its id at least once', async () => {
    const { account_id } = await billing.account('1000');
    const { id: key_id } = (await billing.admin('inference-key-create', { account: account_id })).body;
    const usage = {
      kind: 'inference',
      model: 'glm-5.3',
      price_version: 1,
      input_tokens: 1000,
      cached_tokens: 10,
      output_tokens: 50,
    };
    const ids = [1, 2, 3].map(() => randomUUID());
    for (const operation_id of ids) {
      const call = { operation_id, account_id };
      await billing.money('reserve', {
        ...call,
        kind: 'inference',
        key_id,
        amount: nano(1),
        description: 'glm-5.3',
      });
      await billing.money('capture', { ...call, amount: nano(0.25), usage });
      await billing.money('capture', { ...call, amount: nano(0.25), usage });
    }
    const sent: UsageRecord[] = [];
    let failures = 1;
    const producer: UsageProducer = {
      connect: async () => undefined,
      disconnect: async () => undefined,
      send: async (records) => {
        if (failures-- > 0) throw new Error('broker away');
        sent.push(...records);
      },
    };
    const relay = new UsageRelay(
      billing.nebo.services.get('identity-billing')!.app.get(UsageTable),
      producer,
      { pollMs: 20, backoff: { baseMs: 5, maxMs: 5 } },
    );
    relay.start();
    for (let waited = 0; sent.length < 3 && waited < 100; waited += 1)
      await new Promise((resolve) => setTimeout(resolve, 50));
    await new Promise((resolve) => setTimeout(resolve, 60));
    await relay.stop();
    expect(sent.map(({ payload }) => payload['operation_id'])).toEqual(ids);
    expect(sent[0]).toEqual({
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      account: account_id,
      payload: { ...usage, operation_id: ids[0], amount: nano(0.25), time: expect.any(String) },
    });
    expect(
      await billing.sql(
        'select model, key_id::text from usage_record where sent_at is not null group by 1, 2',
      ),
    ).toEqual([{ model: 'glm-5.3', key_id }]);
  });
});
