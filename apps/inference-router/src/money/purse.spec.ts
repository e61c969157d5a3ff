import { ApiError, unavailable } from '@nebo/service-kit';
import { MoneyWorld } from '../../test/money-world.js';
import { until } from '../../test/harness.js';
import { Cancel } from '../completions/cancel.js';
import type { Hold } from './purse.js';

const account = 'a1';
const key = 'k1';

describe('the purse of an account', () => {
  let world: MoneyWorld;
  beforeEach(() => {
    world = new MoneyWorld().open();
    world.slices.accounts.set(account, { balance: 1_000n });
  });
  afterEach(() => {
    expect(world.slices.violations).toEqual([]);
    clearInterval((world.purses as unknown as { timer: NodeJS.Timeout }).timer);
  });

  const hold = (amount: bigint, limited: string | null = null, gone?: Cancel) =>
    Promise.resolve(world.purses.hold(account, amount, limited, gone));
  const outcome = (promise: Promise<Hold>) =>
    promise.then(
      () => 'held',
      (error: { code: string }) => error.code,
    );

  it('holds at once from what it has, without a call; the first request asks', async () => {
    const first = await hold(10n);
    expect(world.count('take')).toBe(1);
    expect(world.calls[0]!.body).toMatchObject({ account_id: account, need: '10', want: '20' });
    const second = world.purses.hold(account, 10n, null);
    expect(second).not.toBeInstanceOf(Promise);
    expect(world.purses.sums(account)).toEqual({ free: 0n, held: 20n, owed: 0n });
    world.purses.end(first, 0n);
    world.purses.end(first, 0n);
    expect(world.purses.sums(account)).toMatchObject({ free: 10n, held: 10n });
  });

  it('asks once for all that wait, and serves them in order', async () => {
    const order: number[] = [];
    const holds = [5n, 7n, 9n].map((amount, index) => hold(amount).then((made) => (order.push(index), made)));
    await Promise.all(holds);
    expect(order).toEqual([0, 1, 2]);
    // The first one's call was on its way when the others came.
    expect(world.count('take')).toBeLessThanOrEqual(2);
    expect(world.purses.holds).toBe(3);
  });

  it('asks in the background before it is empty', async () => {
    await hold(10n);
    world.purses.hold(account, 10n, null);
    await until(() => world.count('take') === 2, 'a take that nobody waits for');
    await until(() => world.purses.sums(account).free >= 10n, 'more is there');
  });

  it('drops a waiting request whose client left; the others go on', async () => {
    const client = new Cancel();
    const left = outcome(hold(10n, null, client));
    const other = hold(3n);
    client.cancel(new Error('the client left'));
    expect(await left).toBe('billing_unavailable');
    expect((await other).amount).toBe(3n);
    expect(world.purses.holds).toBe(1);
    expect(await outcome(hold(1n, null, client))).toBe('held');
    expect(await outcome(hold(10_000n, null, client))).toBe('billing_unavailable');
  });

  it('one huge request does not refuse the small ones that came with it', async () => {
    const outcomes = await Promise.all([5n, 5_000n, 7n, 9n].map((amount) => outcome(hold(amount))));
    expect(outcomes).toEqual(['held', 'insufficient_balance', 'held', 'held']);
  });

  it('tells apart: not enough at all, held by own requests, held by others', async () => {
    const all = await hold(900n);
    await expect(hold(2_000n)).rejects.toMatchObject({ code: 'insufficient_balance', coverable: 100n });
    await expect(hold(500n)).rejects.toMatchObject({ code: 'held_in_flight', coverable: 100n });
    world.purses.end(all, 0n);
    const other = new MoneyWorld(world.slices, world.clock).open();
    // It holds all that this one does not: 100 beyond the slice of 900.
    const elsewhere = await Promise.resolve(other.purses.hold(account, 100n, null));
    await expect(hold(950n)).rejects.toMatchObject({ code: 'held_in_flight', coverable: 900n });
    other.purses.end(elsewhere, 0n);
  });

  it('uses what another router gives back when it is asked', async () => {
    const other = new MoneyWorld(world.slices, world.clock).open();
    world.slices.onRecall = (recall) => {
      void world.purses.recall(recall);
      void other.purses.recall(recall);
    };
    const elsewhere = await Promise.resolve(other.purses.hold(account, 700n, null));
    other.purses.end(elsewhere, 0n);
    other.clock.ms += 11_000;
    await other.purses.tick();
    await until(() => outcome(hold(800n)).then((found) => found === 'held'), 'the money came back');
    expect(world.slices.leased(account)).toBeLessThanOrEqual(1_000n);
  });

  it('gives 402 topup_required to all at once, and 401 when the account is gone', async () => {
    world.slices.accounts.get(account)!.refusal = 'topup_required';
    const found = await Promise.all([outcome(hold(1n)), outcome(hold(2n))]);
    expect(found).toEqual(['topup_required', 'topup_required']);
    world.slices.accounts.delete(account);
    expect(await outcome(hold(1n))).toBe('unauthorized');
  });

  it('401 only to the key that is gone: requests of other keys that wait with it go on', async () => {
    world.around = async (name, work) => {
      const { key: part } = world.calls.at(-1)!.body as { key?: { key_id: string } };
      if (name === 'take' && part?.key_id === key) throw new ApiError(404, 'not_found', 'key_id');
      return work();
    };
    const found = await Promise.all([outcome(hold(1n, key)), outcome(hold(2n)), outcome(hold(3n, 'k2'))]);
    expect(found).toEqual(['unauthorized', 'held', 'held']);
  });

  it('goes on serving from a valid slice while billing is away; 503 when its term is over', async () => {
    await hold(10n);
    await until(() => world.purses.sums(account).free >= 10n, 'some is left');
    world.away = new Set(['take', 'renew', 'return', 'settle']);
    expect(await outcome(hold(5n))).toBe('held');
    world.clock.ms += 29_999;
    expect(await outcome(hold(1n))).toBe('held');
    world.clock.ms += 2;
    expect(await outcome(hold(1n))).toBe('billing_unavailable');
    world.away.clear();
    expect(await outcome(hold(1n))).toBe('held');
    expect(world.count('renew')).toBeGreaterThan(1);
  });

  it('counts the term from before the call was sent', async () => {
    world.around = async (name, work) => {
      const answer = work();
      if (name === 'take') world.clock.ms += 29_000;
      return answer;
    };
    await hold(10n);
    world.around = async (_, work) => work();
    world.away.add('take').add('renew');
    world.clock.ms += 1_001;
    expect(await outcome(hold(1n))).toBe('billing_unavailable');
  });

  it('renews at a third of the term, and says what is in use', async () => {
    const first = await hold(10n);
    world.clock.ms += 9_000;
    await world.purses.tick();
    expect(world.count('renew')).toBe(0);
    world.clock.ms += 1_500;
    await world.purses.tick();
    expect(world.calls.at(-1)).toMatchObject({
      name: 'renew',
      body: { slices: [{ id: first.slice.id, in_use: '10' }] },
    });
  });

  it('drops a slice that billing does not know any more, and takes a new one', async () => {
    const first = await hold(10n);
    world.slices.slices.clear();
    world.clock.ms += 10_500;
    await world.purses.tick();
    const second = await hold(10n);
    expect(second.slice.id).not.toBe(first.slice.id);
  });

  it('gives everything back after 30 s without use', async () => {
    const first = await hold(10n);
    world.purses.end(first, 0n);
    world.clock.ms += 29_000;
    await world.purses.tick();
    expect(world.slices.leased(account)).toBeGreaterThan(0n);
    world.clock.ms += 1_500;
    await world.purses.tick();
    expect(world.slices.leased(account)).toBe(0n);
    expect(world.purses.sums(account)).toEqual({ free: 0n, held: 0n, owed: 0n });
    expect(await outcome(hold(10n))).toBe('held');
  });

  it('gives back what is idle on a recall, never what is in use; the asking router nothing', async () => {
    const first = await hold(300n);
    await until(
      () => world.purses.sums(account).free >= 300n || world.count('take') > 1,
      'more than is held',
    );
    await world.purses.recall({ account_id: account, key_id: null, except_router_id: world.routerId });
    const before = world.slices.leased(account);
    await world.purses.recall({ account_id: account, key_id: null, except_router_id: null });
    expect(world.slices.leased(account)).toBe(300n);
    expect(before).toBeGreaterThanOrEqual(300n);
    world.purses.end(first, 0n);
  });

  it('a settlement stays in the slice until it is acknowledged', async () => {
    const first = await hold(10n);
    world.purses.end(first, 4n);
    expect(world.purses.sums(account)).toMatchObject({ held: 0n, owed: 4n });
    first.purse.acknowledge(first, 4n, true);
    expect(world.purses.sums(account)).toMatchObject({ free: 16n, owed: 0n });
  });

  it('holds the limit of a key together with the balance, month by month', async () => {
    world.slices.limits.set(key, 100n);
    const first = await hold(60n, key);
    expect(first.keySlice).toMatchObject({ month: '2026-11', keyId: key });
    await expect(hold(80n, key)).rejects.toMatchObject({ code: 'held_in_flight', coverable: 40n });
    await expect(hold(101n, key)).rejects.toMatchObject({ code: 'key_limit_reached' });
    // Its limit is no business of others.
    expect(await outcome(hold(80n))).toBe('held');
    await world.settle(first, account, 60n);
    await expect(hold(80n, key)).rejects.toMatchObject({ code: 'key_limit_reached', coverable: 40n });
    world.clock.day = new Date('2026-12-01T00:00:00Z');
    for (const slice of world.slices.slices.values()) if (slice.month) slice.expiresAt = 0;
    world.clock.ms += 30_001;
    const next = await hold(80n, key);
    expect(next).toMatchObject({ month: '2026-12', keySlice: { month: '2026-12' } });
    await world.purses.tick();
    expect(
      [...world.slices.slices.values()].filter(({ month, amount }) => month === '2026-11' && amount > 0n),
    ).toEqual([]);
  });

  it('goes over to the next month as soon as identity-billing has it, while its own clock is behind', async () => {
    world.slices.limits.set(key, 100n);
    const running = await hold(60n, key);
    world.slices.month = () => '2026-12';
    for (const slice of world.slices.slices.values()) if (slice.month) slice.expiresAt = 0;
    world.clock.ms += 30_001;
    expect(await hold(80n, key)).toMatchObject({ month: '2026-12', keySlice: { month: '2026-12' } });
    expect(running.month).toBe('2026-11');
  });

  it('a key whose limit was taken away needs none', async () => {
    expect(await outcome(hold(10n, key))).toBe('held');
  });

  it('stops for good when another process has begun as this router', async () => {
    await hold(10n);
    world.slices.call('open', { router_id: world.routerId } as never);
    expect(await outcome(hold(500n))).toBe('billing_unavailable');
    expect(world.purses.isFenced).toBe(true);
    expect(() => world.purses.hold(account, 1n, null)).toThrow('balance could not be read');
  });

  /** A grant that takes its time, until `end`; resolves when it is under way. */
  const slowTake = async () => {
    let end!: () => void;
    const over = new Promise<void>((resolve) => (end = resolve));
    world.around = async (name, work) => {
      const answer = work();
      if (name === 'take') await over;
      return answer;
    };
    const client = new Cancel();
    const left = outcome(hold(10n, null, client));
    await until(() => world.slices.leased(account) > 0n, 'money is granted');
    client.cancel(new Error('the client left'));
    expect(await left).toBe('billing_unavailable');
    return end;
  };

  it('what was granted to a client that left meanwhile is known, and goes back when nobody uses it', async () => {
    const end = await slowTake();
    await world.purses.tick();
    end();
    await until(() => world.purses.sums(account).free > 0n, 'the grant is known');
    world.clock.ms += 30_001;
    await world.purses.tick();
    expect(world.slices.leased(account)).toBe(0n);
  });

  it('waits for a grant that is under way when it is closed, and gives it back', async () => {
    const end = await slowTake();
    setTimeout(end, 20);
    await world.purses.close();
    expect(world.slices.leased(account)).toBe(0n);
  });

  it('a grant that was lost with its key is looked for without the key', async () => {
    world.slices.limits.set(key, 100n);
    let isGone = false;
    world.around = async (name, work) => {
      const { key: part } = world.calls.at(-1)!.body as { key?: object };
      if (name === 'take' && part && isGone) throw new ApiError(404, 'not_found', 'key_id');
      const answer = work();
      if (name !== 'take' || !part) return answer;
      isGone = true;
      throw unavailable('the answer was lost');
    };
    expect(await outcome(hold(10n, key))).toBe('billing_unavailable');
    expect(world.slices.leased(account)).toBeGreaterThan(0n);
    for (let beat = 0; beat < 3; beat += 1) {
      world.clock.ms += 31_000;
      await world.purses.tick();
    }
    expect(world.slices.leased(account)).toBe(0n);
  });

  it('gives all back when it is closed', async () => {
    const first = await hold(10n);
    world.purses.end(first, 0n);
    await world.purses.close();
    expect(world.slices.leased(account)).toBe(0n);
    expect(() => world.purses.hold(account, 1n, null)).toThrow();
  });
});
