/** Amounts are integers of 10⁻⁹ ruble in code and database, decimal strings on the wire, never floats. */
export type Nano = bigint;

/** One ruble in 10⁻⁹ rubles. */
export const ruble: Nano = 1_000_000_000n;

const pattern = /^(-?)(\d{1,12})(?:\.(\d{1,9}))?$/;

/**
 * Reads a decimal string ("60", "60.00", "0.000000001") as 10⁻⁹ rubles.
 * @throws RangeError when the text is not a decimal with at most nine places
 */
export function parseRubles(text: string): Nano {
  const match = pattern.exec(text.trim());
  if (!match)
    throw new RangeError(`"${text}" is not an amount: a decimal with at most nine places is expected`);
  const amount = BigInt(match[2]!) * ruble + BigInt((match[3] ?? '').padEnd(9, '0'));
  return match[1] === '-' ? -amount : amount;
}

/** Writes 10⁻⁹ rubles as a decimal: at least two places, at most nine, no trailing zeros beyond two (interfaces.md, 6). */
export function formatRubles(amount: Nano): string {
  const negative = amount < 0n;
  const positive = negative ? -amount : amount;
  const places = (positive % ruble).toString().padStart(9, '0').replace(/0+$/, '').padEnd(2, '0');
  return `${negative ? '-' : ''}${positive / ruble}.${places}`;
}

/**
 * Price of counted units at a price per million, rounded up once over the exact sum (interfaces.md, 6).
 * @param parts pairs of a count and its price in 10⁻⁹ rubles per million
 */
export function priceOfCounts(parts: readonly { count: bigint; perMillion: Nano }[]): Nano {
  const sum = parts.reduce((total, part) => total + part.count * part.perMillion, 0n);
  return (sum + 999_999n) / 1_000_000n;
}
