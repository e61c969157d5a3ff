import type { PriceRef, UsageFacts } from './money.js';

/**
 * Slices: parts of an account's money that a router of inference holds requests from without asking for each. `POST
 * /internal/v1/slices/<name>` at identity-billing. Amounts are integers of 10⁻⁹ ruble as decimal strings.
 *
 * What always holds: `leased` of an account is the sum of its slices, and balance − holds − leased is never made negative
 * by a grant. A slice has a term; a router holds nothing from one whose term is over, and identity-billing then freezes it:
 * its money stays leased until the router renews it, its log has been replayed (`open`), or the operator writes it off.
 */

/**
 * `open`: a router begins. Call it with the log of the router's former life already delivered by `settle`: every slice of
 * that life is closed and its money comes free. Answers the epoch that all its other calls carry; a call with an older one
 * is 409 `fenced`, and that process must end.
 */
export interface SliceOpenRequest {
  /** Names the router and its volume for good. UUID. */
  router_id: string;
}

export interface SliceOpenAnswer {
  epoch: number;
}

/** Who asks. */
export interface SliceCaller {
  router_id: string;
  epoch: number;
}

/**
 * `take`: money for requests of one account, and of one key where that has a monthly limit. The answer is the router's one
 * slice of the account (and of the key and month), enlarged by what was granted. Grants shrink with the balance, so that
 * the last of it is owned by one router. 402, with nothing changed, when `need` cannot be covered: `insufficient_balance`,
 * `topup_required`, `key_limit_reached`, `held_in_flight` (it would be covered if nothing was running elsewhere; what runs in
 * the router itself it knows better); 404 for an account or key that is gone; 503 `billing_unavailable`. Takes up to 250 ms
 * longer while idle money of others is recalled. A key's slice ends with its month at the latest.
 */
export interface SliceTakeRequest extends SliceCaller {
  account_id: string;
  /** The least that helps: what the slice lacks for the sum of what waits. */
  need: string;
  /** What would be welcome, at least `need`. */
  want: string;
  /** A key with a monthly limit; its own slice is granted together with the account's, or neither is. */
  key?: { key_id: string; need: string; want: string };
}

export interface SliceTakeAnswer {
  account: SliceInfo;
  key: SliceInfo | null;
}

export interface SliceInfo {
  id: string;
  /** Rises with every change of the amount by `take`, `renew` and `return`. */
  version: number;
  /** All that the router may have held and settled-but-not-delivered from it. */
  amount: string;
  /** Milliseconds from when the call was sent until the term is over. */
  expires_in: number;
  /** Keys: the calendar month (UTC) that it counts in, `2026-11`. */
  month?: string;
}

/** Figures of a refusal, in `error.details` of the internal answer: 10⁻⁹ rubles. */
export interface SliceRefusal {
  /** What could have been granted to this router beyond its slice. */
  available: string;
  /** What other orders, requests and routers hold. */
  held: string;
  /** Keys: what is left of the month's limit beyond this router's slice. */
  key_available?: string;
}

/**
 * `renew`: prolongs slices and says how much of each is in use, which is what `available` of the account is lessened by: worth
 * a call when that is far from what was last said. Of an account or key that is gone, and of a month that is over, a
 * slice gets no more time.
 * A slice that is unknown or closed is left out of the answer: the router drops it, and settles what it has in flight.
 */
export interface SliceRenewRequest extends SliceCaller {
  slices: { id: string; in_use: string }[];
}

export interface SliceRenewAnswer {
  slices: SliceInfo[];
}

/**
 * `return`: gives back what is not used; `amount` is how much. Applied once per version: a repeat with a version that is not
 * the slice's own any more changes nothing and answers the slice as it is. What is returned must not be held from any more
 * when the call is sent. An empty slice lives on until its term is over; one that is unknown or closed is left out.
 */
export interface SliceReturnRequest extends SliceCaller {
  slices: { id: string; version: number; amount: string }[];
}

export interface SliceReturnAnswer {
  slices: SliceInfo[];
}

/**
 * `settle`: the ends of requests, at most 500, charged once each by operation id, whatever is repeated. Lessens the slices named. A
 * settlement whose slice is closed already is charged to what is available; what that does not cover is the operator's
 * loss, recorded as such (`lost`).
 */
export interface SliceSettleRequest {
  router_id: string;
  settlements: SliceSettlement[];
}

export interface SliceSettlement {
  operation_id: string;
  account_id: string;
  key_id: string;
  slice_id: string;
  /** The key's slice, where it has a monthly limit. */
  key_slice_id?: string;
  /** Calendar month of the admission, `2026-11`. */
  month: string;
  amount: string;
  description: string;
  prices: PriceRef[];
  usage: UsageFacts;
  /** When the answer ended, RFC 3339. */
  at: string;
}

/** All that could be decided; the router keeps the others and comes again. */
export interface SliceSettleAnswer {
  settled: string[];
  /** Never to be charged, with the reason: malformed, unknown account. For the operator's log. */
  refused: { operation_id: string; reason: string }[];
}

/**
 * Event `slice.recall`, not kept: somebody else needs the money of these accounts. Routers return what is idle at once
 * (200 ms). Who does not answer keeps its slice only until the end of its term.
 */
export interface SliceRecall {
  account_id: string;
  /** Set when the limit of a key is what is short. */
  key_id: string | null;
  /** Router that asked and need not return. */
  except_router_id: string | null;
}
