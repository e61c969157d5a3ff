/** A change feed's row: which database it is of, the highest number given, and up to which number rows were forgotten. */
export interface Feed {
  name: string;
  nonce: string;
  top: bigint;
  pruned: bigint;
}

/** The cursor of a reader that has seen all of the feed: `<nonce>.<number>`, opaque to it. */
export const cursorOf = (feed: Feed): string => `${feed.nonce}.${feed.top}`;

/** The number in a cursor of this feed, or null when it is none, of another database, or one of the future. */
export function numberIn(feed: Feed, cursor: string | null): bigint | null {
  const [, nonce, digits] = /^([0-9a-f]{8})\.(\d{1,18})$/.exec(cursor ?? '') ?? [];
  if (nonce !== feed.nonce || digits === undefined) return null;
  const number = BigInt(digits);
  return number > feed.top ? null : number;
}

/** After which number a reader wants the changes; null: it needs everything, since what it missed may be forgotten. */
export function numberAfter(feed: Feed, cursor: string | null): bigint | null {
  const number = numberIn(feed, cursor);
  return number === null || number < feed.pruned ? null : number;
}
