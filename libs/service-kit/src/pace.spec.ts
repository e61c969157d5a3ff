import { Pace } from './pace.js';

describe('the pace of news', () => {
  const took = async (work: () => Promise<void>) => {
    const from = performance.now();
    await work();
    return performance.now() - from;
  };

  it('who was told little goes on at once, who was told much waits, and only that one', async () => {
    const pace = new Pace();
    pace.tell('busy', 3);
    const [busy, other] = await Promise.all([took(() => pace.wait('busy')), took(() => pace.wait('other'))]);
    expect(busy).toBeGreaterThanOrEqual(70);
    expect(other).toBeLessThan(busy);
    // Meanwhile the time is over.
    expect(await took(() => pace.wait('busy'))).toBeLessThan(busy);
  });

  it('what is known to be there is gathered for a moment in any case', async () => {
    expect(await took(() => new Pace().gather('anybody'))).toBeGreaterThanOrEqual(18);
  });

  it('however much it was, it waits no longer than a tenth of a second', async () => {
    const pace = new Pace();
    pace.tell('busy', 1_000_000);
    expect(await took(() => pace.wait('busy'))).toBeLessThan(5_000);
  });
});
