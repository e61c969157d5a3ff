import { randomUUID } from 'node:crypto';
import { unavailable } from '@nebo/service-kit';
import { FakeSlices } from '../../test/fake-slices.js';
import { MoneyWorld, TestClock } from '../../test/money-world.js';
import { Delivery } from './delivery.js';
import type { Hold } from './purse.js';
import { MoneyRefused } from './refusals.js';
import type { Segment, SettlementLog } from './settlement-log.js';

/** Random histories: 60 in `npm test`, more with NEBO_PROOF; all follow from NEBO_SEED. */
const histories = Number(process.env['NEBO_PROOF'] || 60);
const seed = Number(process.env['NEBO_SEED'] || 20_261_121);
const steps = 120;
const accounts = ['a1', 'a2'];
const limited = 'k1';

function random(from: number): () => number {
  let state = from >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

const turns = async (count = 8) => {
  for (let turn = 0; turn < count; turn += 1) await new Promise((resolve) => setImmediate(resolve));
};

/** A router with its delivery; the log is a set of what was answered for. */
class Router {
  readonly world: MoneyWorld;
  readonly delivery: Delivery;
  readonly holds: { hold: Hold; account: string }[] = [];

  constructor(slices: FakeSlices, clock: TestClock, chance: () => number) {
    this.world = new MoneyWorld(slices, clock);
    const log = { acknowledged: async () => undefined } as unknown as SettlementLog;
    const { billing, metrics } = this.world;
    this.delivery = new Delivery(this.world.routerId, billing, log, clock, this.world.log, metrics);
    // One call in eight is lost on its way, one in eight on its way back, some are slow.
    this.world.around = async (_, work) => {
      const fate = chance();
      if (fate < 0.125) throw unavailable('lost');
      if (fate < 0.4) await turns(Math.floor(chance() * 6));
      const answer = work();
      if (fate > 0.875) throw unavailable('the answer is lost');
      if (fate > 0.6) await turns(Math.floor(chance() * 6));
      return answer;
    };
    this.world.open();
  }
}

describe('money of routers in random histories', () => {
  it(`never promises the same money twice and loses no settlement, over ${histories} histories`, async () => {
    let admitted = 0;
    for (let history = 0; history < histories; history += 1) {
      const chance = random(seed + history);
      const pick = (most: number) => Math.floor(chance() * most);
      const slices = new FakeSlices();
      const clock = new TestClock();
      for (const id of accounts) slices.accounts.set(id, { balance: BigInt(500 + pick(3_000)) });
      slices.limits.set(limited, BigInt(200 + pick(800)));
      const start = new Map(accounts.map((id) => [id, slices.accounts.get(id)!.balance]));
      const routers = [0, 1, 2].map(() => new Router(slices, clock, chance));
      slices.onRecall = (recall) =>
        routers.forEach((router) => void router.world.purses.recall(recall).catch(() => 0));
      /** What was promised to clients: settled, by operation id. */
      const owed = new Map<string, { account: string; amount: bigint }>();
      const waiting = new Set<Promise<unknown>>();
      /** Nothing that runs or is settled may ever exceed what the account began with. */
      const check = () => {
        for (const id of accounts) {
          const running = routers
            .flatMap(({ holds }) => holds)
            .filter(({ account }) => account === id)
            .reduce((sum, { hold }) => sum + hold.amount, 0n);
          const settled = [...owed.values()]
            .filter(({ account }) => account === id)
            .reduce((sum, { amount }) => sum + amount, 0n);
          expect(running + settled).toBeLessThanOrEqual(start.get(id)!);
        }
        expect(slices.violations).toEqual([]);
        expect(slices.lost).toBe(0n);
      };
      for (let step = 0; step < steps; step += 1) {
        const router = routers[pick(3)]!;
        const what = pick(10);
        if (what < 4) {
          const account = accounts[pick(2)]!;
          const key = account === 'a1' && pick(3) === 0 ? limited : null;
          const made = (hold: Hold) => {
            admitted += 1;
            router.holds.push({ hold, account });
            check();
          };
          try {
            const hold = router.world.purses.hold(account, BigInt(1 + pick(200)), key);
            if (hold instanceof Promise) {
              const done = hold.then(made, () => undefined).finally(() => waiting.delete(done));
              waiting.add(done);
            } else made(hold);
          } catch (error) {
            if (error instanceof MoneyRefused) throw error;
          }
        } else if (what < 7 && router.holds.length > 0) {
          const [{ hold, account }] = router.holds.splice(pick(router.holds.length), 1) as [
            Router['holds'][0],
          ];
          const amount = BigInt(pick(Number(hold.amount) + 1));
          router.world.purses.end(hold, amount);
          if (amount > 0n) {
            const id = randomUUID();
            owed.set(id, { account, amount });
            router.delivery.add(
              {
                operation_id: id,
                account_id: account,
                key_id: hold.keySlice?.keyId ?? 'k0',
                slice_id: hold.slice.id,
                ...(hold.keySlice ? { key_slice_id: hold.keySlice.id } : {}),
                month: hold.month,
                amount: amount.toString(),
                description: '',
                prices: [],
                usage: { kind: 'inference' },
                at: '',
              },
              hold,
              {} as Segment,
            );
          }
        } else if (what === 7) void router.delivery.drain(0).catch(() => 0);
        else if (what === 8) {
          clock.ms += pick(9_000);
          if (pick(20) === 0) clock.day = new Date(clock.day.getTime() + 15 * 86_400_000);
          for (const one of routers) void one.world.purses.tick();
        } else await turns(pick(10));
        check();
      }
      // All is well at last: everything is delivered, everything comes back.
      for (const { world } of routers) world.around = async (_, work) => work();
      await Promise.all(waiting);
      for (const { world, holds, delivery } of routers) {
        for (const { hold } of holds) world.purses.end(hold, 0n);
        for (let round = 0; round < 50 && delivery.waiting > 0; round += 1) {
          await delivery.drain(0);
          await turns();
        }
        expect(delivery.waiting).toBe(0);
        await delivery.stop();
      }
      for (let round = 0; round < 3; round += 1) {
        clock.ms += 31_000;
        for (const { world } of routers) {
          await turns();
          await world.purses.tick();
        }
      }
      check();
      for (const id of accounts) {
        const spent = [...owed.values()]
          .filter(({ account }) => account === id)
          .reduce((sum, { amount }) => sum + amount, 0n);
        expect(slices.charged(id)).toBe(spent);
        expect(slices.accounts.get(id)!.balance).toBe(start.get(id)! - spent);
        expect(slices.leased(id)).toBe(0n);
      }
      expect([...slices.ledger.keys()].sort()).toEqual([...owed.keys()].sort());
      for (const { world } of routers) await world.purses.close();
    }
    expect(admitted).toBeGreaterThan(histories * 10);
  }, 600_000);
});
