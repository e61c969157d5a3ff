import { Breaker, breakerDefaults } from './breaker.js';
import { Deadline, Deadlines } from './deadlines.js';

const hour = 3_600_000;
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** Somebody sets the date of the host: what is under way must not notice. */
describe('a date that is set', () => {
  const { now } = Date;
  let shift = 0;
  const set = (by: number) => (shift = by);
  beforeEach(() => {
    shift = 0;
    Date.now = () => now() + shift;
  });
  afterEach(() => {
    Date.now = now;
  });

  it('forward: no answer is cut off for a silence that was none', async () => {
    const deadlines = new Deadlines();
    const late: number[] = [];
    deadlines.watch(new Deadline(60_000, (limit) => void late.push(limit)));
    set(hour);
    await pause(400);
    deadlines.onModuleDestroy();
    expect(late).toEqual([]);
  });

  it('back: who is silent is cut off in time, and a stream gets its signs of life', async () => {
    const deadlines = new Deadlines();
    const late: number[] = [];
    deadlines.watch(new Deadline(100, (limit) => void late.push(limit)));
    set(-hour);
    await pause(700);
    deadlines.onModuleDestroy();
    expect(late).toEqual([100]);
  });

  it('back: an upstream is left alone for its pause, and no hour longer', async () => {
    const breaker = new Breaker({ ...breakerDefaults, failures: 1, firstPause: 50, longestPause: 50 });
    breaker.enter()!.failed();
    expect(breaker.enter()).toBeNull();
    set(-hour);
    await pause(80);
    expect(breaker.enter()).not.toBeNull();
  });
});
