import { isUtf8 } from 'node:buffer';
import { badRequest } from './errors.js';

/** Deepest nesting of a JSON body; what walks a value recursively stays far from the end of its stack. */
const maxDepth = 100;
/** Most values of a JSON body: small ones cost a hundred times their bytes, in memory and in time that others wait. */
const maxValues = 250_000;

const quote = 0x22;
const backslash = 0x5c;
const comma = 0x2c;
const openBracket = 0x5b;
const closeBracket = 0x5d;
const openBrace = 0x7b;
const closeBrace = 0x7d;

/** So many bytes of a text are looked at one by one before the rest of it is searched, which costs more to begin with. */
const nearby = 96;

/**
 * The text of a JSON body, if it may be parsed at all: UTF-8, at most 100 levels deep, at most 250,000 values. One pass over
 * the bytes, before anything is built from them; it costs less than the parser does.
 * @throws ApiError 400 saying what is wrong
 */
export function jsonText(body: Buffer): string {
  // Decoding would silently put another character in place of what is not UTF-8.
  if (!isUtf8(body)) throw badRequest('bad_request', 'the body is not UTF-8');
  let depth = 0;
  let values = 1;
  for (let index = 0; index < body.length; index += 1) {
    const byte = body[index];
    if (byte === quote) index = endOfText(body, index);
    else if (byte === comma) values += 1;
    else if (byte === openBrace || byte === openBracket) {
      depth += 1;
      values += 1;
      if (depth > maxDepth)
        throw badRequest('bad_request', `the body is nested deeper than ${maxDepth} levels`);
    } else if (byte === closeBrace || byte === closeBracket) depth -= 1;
    if (values > maxValues) throw badRequest('bad_request', `the body has more than ${maxValues} values`);
  }
  return body.toString('utf8');
}

/** @returns index of the quote that closes the text opened at `open`, or the length of the body */
function endOfText(body: Buffer, open: number): number {
  let index = open + 1;
  for (;;) {
    for (const near = Math.min(body.length, index + nearby); index < near; index += 1) {
      const byte = body[index];
      if (byte === quote) return index;
      if (byte === backslash) index += 1;
    }
    const found = body.indexOf(quote, index);
    if (found < 0) return body.length;
    if (!isEscaped(body, found, index)) return found;
    index = found + 1;
  }
}

/** Is the byte at `at` escaped? @param from a place before it that is not in the middle of an escape */
function isEscaped(body: Buffer, at: number, from: number): boolean {
  let first = at;
  while (first > from && body[first - 1] === backslash) first -= 1;
  return (at - first) % 2 === 1;
}
