import { domainToASCII } from 'node:url';

/**
 * Names as text: absolute, lower case, with the trailing dot (`www.example.com.`), the only form that is stored. Letters
 * beyond ASCII become their A-labels (RFC 5891). Labels have letters, digits, hyphens and underscores, so no name needs an
 * escape, and 255 bytes on the wire are 254 characters with the dot.
 */

/** Most characters of a name with its trailing dot (RFC 1035, 3.1: 255 bytes with the lengths). */
const maxLength = 254;
/** Letters, digits, hyphens inside; an underscore anywhere, as services and challenges are named (RFC 8552). */
const label = /^(?!-)[a-z0-9_-]{1,63}(?<!-)$/;
/** What may be registered and delegated. */
const hostLabel = /^(?!-)[a-z0-9-]{1,63}(?<!-)$/;

/** The labels of an input in canonical form, or null when one is no label. A star may stand for the leftmost one. */
function labelsOf(text: string, { star = false, rule = label } = {}): string[] | null {
  const labels = text.split('.').map((part) => (isAscii(part) ? part.toLowerCase() : asciiLabel(part)));
  const good = labels.every((part, index) => rule.test(part) || (star && index === 0 && part === '*'));
  return good ? labels : null;
}

const isAscii = (text: string): boolean => Buffer.byteLength(text) === text.length;

/** An A-label; nothing for what has none, or for a dot in disguise. */
function asciiLabel(text: string): string {
  const ascii = domainToASCII(text);
  return ascii.includes('.') ? '' : ascii;
}

const withoutDot = (text: string): string => (text.endsWith('.') ? text.slice(0, -1) : text);

/**
 * The name of a zone in canonical form; the trailing dot may be missing.
 * @returns null for what cannot be a zone: one label, odd characters, an address
 */
export function zoneName(text: string): string | null {
  const labels = labelsOf(withoutDot(text), { rule: hostLabel });
  if (labels === null || labels.length < 2 || /^\d+$/.test(labels.at(-1)!)) return null;
  const name = `${labels.join('.')}.`;
  return name.length <= maxLength ? name : null;
}

/**
 * A full name that a record may stand at, in canonical form; always absolute, whether the trailing dot is there or not.
 * @returns null for what is none
 */
export function fullName(text: string): string | null {
  const labels = labelsOf(withoutDot(text), { star: true });
  return labels === null || labels.length < 2 ? null : `${labels.join('.')}.`;
}

/** Does a zone hold a name? Both canonical. */
export const isWithin = (name: string, zone: string): boolean => name === zone || name.endsWith(`.${zone}`);

/**
 * The name of a record in canonical form. With a trailing dot it is absolute; without, it is relative to the zone, unless
 * it ends in the zone's name; `@` is the zone itself.
 * @returns null for what is no name, or lies outside of the zone
 */
export function recordName(text: string, zone: string): string | null {
  if (text === '@') return zone;
  const labels = labelsOf(withoutDot(text), { star: true });
  if (labels === null) return null;
  const given = `${labels.join('.')}.`;
  const name = text.endsWith('.') || isWithin(given, zone) ? given : given + zone;
  return isWithin(name, zone) && name.length <= maxLength ? name : null;
}

/**
 * The name that a value points to, always absolute: `mail.example.com` and `mail.example.com.` are the same. A single label
 * without a dot could mean either of two things, so it is refused.
 * @returns the name with its trailing dot in the case of the input, `.` for the root, or null
 */
export function targetName(text: string): string | null {
  if (text === '.') return '.';
  const labels = labelsOf(withoutDot(text));
  if (labels === null || !text.includes('.') || /^\d+$/.test(labels.at(-1)!)) return null;
  // What was sent in ASCII keeps its case: it is compared without, and answered as it is.
  const name = `${(isAscii(text) ? withoutDot(text).split('.') : labels).join('.')}.`;
  return name.length <= maxLength ? name : null;
}

/** A name's wire form without the root's zero byte, as text of one character a byte: `\3www\7example\3com`. */
export function wireKey(name: string): string {
  if (name === '.') return '';
  return withoutDot(name)
    .split('.')
    .map((part) => String.fromCharCode(part.length) + part)
    .join('');
}
