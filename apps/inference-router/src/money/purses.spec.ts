import { MoneyWorld } from '../../test/money-world.js';
import type { Hold } from './purse.js';

/** Slices that one call may name (identity-billing's `SliceRenewBody`, `SliceReturnBody`). */
const mostInCall = 1_000;

describe('the purses of a busy router', () => {
  let world: MoneyWorld;
  beforeEach(() => {
    world = new MoneyWorld().open();
    // Its beats are the test's.
    clearInterval((world.purses as unknown as { timer: NodeJS.Timeout }).timer);
    world.around = async (_, work) => {
      const { slices } = world.calls.at(-1)!.body as { slices?: unknown[] };
      if ((slices?.length ?? 0) > mostInCall) throw new Error('422: too many slices');
      return work();
    };
  });
  afterEach(() => expect(world.slices.violations).toEqual([]));

  it.each([
    ['400 accounts with two limited keys each', 400, 2],
    ['one account with 1,100 limited keys', 1, 1_100],
  ])(
    'renews all its slices, and gives all back, however many there are: %s',
    async (_what, accounts, keys) => {
      const holds: Hold[] = [];
      for (let account = 0; account < accounts; account += 1) {
        world.slices.accounts.set(`a${account}`, { balance: 1_000_000n });
        for (let key = 0; key < keys; key += 1) {
          const name = `a${account}k${key}`;
          world.slices.limits.set(name, 1_000n);
          holds.push(await Promise.resolve(world.purses.hold(`a${account}`, 1n, name)));
        }
      }
      world.clock.ms += 10_500;
      await world.purses.tick();
      const slices = [...world.slices.slices.values()];
      expect(slices).toHaveLength(accounts * (keys + 1));
      expect(slices.filter(({ expiresAt }) => expiresAt < world.clock.ms + 30_000)).toEqual([]);
      for (const hold of holds) world.purses.end(hold, 0n);
      world.clock.ms += 30_001;
      await world.purses.tick();
      for (const [account] of world.slices.accounts) expect(world.slices.leased(account)).toBe(0n);
      expect(slices.filter(({ amount }) => amount > 0n)).toEqual([]);
    },
  );
});
