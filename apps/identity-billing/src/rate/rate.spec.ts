import { randomUUID } from 'node:crypto';
import { Database } from '@nebo/persistence';
import { type Billing, startBilling } from '../../test/billing.js';
import { Chance } from '../../test/random.js';
import { RateService } from './rate.service.js';

describe('rate windows', () => {
  let billing: Billing;
  let database: Database;
  beforeAll(async () => {
    billing = await startBilling();
    database = new Database({
      url: billing.nebo.runtime.databaseUrl('identity_billing'),
      schema: 'identity_billing',
      max: 16,
    });
  });
  afterAll(async () => {
    await database?.close();
    await billing?.close();
  });

  const now = Math.floor(Date.now() / 1000);

  it('200 grants blocks until the quota is used up; another window and another key have their own', async () => {
    const lease = async (key_id: string, want: number, window_start = now) =>
      (await billing.internal('POST', 'rate/lease', { key_id, window_start, quota: 100, want })).body;
    const key = randomUUID();
    expect(await lease(key, 60)).toEqual({ granted: 60 });
    expect(await lease(key, 60)).toEqual({ granted: 40 });
    expect(await lease(key, 1)).toEqual({ granted: 0 });
    expect(await lease(key, 1, now + 60)).toEqual({ granted: 1 });
    expect(await lease(randomUUID(), 500)).toEqual({ granted: 100 });
    for (const wrong of [{ want: 0 }, { quota: -1 }, { key_id: '' }, { window_start: '5' }]) {
      const body = { key_id: key, window_start: now, quota: 1, want: 1, ...wrong };
      expect((await billing.internal('POST', 'rate/lease', body)).status).toBe(422);
    }
  });

  it('64 gateways at once get exactly the quota', async () => {
    const rate = new RateService(database);
    const chance = new Chance(1);
    for (let round = 0; round < 5; round += 1) {
      const key_id = randomUUID();
      const asked = Array.from({ length: 64 }, () =>
        rate.lease({ key_id, window_start: now, quota: 1_200, want: chance.int(1, 60) }),
      );
      expect((await Promise.all(asked)).reduce((sum, granted) => sum + granted, 0)).toBe(1_200);
    }
  });

  it('a quota that was lowered takes nothing back and grants nothing more', async () => {
    const rate = new RateService(database);
    const key_id = randomUUID();
    expect(await rate.lease({ key_id, window_start: now, quota: 100, want: 90 })).toBe(90);
    expect(await rate.lease({ key_id, window_start: now, quota: 50, want: 10 })).toBe(0);
    expect(await rate.lease({ key_id, window_start: now, quota: 100, want: 20 })).toBe(10);
  });

  it('old windows are forgotten, present ones are not', async () => {
    const rate = new RateService(database);
    const key_id = randomUUID();
    await rate.lease({ key_id, window_start: now - 1_000, seconds: 60, quota: 5, want: 5 });
    await rate.lease({ key_id, window_start: now, seconds: 60, quota: 5, want: 5 });
    expect(await rate.prune()).toBeGreaterThanOrEqual(1);
    expect(await rate.lease({ key_id, window_start: now, seconds: 60, quota: 5, want: 5 })).toBe(0);
    expect(
      await billing.sql('select window_start from rate_window where key_id = $1', [key_id]),
    ).toHaveLength(1);
  });
});
