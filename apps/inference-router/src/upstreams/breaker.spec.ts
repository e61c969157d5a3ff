import { Breaker, breakerDefaults, type BreakerState, type Pass } from './breaker.js';

/** A breaker on a clock that is moved by hand; `random` 1 makes every pause whole. */
function make(more: Partial<typeof breakerDefaults> = {}, random = () => 1) {
  const clock = { now: 1_000_000 };
  const states: BreakerState[] = [];
  const breaker = new Breaker(
    { ...breakerDefaults, ...more },
    (state) => states.push(state),
    () => clock.now,
    random,
  );
  const pass = (): Pass => breaker.enter() ?? fail();
  return { breaker, clock, states, pass };
}

function fail(): never {
  throw new Error('the breaker let nothing through');
}

describe('the breaker of a route', () => {
  it('opens after five failures in a row; a success in between begins anew', () => {
    const { breaker, pass } = make();
    for (let index = 0; index < 4; index += 1) pass().failed();
    pass().succeeded();
    for (let index = 0; index < 4; index += 1) pass().failed();
    expect(breaker.state).toBe('closed');
    pass().failed();
    expect(breaker.state).toBe('open');
    expect(breaker.enter()).toBeNull();
  });

  it('opens when half of at least twenty results in a while are failures', () => {
    const { breaker, clock, pass } = make();
    for (let index = 0; index < 9; index += 1) {
      pass().succeeded();
      pass().failed();
    }
    expect(breaker.state).toBe('closed');
    clock.now += breakerDefaults.windowMs + 1;
    // The window is over: what was counted is forgotten.
    pass().succeeded();
    pass().failed();
    expect(breaker.state).toBe('closed');
    for (let index = 0; index < 9; index += 1) {
      pass().succeeded();
      if (breaker.state === 'closed') pass().failed();
    }
    expect(breaker.state).toBe('open');
  });

  it('lets one request probe after its pause, and closes when that one is answered', () => {
    const { breaker, clock, states, pass } = make();
    pass().failed(true);
    expect(breaker.retryAt).toBe(clock.now + 1_000);
    clock.now += 999;
    expect(breaker.enter()).toBeNull();
    clock.now += 1;
    expect(breaker.retryAt).toBe(0);
    const probe = pass();
    expect(breaker.state).toBe('half_open');
    expect(breaker.enter()).toBeNull();
    expect(breaker.retryAt).toBeGreaterThan(clock.now);
    probe.succeeded();
    pass().succeeded();
    pass().succeeded();
    expect(states).toEqual(['open', 'half_open', 'closed']);
  });

  it('waits longer with each probe that fails, up to a minute, spread by chance', () => {
    const { breaker, clock, pass } = make();
    const pauses: number[] = [];
    pass().failed(true);
    for (let index = 0; index < 9; index += 1) {
      pauses.push((breaker.retryAt - clock.now) / 1_000);
      clock.now = breaker.retryAt;
      pass().failed();
    }
    expect(pauses).toEqual([1, 2, 4, 8, 16, 32, 60, 60, 60]);
    const early = make({}, () => 0);
    early.pass().failed(true);
    expect(early.breaker.retryAt - early.clock.now).toBe(500);
  });

  it('begins with a short pause again once it was well', () => {
    const { breaker, clock, pass } = make();
    pass().failed(true);
    clock.now = breaker.retryAt;
    pass().failed();
    clock.now = breaker.retryAt;
    pass().succeeded();
    pass().failed(true);
    expect(breaker.retryAt - clock.now).toBe(1_000);
  });

  it('stays away for as long as the vendor asks', () => {
    const { breaker, clock, pass } = make();
    pass().wait(30);
    expect(breaker.state).toBe('open');
    expect(breaker.retryAt).toBe(clock.now + 30_000);
    clock.now += 30_000;
    pass().succeeded();
    expect(breaker.state).toBe('closed');
  });

  it('a probe that nobody waited for leaves the next request to probe', () => {
    const { breaker, clock, pass } = make();
    pass().failed(true);
    clock.now = breaker.retryAt;
    pass().forget();
    expect(breaker.state).toBe('half_open');
    pass().succeeded();
    expect(breaker.state).toBe('closed');
  });

  it('a pass counts once, and requests that began before add nothing to the pause', () => {
    const { breaker, clock, pass } = make();
    const late = pass();
    const one = pass();
    one.failed();
    one.failed();
    one.succeeded();
    expect(breaker.state).toBe('closed');
    pass().failed(true);
    late.failed();
    expect(breaker.retryAt - clock.now).toBe(1_000);
  });

  it('answers that break off in their middle count', () => {
    const { breaker, pass } = make();
    for (let index = 0; index < 20 && breaker.state === 'closed'; index += 1) {
      pass().succeeded();
      breaker.broke();
    }
    expect(breaker.state).toBe('open');
  });

  it('never opens when it is switched off', () => {
    const { breaker, pass } = make({ failures: 0 });
    for (let index = 0; index < 50; index += 1) pass().failed(true);
    pass().wait(100);
    expect(breaker.state).toBe('closed');
  });
});
