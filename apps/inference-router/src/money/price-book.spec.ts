import { HealthRegistry } from '@nebo/service-kit';
import { sharedPostgres } from '@nebo/test-kit';
import { type Router, startGround, startRouter } from '../../test/harness.js';
import { TestClock } from '../../test/money-world.js';
import type { Catalogue } from '../catalogue/catalogue.js';
import { priceId, priceKinds } from '../catalogue/model.js';
import type { Billing } from './billing.js';
import { PriceBook } from './price-book.js';

describe('prices', () => {
  let router: Router;
  afterEach(async () => router?.stop());
  afterAll(async () => (await sharedPostgres()).stop());

  it("503 while prices cannot be read; then the file's prices are set first, and samples where there are none", async () => {
    const ground = await startGround();
    ground.billing.away = /./;
    ground.billing.prices.set('model.glm-5.3.input', {
      id: 'model.glm-5.3.input',
      version: 3,
      amount: '1',
      unit: 'million tokens',
    });
    ground.billing.prices.set('model.glm-5.2.input', {
      id: 'model.glm-5.2.input',
      version: 7,
      amount: '77000000000',
      unit: 'million tokens',
    });
    router = await startRouter({ ground });
    const ask = () => router.chat({ model: 'glm-5.3', messages: [{ role: 'user', content: 'hi' }] });
    const refused = await ask();
    expect(refused.status).toBe(503);
    expect(await refused.json()).toMatchObject({ error: { code: 'billing_unavailable' } });
    ground.billing.away = null;
    const answer = await ask();
    expect(answer.status).toBe(200);
    const { prices } = ground.billing;
    expect(prices.get('model.glm-5.3.input')).toMatchObject({ amount: '60000000000', version: 4 });
    // What the operator set before stays; what has no price gets the sample.
    expect(prices.get('model.glm-5.2.input')).toMatchObject({ amount: '77000000000', version: 7 });
    expect(prices.get('model.glm-5.2.output')).toMatchObject({ amount: '200000000000', version: 1 });
    expect([...ground.billing.holds.values()][0]!.usage).toMatchObject({ price_version: 4 });
    await ground.billing.stop();
    await ground.upstream.stop();
  });
});

describe('prices in memory', () => {
  it('are as old as a clock says that nobody sets: with a date that was set back they are read anew all the same', async () => {
    const clock = new TestClock();
    let [version, away] = [1, false];
    const read = () => {
      if (away) return Promise.reject(new Error('away'));
      const one = { version, amount: '1', unit: 'million tokens' };
      return Promise.resolve(priceKinds.map((kind) => ({ ...one, id: priceId('m', kind) })));
    };
    const book = new PriceBook(
      { prices: read } as unknown as Billing,
      { all: [{ model: { id: 'm' } }], priceOverrides: new Map() } as unknown as Catalogue,
      clock,
      {} as never,
      new HealthRegistry(),
    );
    const { now } = Date;
    try {
      expect(await book.of('m')).toMatchObject({ version: 1 });
      Date.now = () => now() - 3_600_000;
      version = 2;
      clock.ms += 60_001;
      expect(await book.of('m')).toMatchObject({ version: 2 });
      away = true;
      clock.ms += 60_001;
      await expect(book.of('m')).rejects.toMatchObject({ status: 503, code: 'billing_unavailable' });
    } finally {
      Date.now = now;
    }
  });
});
