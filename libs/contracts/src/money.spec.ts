import { formatRubles, parseRubles, priceOfCounts } from './money.js';

describe('money', () => {
  it.each([
    ['60', 60_000_000_000n, '60.00'],
    ['60.5', 60_500_000_000n, '60.50'],
    ['0.000000001', 1n, '0.000000001'],
    ['-1.25', -1_250_000_000n, '-1.25'],
    ['0', 0n, '0.00'],
    ['999999999999.999999999', 999_999_999_999_999_999_999n, '999999999999.999999999'],
  ])('%s is %s and is written as %s', (text, amount, written) => {
    expect(parseRubles(text)).toBe(amount);
    expect(formatRubles(amount)).toBe(written);
  });

  it.each(['', '1,5', '1.', '.5', '1e3', '1.0000000001', 'NaN', '--1'])('refuses "%s"', (text) => {
    expect(() => parseRubles(text)).toThrow(RangeError);
  });

  it('rounds the exact sum up once, not each part', () => {
    expect(
      priceOfCounts([
        { count: 1n, perMillion: 1n },
        { count: 1n, perMillion: 1n },
      ]),
    ).toBe(1n);
    expect(priceOfCounts([{ count: 1_000_000n, perMillion: parseRubles('60') }])).toBe(parseRubles('60'));
    expect(priceOfCounts([])).toBe(0n);
  });

  it('what is written reads back, over 2,000 random amounts', () => {
    for (let round = 0; round < 2_000; round += 1) {
      const amount = BigInt(Math.floor(Math.random() * 2 ** 52)) - 2n ** 51n;
      expect(parseRubles(formatRubles(amount))).toBe(amount);
    }
  });
});
