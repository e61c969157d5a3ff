import { broken } from './errors.js';
import { COLON, CR, LF, SPACE, TAB, TEXT, TOKEN } from './octets.js';

/**
 * Reads field lines (RFC 9112 section 5) up to the empty line that ends them.
 * @param text Latin-1, ends with an empty line
 * @param at where the first line begins
 * @param most fields at most
 * @returns name, value, name, …: as sent, doubles and order kept, white space around values gone
 * @throws Http1Error HTTP1_PROTOCOL for everything that is no field line, folded lines included
 */
export function readFields(text: string, at: number, most: number): string[] {
  const fields: string[] = [];
  while (text.charCodeAt(at) !== CR) {
    let colon = at;
    while (TOKEN[text.charCodeAt(colon)] === 1) colon += 1;
    // Also a line that begins with white space, which once went on with the line before.
    if (colon === at || text.charCodeAt(colon) !== COLON) throw broken('a field has no proper name');
    let begin = colon + 1;
    while (isBlank(text.charCodeAt(begin))) begin += 1;
    let end = begin;
    while (TEXT[text.charCodeAt(end)] === 1) end += 1;
    if (text.charCodeAt(end) !== CR || text.charCodeAt(end + 1) !== LF)
      throw broken('a field has an octet that no field may have');
    const next = end + 2;
    while (end > begin && isBlank(text.charCodeAt(end - 1))) end -= 1;
    if (fields.length >= 2 * most) throw broken(`there are more than ${most} fields`);
    fields.push(text.slice(at, colon), text.slice(begin, end));
    at = next;
  }
  if (at !== text.length - 2) throw broken('a line does not end in CRLF');
  return fields;
}

const isBlank = (code: number): boolean => code === SPACE || code === TAB;

/** Whether a list of tokens, as in `Connection`, has one. @param token in lower case */
export function hasToken(value: string, token: string): boolean {
  if (value.length === token.length) return value.toLowerCase() === token;
  if (value.length < token.length) return false;
  return value
    .toLowerCase()
    .split(',')
    .some((one) => one.trim() === token);
}
