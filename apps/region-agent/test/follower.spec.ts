import { type Wanted } from '@nebo/contracts';
import { type ServicePlane } from '../src/control/control-plane.js';
import { Follower } from '../src/reconcile/follower.js';
import { eventually, testLog } from './agent-kit.js';

/** A service that wants the same things for ever, and has news of none. */
function follow(items: Wanted[], signal: AbortSignal) {
  const seen = { full: 0, news: 0, applied: [] as number[] };
  const wanted = async (cursor: string | null) => {
    seen[cursor === null ? 'full' : 'news'] += 1;
    await new Promise((resolve) => setTimeout(resolve, 60));
    return { cursor: '1', full: cursor === null, items: cursor === null ? items : [] };
  };
  const follower = new Follower({
    service: 'compute',
    plane: { wanted } as unknown as ServicePlane,
    log: testLog,
    waitSeconds: 1,
    fullMs: 1_000,
    apply: (list, full) => Promise.resolve(void (full && seen.applied.push(list.length))),
    contact: () => undefined,
    onSuperseded: () => undefined,
  });
  return { seen, done: follower.run(signal) };
}

describe('what a region follows', () => {
  it('compares everything once in a while, and very many things as much less often', async () => {
    const stop = new AbortController();
    const one = { kind: 'vm', id: 'a', generation: 1 } as unknown as Wanted;
    const few = follow([one], stop.signal);
    // Twenty times as many as are compared at once: every 20 s instead of every second.
    const many = follow(new Array<Wanted>(400_000).fill(one), stop.signal);
    await eventually(() => few.seen.applied.length >= 3, 15_000).finally(() => stop.abort());
    expect(few.seen.applied.slice(0, 3)).toEqual([1, 1, 1]);
    expect(many.seen.applied).toEqual([400_000]);
    // News are asked for all the same.
    expect(many.seen.news).toBeGreaterThan(0);
    await Promise.all([few.done, many.done]);
  }, 30_000);
});
