import { MemoryRateLimiter } from './rate-limiter.js';

describe('the counter of one process', () => {
  it('forgets windows that are over, never one that is counted in, however many there are', () => {
    let now = 1_000_000;
    const limiter = new MemoryRateLimiter(2, 60, () => now);
    for (let key = 0; key < 60_000; key += 1) limiter.take(`key-${key}`);
    expect(limiter.take('key-0')).toMatchObject({ allowed: true, remaining: 0 });
    expect(limiter.take('key-0')).toMatchObject({ allowed: false });
    for (let key = 60_000; key < 130_000; key += 1) limiter.take(`key-${key}`);
    expect(limiter.take('key-0')).toMatchObject({ allowed: false });
    now += 60_000;
    expect(limiter.take('key-0')).toMatchObject({ allowed: true, remaining: 1 });
    for (let key = 0; key < 130_000; key += 1) limiter.take(`next-${key}`);
    const { size } = (limiter as unknown as { windows: Map<string, unknown> }).windows;
    expect(size).toBeLessThanOrEqual(200_000);
  });
});
