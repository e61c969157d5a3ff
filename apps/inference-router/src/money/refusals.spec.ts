import { worstCase } from '../completions/cost.js';
import { affordableOutput, MoneyRefused, refusalAnswer } from './refusals.js';
import { judge } from './verdicts.js';

const tariff = {
  input: 60_000_000_000n,
  cache_read: 12_000_000_000n,
  output: 240_000_000_000n,
  version: 1,
  refs: [],
};
const wanted = { amount: 10_000_000_000n, inputBound: 1_000, ceiling: 4_096, tariff };

describe('refusals for want of money', () => {
  it('name the max_tokens that would be covered: that much is covered, one more is not', () => {
    for (let round = 0; round < 2_000; round += 1) {
      const inputBound = Math.floor(Math.random() * 5_000);
      const coverable = BigInt(Math.floor(Math.random() * 1_000_000_000));
      const prices = {
        ...tariff,
        input: BigInt(Math.floor(Math.random() * 9e10)),
        output: BigInt(1 + Math.floor(Math.random() * 9e11)),
      };
      const most = affordableOutput(coverable, { inputBound, ceiling: 1_000_000, tariff: prices });
      if (most > 0) expect(worstCase(inputBound, most, prices)).toBeLessThanOrEqual(coverable);
      if (most < 1_000_000) expect(worstCase(inputBound, most + 1, prices)).toBeGreaterThan(coverable);
    }
  });

  it('say so in words and in a field; held money says when to come again', () => {
    const coverable = 1_000n * 60_000n + 500n * 240_000n + 7n;
    const answer = refusalAnswer(new MoneyRefused('held_in_flight', coverable), wanted);
    expect(answer).toMatchObject({
      status: 402,
      code: 'held_in_flight',
      headers: { 'retry-after': '5' },
      fields: { affordable_max_tokens: 500 },
    });
    expect(answer.message).toContain('with max_tokens up to 500 it would be covered now');
    expect(answer.message).toContain('10.00 rubles');
  });

  it('say that the input alone is too much, and nothing of tokens where no top-up was made', () => {
    const none = refusalAnswer(new MoneyRefused('insufficient_balance', 5n), wanted);
    expect(none.fields).toEqual({ affordable_max_tokens: 0 });
    expect(none.message).toContain('its input alone is not covered');
    expect(none.headers).toEqual({});
    const topup = refusalAnswer(new MoneyRefused('topup_required', null), wanted);
    expect(topup.fields).toBeUndefined();
    expect(topup.message).toContain('top up');
  });

  it('a free output is limited by the ceiling only', () => {
    expect(affordableOutput(10n ** 12n, { ...wanted, tariff: { ...tariff, output: 0n } })).toBe(4_096);
  });
});

describe('verdicts on requests that were refused together', () => {
  const wish = (amount: bigint, key: string | null = null) => ({ amount, key, recalled: false });
  const shortage = {
    code: 'insufficient_balance' as const,
    budget: 100n,
    keyBudget: null,
    held: 0n,
    keyHeld: 0n,
    heldElsewhere: 0n,
  };
  const said = (verdicts: { wish: { amount: bigint }; wait: boolean; code?: string }[]) =>
    verdicts.map(({ wish, wait, code }) => [wish.amount, wait ? 'wait' : code]);

  it('keep those that fit, in their order', () => {
    expect(said(judge([wish(60n), wish(500n), wish(50n), wish(40n)], shortage))).toEqual([
      [500n, 'insufficient_balance'],
      [50n, 'held_in_flight'],
    ]);
    expect(judge([wish(60n), wish(40n)], shortage)).toEqual([]);
  });

  it('let those wait that others could help, once', () => {
    const more = { ...shortage, heldElsewhere: 200n };
    expect(said(judge([wish(250n), wish(301n)], more))).toEqual([
      [250n, 'wait'],
      [301n, 'insufficient_balance'],
    ]);
    expect(said(judge([{ ...wish(250n), recalled: true }], more))).toEqual([[250n, 'held_in_flight']]);
  });

  it("tell a key's limit apart from what its own requests hold of it", () => {
    const limited = { ...shortage, keyBudget: 30n, keyHeld: 20n };
    expect(said(judge([wish(45n, 'k'), wish(60n, 'k'), wish(90n)], limited))).toEqual([
      [45n, 'held_in_flight'],
      [60n, 'key_limit_reached'],
    ]);
    expect(judge([wish(60n, 'k')], limited)).toMatchObject([{ coverable: 30n }]);
    expect(said(judge([wish(45n, 'k')], { ...limited, code: 'held_in_flight' as never }))).toEqual([
      [45n, 'wait'],
    ]);
  });
});
