import { randomUUID } from 'node:crypto';
import { leaseFrom, LeasedRateLimiter } from '@nebo/api-gateway';
import { identityBilling } from '@nebo/identity-billing';
import { Database } from '@nebo/persistence';
import { Peers } from '@nebo/service-kit';
import { startServices, type TestProcess } from '@nebo/service-kit/testing';
import { freshDatabase, sharedPostgres } from '@nebo/test-kit';

/** Three gateways, each with blocks of its own, over the counter of the real identity-billing. */
describe('the limit of a key over three gateways', () => {
  let nebo: TestProcess;
  beforeAll(async () => {
    nebo = await startServices({ databaseUrl: await freshDatabase(), definitions: [identityBilling] });
  }, 60_000);
  afterAll(async () => {
    await nebo?.close();
    await (await sharedPostgres()).stop();
  });

  /** Three limiters at one moment, and what their leases failed with: a counter that is away lets requests pass. */
  function gateways(quota: number, seconds: number, now: number) {
    const peers = new Peers(nebo.runtime, 'api-gateway');
    const lease = leaseFrom(peers, quota, seconds);
    const faults: unknown[] = [];
    const limiters = [1, 2, 3].map(
      () =>
        new LeasedRateLimiter(
          quota,
          seconds,
          (key, start, want) =>
            lease(key, start, want).catch((error: unknown) => {
              faults.push(error);
              throw error;
            }),
          () => now,
        ),
    );
    return { limiters, faults };
  }

  it.each([1, 7, 100, 1_200])('admits exactly %i of many more at once', async (quota) => {
    const now = Date.now();
    const { limiters, faults } = gateways(quota, 60, now);
    const key = randomUUID();
    const asked = Array.from({ length: quota * 2 + 30 }, (_, number) => limiters[number % 3]!.take(key));
    const states = await Promise.all(asked);
    expect(faults).toEqual([]);
    expect(states.filter((state) => state.allowed)).toHaveLength(quota);
    for (const limiter of limiters) expect(await limiter.take(key)).toMatchObject({ allowed: false });
    // Another key has its own quota, and so has the next window.
    expect(await limiters[0]!.take(randomUUID())).toMatchObject({ allowed: true });
    const later = gateways(quota, 60, now + 60_000);
    expect(await later.limiters[1]!.take(key)).toMatchObject({ allowed: true });
  });

  it('one by one, uneven over the gateways, loses at most a block with a gateway that vanishes', async () => {
    const quota = 100;
    const { limiters, faults } = gateways(quota, 60, Date.now());
    const key = randomUUID();
    let admitted = 0;
    for (let number = 0; number < 10; number += 1) if ((await limiters[2]!.take(key)).allowed) admitted += 1;
    // The third is gone now; the first two go on.
    for (let number = 0; number < 300; number += 1)
      if ((await limiters[number % 7 === 0 ? 1 : 0]!.take(key)).allowed) admitted += 1;
    expect(faults).toEqual([]);
    expect(admitted).toBeLessThanOrEqual(quota);
    expect(admitted).toBeGreaterThanOrEqual(quota - 2 * (quota / 20));
  });

  it('tells the counter how long the window is, so that it is forgotten soon after', async () => {
    const { limiters } = gateways(5, 60, Date.now());
    const key = randomUUID();
    await limiters[0]!.take(key);
    const url = nebo.runtime.databaseUrl('identity_billing');
    const database = new Database({ url, schema: 'identity_billing' });
    const [row] = await database.query<{ seconds: number }>(
      'select extract(epoch from expires_at)::float8 - window_start as seconds from rate_window where key_id = $1',
      [key],
    );
    await database.close();
    expect(row).toEqual({ seconds: 120 });
  });
});
