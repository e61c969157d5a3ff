import type { Nano } from '@nebo/contracts';
import type { RefusalCode } from './refusals.js';

/** A request that waits for money. */
export interface Wish {
  amount: Nano;
  /** A key with a monthly limit; null: only the account's money counts. */
  key: string | null;
  /** It has waited for others to give back once. */
  recalled: boolean;
}

/** What is known when identity-billing has refused requests that it was asked for together. */
export interface Shortage {
  code: RefusalCode;
  /** Free here plus what would be granted now. */
  budget: Nano;
  /** The same of the limit of their key; null: no limit, or unknown. */
  keyBudget: Nano | null;
  /** Held by running requests of this router, of the account and of the key. */
  held: Nano;
  keyHeld: Nano;
  /** Held by other routers, orders and requests. */
  heldElsewhere: Nano;
}

/** `wait`: others were asked to give idle money back. Otherwise the refusal, and the amount that would be covered now. */
export type Verdict<W extends Wish> =
  { wish: W; wait: true } | { wish: W; wait: false; code: RefusalCode; coverable: Nano };

/**
 * A 402 for several requests says nothing about each of them. In their order, those that fit into what is there shall be
 * asked for again without the others: so one huge request does not refuse the small ones.
 * @returns verdicts on those that do not fit; none when the figures do not explain the refusal
 */
export function judge<W extends Wish>(group: readonly W[], shortage: Shortage): Verdict<W>[] {
  let { budget, keyBudget } = shortage;
  const misfits: W[] = [];
  for (const wish of group) {
    const { amount, key } = wish;
    if (amount > budget || (key !== null && keyBudget !== null && amount > keyBudget)) misfits.push(wish);
    else {
      budget -= amount;
      if (key !== null && keyBudget !== null) keyBudget -= amount;
    }
  }
  return misfits.map((wish) => verdictOn(wish, shortage, budget, wish.key === null ? null : keyBudget));
}

function verdictOn<W extends Wish>(
  wish: W,
  { code, budget: whole, keyBudget: keyWhole, held, keyHeld, heldElsewhere }: Shortage,
  budget: Nano,
  keyBudget: Nano | null,
): Verdict<W> {
  const { amount } = wish;
  const coverable = keyBudget !== null && keyBudget < budget ? keyBudget : budget;
  const refuse = (why: RefusalCode): Verdict<W> => ({ wish, wait: false, code: why, coverable });
  if (keyBudget !== null && amount > keyBudget) {
    // What other routers hold of the limit only identity-billing knows; it says so by the code.
    const isElsewhere = code === 'held_in_flight';
    if (isElsewhere && !wish.recalled) return { wish, wait: true };
    return refuse(isElsewhere || amount <= keyWhole! + keyHeld ? 'held_in_flight' : 'key_limit_reached');
  }
  if (amount > whole + held + heldElsewhere) return refuse('insufficient_balance');
  if (heldElsewhere > 0n && !wish.recalled) return { wish, wait: true };
  return refuse('held_in_flight');
}
